package tables

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Marks = (*Tables)(nil)

const (
	// beginSession moves what the last session left into the columns before_…
	// and returns it from there, so that a repeat finds it again. A gateway
	// that commits without beginning sessions, an older version, makes the
	// mark worthless.
	beginSession = `insert into marks (identity, address, workspace, epoch, seen_at)
		select cast($1 as text), cast($2 as text), cast($3 as text), cast($4 as bigint), cast($5 as bigint)
			where not exists (select 1 from positions p where p.identity = $1 and p.address = $2 and p.epoch > $4)
		on conflict (identity, address) do update set
			before_clean = case
				when excluded.epoch = marks.epoch and marks.clean is null then marks.before_clean
				when exists (select 1 from positions p
					where p.identity = marks.identity and p.address = marks.address and p.epoch > marks.epoch) then null
				else marks.clean end,
			before_ended_at = case
				when excluded.epoch = marks.epoch and marks.clean is null then marks.before_ended_at
				else marks.ended_at end,
			clean = null,
			ended_at = null,
			workspace = excluded.workspace,
			epoch = excluded.epoch,
			seen_at = excluded.seen_at
		where excluded.epoch >= marks.epoch
		returning before_clean, before_ended_at`
	// fencePosition lets no commit of an older epoch through.
	fencePosition = `update positions set epoch = $3, moved_at = $4 where identity = $1 and address = $2 and epoch <= $3`

	selectMark = `select clean, ended_at from marks m
		where identity = $1 and address = $2 and clean is not null and not exists (select 1 from positions p
			where p.identity = m.identity and p.address = m.address and p.epoch > m.epoch)`
	countMarks  = `select workspace, count(*) from marks group by workspace`
	expireMarks = `delete from marks where seen_at < $1 and (identity, address) in
		(select identity, address from marks where seen_at < $1 limit $2)`

	insertMark = `insert into marks (identity, address, epoch, clean, ended_at, seen_at, workspace) `
	guardMark  = ` on conflict (identity, address) do update set
			epoch = excluded.epoch, clean = excluded.clean, ended_at = excluded.ended_at, seen_at = excluded.seen_at
		where excluded.epoch >= marks.epoch`

	// guardFinal is guardPosition for the last commit of a session, which is
	// new also if the position stays.
	guardFinal = ` on conflict (identity, address) do update set
			position = case when excluded.position > positions.position then excluded.position else positions.position end,
			epoch = excluded.epoch,
			moved_at = excluded.moved_at
		where excluded.epoch >= positions.epoch`
)

var (
	markClean = &Bulk{
		Row: insertMark + `values ($1, $2, $4, $3, $5, $5, '')` + guardMark,
		Rows: insertMark + `select c.i, c.a, c.e, c.p, $5::bigint, $5::bigint, ''
			from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as c (i, a, p, e)` + guardMark,
	}
	commitFinal = &Bulk{
		Row: insertPosition + `values ($1, $2, $3, $4, $5)` + guardFinal,
		Rows: insertPosition + `select c.i, c.a, c.p, c.e, $5::bigint
			from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as c (i, a, p, e)` + guardFinal,
	}
	touchMarks     = touch("marks", "seen_at")
	touchPositions = touch("positions", "moved_at")
)

// touch writes a time into the rows that have the epoch given; on PostgreSQL it
// locks them in the order of their keys first.
func touch(table, column string) *Bulk {
	return &Bulk{
		Row: `update ` + table + ` set ` + column + ` = $4 where identity = $1 and address = $2 and epoch = $3`,
		Rows: `with c as (
				select t.identity, t.address, t.epoch
				from ` + table + ` t join unnest($1::text[], $2::text[], $3::bigint[]) as r (i, a, e)
					on t.identity = r.i and t.address = r.a and t.epoch = r.e
				order by t.identity, t.address for update of t)
			update ` + table + ` t set ` + column + ` = $4
			from c where t.identity = c.identity and t.address = c.address and t.epoch = c.epoch`,
	}
}

