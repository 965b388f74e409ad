package tables

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Positions = (*Tables)(nil)

const (
	selectPosition = `select position from positions where identity = $1 and address = $2`

	selectPositions        = `select identity, address, position, epoch from positions `
	selectPositionsOf      = selectPositions + `where identity = $1 order by address`
	selectPositionsFrom    = selectPositions + `where address >= $1 order by address, identity`
	selectPositionsBetween = selectPositions + `where address >= $1 and address < $2 order by address, identity`

	expirePositions = `delete from positions where moved_at < $1 and (identity, address) in
		(select identity, address from positions where moved_at < $1 limit $2)`

	rewindPosition = `update positions set position = $3, moved_at = $5
		where identity = $1 and address = $2 and epoch <= $4 and position > $3`

	insertPosition = `insert into positions (identity, address, position, epoch, moved_at) `
	// guardPosition is delivery rule C1: an older epoch changes nothing, a
	// newer one is stored, and the position never falls.
	guardPosition = ` on conflict (identity, address) do update set
			position = case when excluded.position > positions.position then excluded.position else positions.position end,
			epoch = excluded.epoch,
			moved_at = excluded.moved_at
		where excluded.epoch > positions.epoch
			or (excluded.epoch = positions.epoch and excluded.position > positions.position)`
)

var commitPositions = &Bulk{
	Row: insertPosition + `values ($1, $2, $3, $4, $5)` + guardPosition,
	Rows: insertPosition + `select c.i, c.a, c.p, c.e, $5::bigint
		from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as c (i, a, p, e)` + guardPosition,
}

// Position implements [store.Positions].
func (t *Tables) Position(ctx context.Context, identity, address string) (uint64, bool, error) {
	if err := checkTexts(identity, address); err != nil {
		return 0, false, err
	}
	var position int64
	var found bool
	err := t.db.Read(ctx, "read a position", func(r Reader) (err error) {
		found, err = one(r, selectPosition, []any{identity, address}, &position)
		return err
	})
	if err != nil || !found {
		return 0, false, err
	}
	return uint64(position), true, nil
}

// PositionsOf implements [store.Positions].
func (t *Tables) PositionsOf(ctx context.Context, identity string) ([]store.Position, error) {
	if err := checkTexts(identity); err != nil {
		return nil, err
	}
	return t.positions(ctx, selectPositionsOf, identity)
}

// PositionsUnder implements [store.Positions].
func (t *Tables) PositionsUnder(ctx context.Context, prefix string) ([]store.Position, error) {
	if err := checkTexts(prefix); err != nil {
		return nil, err
	}
	if end, ok := behind(prefix); ok {
		return t.positions(ctx, selectPositionsBetween, prefix, end)
	}
	return t.positions(ctx, selectPositionsFrom, prefix)
}

func (t *Tables) positions(ctx context.Context, query string, args ...any) ([]store.Position, error) {
	var all []store.Position
	err := t.db.Read(ctx, "list positions", func(r Reader) error {
		all = nil
		return r.Query(query, args, func(scan Scan) error {
			var p store.Position
			var position, epoch int64
			err := scan(&p.Identity, &p.Address, &position, &epoch)
			p.Position, p.Epoch = uint64(position), uint64(epoch)
			all = append(all, p)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Commit implements [store.Positions]. A call is one statement, unless a key
// comes under several epochs or the engine takes it in batches.
func (t *Tables) Commit(ctx context.Context, commits []store.Commit) error {
	rounds, err := roundsOf(commits)
	if err != nil {
		return err
	}
	for _, round := range rounds {
		for _, batch := range batches(t, round) {
			if err := t.db.Write(ctx, "commit positions", t.commit(batch)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tables) commit(batch []store.Commit) func(Writer) error {
	c, now := columnsOf(batch), t.now()
	return func(w Writer) error {
		_, err := w.Bulk(commitPositions, len(batch), nil, c.identities, c.addresses, c.positions, c.epochs, now)
		return err
	}
}

// columns are commits as [Bulk] takes them.
type columns struct {
	identities, addresses []string
	positions, epochs     []int64
}

func columnsOf(commits []store.Commit) columns {
	n := len(commits)
	c := columns{make([]string, n), make([]string, n), make([]int64, n), make([]int64, n)}
	for i, commit := range commits {
		c.identities[i], c.addresses[i] = commit.Identity, commit.Address
		c.positions[i], c.epochs[i] = int64(commit.Position), int64(commit.Epoch)
	}
	return c
}

// RewindPositions implements [store.Positions]. It is rare, and a statement for
// each row.
func (t *Tables) RewindPositions(ctx context.Context, to []store.Commit) error {
	rounds, err := roundsOf(to)
	if err != nil {
		return err
	}
	now := t.now()
	return t.db.Transact(ctx, "rewind positions", func(w Writer) error {
		for _, round := range rounds {
			for _, c := range round {
				if _, err := w.Exec(rewindPosition, c.Identity, c.Address, int64(c.Position), int64(c.Epoch), now); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ExpirePositions implements [store.Positions].
func (t *Tables) ExpirePositions(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire positions", expirePositions, before)
}
