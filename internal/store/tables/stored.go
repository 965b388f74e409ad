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

var _ store.Stored = (*Tables)(nil)

const (
	selectStoredUpto = `select width, position from stored_upto where part = $1`
	// selectStored is one statement, so that the rows are those of the position.
	selectStored = `select u.width, u.position, s.slot, s.workspace, s.bytes, s.first_offset, s.last_offset
		from stored_upto u left join stored s on s.part = u.part where u.part = $1`
	// advanceStored takes the lock that orders the savers of a partition.
	advanceStored = `insert into stored_upto (part, width, position, saved_at) values ($1, $2, $3, $4)
		on conflict (part) do update set width = excluded.width, position = excluded.position, saved_at = excluded.saved_at
		where stored_upto.position < excluded.position and stored_upto.saved_at <= $5`
	deleteOldSlots   = `delete from stored where part = $1 and slot < $2`
	deleteStored     = `delete from stored where part = $1`
	deleteStoredUpto = `delete from stored_upto where part = $1`
	insertStored     = `insert into stored (part, slot, workspace, bytes, first_offset, last_offset) `
	replaceStored    = ` on conflict (part, slot, workspace) do update set
			bytes = excluded.bytes, first_offset = excluded.first_offset, last_offset = excluded.last_offset`
)

var saveStored = &Bulk{
	Row: insertStored + `values ($1, $2, $3, $4, $5, $6)` + replaceStored,
	Rows: insertStored + `select $1::bigint, c.s, c.w, c.b, c.f, c.l
		from unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) as c (s, w, b, f, l)` + replaceStored,
}

// LoadStored implements [store.Stored].
func (t *Tables) LoadStored(ctx context.Context, partition int) (store.StoredUsage, bool, error) {
	var u store.StoredUsage
	var found bool
	err := t.db.Read(ctx, "load what is stored", func(r Reader) error {
		u, found = store.StoredUsage{}, false
		return r.Query(selectStored, []any{partition}, func(scan Scan) error {
			var width, position int64
			var slot, bytes, first, last *int64
			var workspace *string
			if err := scan(&width, &position, &slot, &workspace, &bytes, &first, &last); err != nil {
				return err
			}
			found = true
			u.Width, u.Position = time.Duration(width)*time.Millisecond, uint64(position)
			if slot != nil && workspace != nil && bytes != nil && first != nil && last != nil {
				u.Rows = append(u.Rows, store.StoredBytes{Slot: *slot, Workspace: *workspace, Bytes: *bytes, First: uint64(*first), Last: uint64(*last)})
			}
			return nil
		})
	})
	if err != nil {
		return store.StoredUsage{}, false, err
	}
	return u, found, nil
}

// SaveStored implements [store.Stored].
func (t *Tables) SaveStored(ctx context.Context, partition int, u store.StoredUsage, oldest int64, notSince time.Time) (bool, error) {
	if u.Position > math.MaxInt64 {
		return false, store.ErrRange
	}
	n := len(u.Rows)
	slots, workspaces := make([]int64, n), make([]string, n)
	bytes, first, last := make([]int64, n), make([]int64, n), make([]int64, n)
	sorted := slices.Clone(u.Rows)
	slices.SortFunc(sorted, func(a, b store.StoredBytes) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), strings.Compare(a.Workspace, b.Workspace))
	})
	for i, r := range sorted {
		if r.First > math.MaxInt64 || r.Last > math.MaxInt64 {
			return false, store.ErrRange
		}
		if err := checkTexts(r.Workspace); err != nil {
			return false, err
		}
		slots[i], workspaces[i], bytes[i], first[i], last[i] = r.Slot, r.Workspace, r.Bytes, int64(r.First), int64(r.Last)
	}
	now, width := t.now(), u.Width.Milliseconds()
	var saved bool
	err := t.db.Transact(ctx, "save what is stored", func(w Writer) error {
		saved = false
		var was, position int64
		known, err := one(w, selectStoredUpto, []any{partition}, &was, &position)
		if err != nil {
			return err
		}
		changed, err := w.Exec(advanceStored, partition, width, int64(u.Position), now, notSince.UnixMilli())
		if err != nil || changed == 0 {
			return err
		}
		saved = true
		if known && was != width {
			_, err = w.Exec(deleteStored, partition)
		} else {
			_, err = w.Exec(deleteOldSlots, partition, oldest)
		}
		if err != nil || n == 0 {
			return err
		}
		_, err = w.Bulk(saveStored, n, nil, partition, slots, workspaces, bytes, first, last)
		return err
	})
	if err != nil {
		return false, err
	}
	return saved, nil
}

// ResetStored implements [store.Stored].
func (t *Tables) ResetStored(ctx context.Context, partition int) error {
	return t.db.Transact(ctx, "reset what is stored", func(w Writer) error {
		for _, query := range []string{deleteStored, deleteStoredUpto} {
			if _, err := w.Exec(query, partition); err != nil {
				return err
			}
		}
		return nil
	})
}
