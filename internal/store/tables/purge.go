package tables

import (
	"context"

	"github.com/aether-gateway/gateway/internal/store"
)

const (
	selectUnpurged = `select name from workspaces where deleted_at is not null and purged = 0 order by name`

	// What is removed belongs to a workspace that is still deleted.
	stillDeleted    = ` and exists (select 1 from workspaces where name = $4 and deleted_at is not null)`
	purgedPositions = `delete from positions where address >= $1 and address < $2 and (identity, address) in
		(select identity, address from positions where address >= $1 and address < $2 limit $3)` + stillDeleted
	purgedNotes = `delete from notes where address >= $1 and address < $2 and address in
		(select address from notes where address >= $1 and address < $2 limit $3)` + stillDeleted
	purgedMarks = `delete from marks where identity >= $1 and identity < $2 and (identity, address) in
		(select identity, address from marks where identity >= $1 and identity < $2 limit $3)` + stillDeleted

	setPurged = `update workspaces set purged = 1 where name = $1 and deleted_at <= $2`
)

// rowRange is the texts from one on and below another.
type rowRange struct{ from, below string }

// rangesOf returns the addresses of a workspace that have mailboxes. A name
// cannot begin with a colon, so that those of "w" are not those of "w:x".
func rangesOf(workspace string) []rowRange {
	var all []rowRange
	for _, prefix := range []string{"ag", "ta", "tu"} {
		from := prefix + "::" + workspace + "::"
		if below, ok := behind(from); ok {
			all = append(all, rowRange{from, below})
		}
	}
	event := "event::" + workspace
	return append(all, rowRange{event, event + "\x01"}) // no name has a control character
}

// PurgeWorkspaces implements [store.Workspaces].
func (t *Tables) PurgeWorkspaces(ctx context.Context) (int64, error) {
	var names []string
	err := t.db.Read(ctx, "list deleted workspaces", func(r Reader) error {
		names = nil
		return r.Query(selectUnpurged, nil, func(scan Scan) error {
			var name string
			err := scan(&name)
			names = append(names, name)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	var total int64
	for _, name := range names {
		n, err := t.purge(ctx, name)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// purge removes what is kept of a deleted workspace. It is done when its name
// had rested before.
func (t *Tables) purge(ctx context.Context, name string) (total int64, err error) {
	rested := t.o.Now().Add(-store.WorkspaceRest).UnixMilli()
	for _, r := range rangesOf(name) {
		for _, query := range []string{purgedPositions, purgedNotes, purgedMarks} {
			n, err := t.purgeRange(ctx, query, r, name)
			total += n
			if err != nil {
				return total, err
			}
		}
	}
	n, err := t.purgeTasks(ctx, name)
	total += n
	if err != nil {
		return total, err
	}
	n, _, err = t.removeAllKV(ctx, "purge a workspace", purgeKVWorkspace, name)
	if total += n; err != nil {
		return total, err
	}
	err = t.db.Write(ctx, "purge a workspace", func(w Writer) error {
		_, err := w.Exec(setPurged, name, rested)
		return err
	})
	return total, err
}

func (t *Tables) purgeRange(ctx context.Context, query string, r rowRange, name string) (int64, error) {
	for total := int64(0); ; {
		var removed int64
		err := t.db.Write(ctx, "purge a workspace", func(w Writer) (err error) {
			removed, err = w.Exec(query, r.from, r.below, expireBatch, name)
			return err
		})
		if err != nil {
			return total, err
		}
		total += removed
		if removed < expireBatch {
			return total, nil
		}
	}
}