// Transactions change marks before positions, so that two of them cannot lock
// each other out.

// BeginSession implements [store.Marks].
func (t *Tables) BeginSession(ctx context.Context, s store.Session) (store.Mark, error) {
	if s.Epoch > math.MaxInt64 {
		return store.Mark{}, store.ErrRange
	}
	if err := checkTexts(s.Identity, s.Address, s.Workspace); err != nil {
		return store.Mark{}, err
	}
	epoch, now := int64(s.Epoch), t.now()
	var begun bool
	var clean, ended *int64
	err := t.db.Transact(ctx, "begin a session", func(w Writer) (err error) {
		clean, ended = nil, nil
		begun, err = one(w, beginSession, []any{s.Identity, s.Address, s.Workspace, epoch, now}, &clean, &ended)
		if err != nil || !begun {
			return err
		}
		_, err = w.Exec(fencePosition, s.Identity, s.Address, epoch, now)
		return err
	})
	if err != nil {
		return store.Mark{}, err
	}
	if !begun {
		return store.Mark{}, store.ErrFenced
	}
	return markOf(clean, ended), nil
}

func markOf(clean, ended *int64) store.Mark {
	if clean == nil || ended == nil {
		return store.Mark{}
	}
	return store.Mark{Clean: true, Position: uint64(*clean), At: time.UnixMilli(*ended)}
}

// CommitClean implements [store.Marks].
func (t *Tables) CommitClean(ctx context.Context, commits []store.Commit) error {
	rounds, err := roundsOf(commits)
	if err != nil {
		return err
	}
	for _, round := range rounds {
		for _, batch := range batches(t, round) {
			c, now := columnsOf(batch), t.now()
			err := t.db.Transact(ctx, "commit final positions", func(w Writer) error {
				for _, b := range []*Bulk{markClean, commitFinal} {
					if _, err := w.Bulk(b, len(batch), nil, c.identities, c.addresses, c.positions, c.epochs, now); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// TouchSessions implements [store.Marks].
func (t *Tables) TouchSessions(ctx context.Context, sessions []store.Session) error {
	for i := range sessions {
		if sessions[i].Epoch > math.MaxInt64 {
			return store.ErrRange
		}
		if err := checkTexts(sessions[i].Identity, sessions[i].Address); err != nil {
			return err
		}
	}
	sorted := slices.Clone(sessions)
	slices.SortFunc(sorted, func(a, b store.Session) int {
		return cmp.Or(strings.Compare(a.Identity, b.Identity), strings.Compare(a.Address, b.Address))
	})
	for _, batch := range batches(t, sorted) {
		n, now := len(batch), t.now()
		identities, addresses, epochs := make([]string, n), make([]string, n), make([]int64, n)
		for i, s := range batch {
			identities[i], addresses[i], epochs[i] = s.Identity, s.Address, int64(s.Epoch)
		}
		err := t.db.Transact(ctx, "touch sessions", func(w Writer) error {
			for _, b := range []*Bulk{touchMarks, touchPositions} {
				if _, err := w.Bulk(b, n, nil, identities, addresses, epochs, now); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Mark implements [store.Marks].
func (t *Tables) Mark(ctx context.Context, identity, address string) (store.Mark, error) {
	if err := checkTexts(identity, address); err != nil {
		return store.Mark{}, err
	}
	var clean, ended *int64
	err := t.db.Read(ctx, "read a mark", func(r Reader) error {
		clean, ended = nil, nil
		_, err := one(r, selectMark, []any{identity, address}, &clean, &ended)
		return err
	})
	if err != nil {
		return store.Mark{}, err
	}
	return markOf(clean, ended), nil
}

// ExpireMarks implements [store.Marks].
func (t *Tables) ExpireMarks(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire marks", expireMarks, before)
}

// CountMarks implements [store.Marks].
func (t *Tables) CountMarks(ctx context.Context) (map[string]int64, error) {
	return t.counts(ctx, "count marks", countMarks)
}
