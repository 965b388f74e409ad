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

var _ store.Notes = (*Tables)(nil)

const (
	selectNote  = `select position from notes where address = $1`
	countNotes  = `select workspace, count(*) from notes group by workspace`
	expireNotes = `delete from notes where written_at < $1 and address in
		(select address from notes where written_at < $1 limit $2)`

	insertNote = `insert into notes (address, position, workspace, written_at) `
	// lowerNote is the minimum of delivery rule C3. The time is written even
	// if the position stays.
	lowerNote = ` on conflict (address) do update set
			position = case when excluded.position < notes.position then excluded.position else notes.position end,
			written_at = excluded.written_at
		returning address, position`
)

// What PostgreSQL changes by other conditions than a conflict, it locks in the
// order of the addresses first, so that two calls cannot lock each other out. A
// row that it had to wait for is looked at once more.
var (
	noteAbsence = &Bulk{
		Row: insertNote + `values ($1, $2, $3, $4)` + lowerNote,
		Rows: insertNote + `select c.a, c.p, c.w, $4::bigint
			from unnest($1::text[], $2::bigint[], $3::text[]) as c (a, p, w)` + lowerNote,
	}
	raiseNotes = &Bulk{
		Row: `update notes set position = $3, written_at = $4 where address = $1 and position = $2`,
		Rows: `with c as (
				select n.address, r.f, r.t
				from notes n join unnest($1::text[], $2::bigint[], $3::bigint[]) as r (a, f, t)
					on n.address = r.a and n.position = r.f
				order by n.address for update of n)
			update notes set position = c.t, written_at = $4
			from c where notes.address = c.address and notes.position = c.f`,
	}
	deleteNotes = &Bulk{
		Row: `delete from notes where address = $1 and position = $2`,
		Rows: `with c as (
				select n.address, n.position
				from notes n join unnest($1::text[], $2::bigint[]) as r (a, p) on n.address = r.a and n.position = r.p
				order by n.address for update of n)
			delete from notes using c where notes.address = c.address and notes.position = c.position`,
	}
)

// NoteAbsence implements [store.Notes].
func (t *Tables) NoteAbsence(ctx context.Context, notes []store.Note) ([]uint64, error) {
	if err := checkNotes(notes); err != nil {
		return nil, err
	}
	// The lowest of each address, in their order.
	sorted := slices.Clone(notes)
	slices.SortStableFunc(sorted, func(a, b store.Note) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Position, b.Position))
	})
	sorted = slices.CompactFunc(sorted, func(a, b store.Note) bool { return a.Address == b.Address })

	stored := make(map[string]uint64, len(sorted))
	for _, batch := range batches(t, sorted) {
		addresses, positions, workspaces := columnsOfNotes(batch)
		now := t.now()
		err := t.db.Write(ctx, "note an absence", func(w Writer) error {
			_, err := w.Bulk(noteAbsence, len(batch), func(scan Scan) error {
				var address string
				var position int64
				err := scan(&address, &position)
				stored[address] = uint64(position)
				return err
			}, addresses, positions, workspaces, now)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	result := make([]uint64, len(notes))
	for i, n := range notes {
		result[i] = stored[n.Address]
	}
	return result, nil
}

func checkNotes(notes []store.Note) error {
	for i := range notes {
		if notes[i].Position > math.MaxInt64 {
			return store.ErrRange
		}
		if err := checkTexts(notes[i].Address, notes[i].Workspace); err != nil {
			return err
		}
	}
	return nil
}

func columnsOfNotes(notes []store.Note) (addresses []string, positions []int64, workspaces []string) {
	n := len(notes)
	addresses, positions, workspaces = make([]string, n), make([]int64, n), make([]string, n)
	for i, note := range notes {
		addresses[i], positions[i], workspaces[i] = note.Address, int64(note.Position), note.Workspace
	}
	return addresses, positions, workspaces
}

// Note implements [store.Notes].
func (t *Tables) Note(ctx context.Context, address string) (uint64, bool, error) {
	if err := checkTexts(address); err != nil {
		return 0, false, err
	}
	var position int64
	var found bool
	err := t.db.Read(ctx, "read a note", func(r Reader) (err error) {
		found, err = one(r, selectNote, []any{address}, &position)
		return err
	})
	if err != nil || !found {
		return 0, false, err
	}
	return uint64(position), true, nil
}

// RaiseNotes implements [store.Notes].
func (t *Tables) RaiseNotes(ctx context.Context, raises []store.Raise) (int64, error) {
	sorted := make([]store.Raise, 0, len(raises))
	for _, r := range raises {
		if r.From > math.MaxInt64 || r.To > math.MaxInt64 {
			return 0, store.ErrRange
		}
		if err := checkTexts(r.Address); err != nil {
			return 0, err
		}
		if r.From < r.To {
			sorted = append(sorted, r)
		}
	}
	// The same note twice: the lower target is the safe one. The highest
	// origin comes first, so that nothing is moved twice.
	slices.SortFunc(sorted, func(a, b store.Raise) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(b.From, a.From), cmp.Compare(a.To, b.To))
	})
	sorted = slices.CompactFunc(sorted, func(a, b store.Raise) bool { return a.Address == b.Address && a.From == b.From })
	var total int64
	for _, batch := range batches(t, sorted) {
		n := len(batch)
		addresses, from, to := make([]string, n), make([]int64, n), make([]int64, n)
		for i, r := range batch {
			addresses[i], from[i], to[i] = r.Address, int64(r.From), int64(r.To)
		}
		raised, err := t.bulk(ctx, "raise notes", raiseNotes, n, addresses, from, to, t.now())
		total += raised
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// DeleteNotes implements [store.Notes].
func (t *Tables) DeleteNotes(ctx context.Context, notes []store.Note) (int64, error) {
	if err := checkNotes(notes); err != nil {
		return 0, err
	}
	sorted := slices.Clone(notes)
	slices.SortFunc(sorted, func(a, b store.Note) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Position, b.Position))
	})
	var total int64
	for _, batch := range batches(t, sorted) {
		addresses, positions, _ := columnsOfNotes(batch)
		removed, err := t.bulk(ctx, "delete notes", deleteNotes, len(batch), addresses, positions)
		total += removed
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// ExpireNotes implements [store.Notes].
func (t *Tables) ExpireNotes(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire notes", expireNotes, before)
}

// CountNotes implements [store.Notes].
func (t *Tables) CountNotes(ctx context.Context) (map[string]int64, error) {
	return t.counts(ctx, "count notes", countNotes)
}
