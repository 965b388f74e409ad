package tables

import (
	"context"
	"math"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Workspaces = (*Tables)(nil)

const (
	selectSpaces       = `select name, era, created_at, created_by, deleted_at, change from workspaces `
	selectSpace        = selectSpaces + `where name = $1`
	selectLiveSpaces   = selectSpaces + `where deleted_at is null order by name`
	selectSpaceChanges = selectSpaces + `where change > $1 order by change limit $2`

	insertSpace = `insert into workspaces (name, era, created_at, created_by, purged, change) values ($1, 0, $2, $3, 0, $4)`
	reuseSpace  = `update workspaces set era = era + 1, created_at = $2, created_by = $3, deleted_at = null, purged = 0, change = $4
		where name = $1 and deleted_at is not null`
	deleteSpace = `update workspaces set deleted_at = $2, purged = 0, change = $3 where name = $1 and deleted_at is null`

	selectMembersIn = selectMembers + `where workspace = $1 and user_id > $2 order by user_id limit $3`

	expireSpaces = `delete from workspaces where deleted_at < $1 and purged = 1 and name in
		(select name from workspaces where deleted_at < $1 and purged = 1 limit $2)`
)

// endMembers takes all that makes users members away. The rows stay for a
// while, so that gateways see the change.
var endMembers = &Bulk{
	Row: `update members set until = 0, ruling = 0, change = $3, changed_at = $4 where user_id = $1 and workspace = $2`,
	Rows: `update members set until = 0, ruling = 0, change = c.n, changed_at = $4
		from unnest($1::text[], $3::bigint[]) as c (u, n) where members.user_id = c.u and members.workspace = $2`,
}

// workspacesCounter numbers the changes of workspaces. Taking a number is also
// what makes those who change some wait for each other.
const workspacesCounter = "workspaces"

type spaceRow struct {
	store.Workspace
	change int64
}

func readSpaces(r Reader, query string, args ...any) (all []spaceRow, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var w spaceRow
		var era, created int64
		var deleted *int64
		err := scan(&w.Name, &era, &created, &w.CreatedBy, &deleted, &w.change)
		w.Era, w.CreatedAt = uint32(min(era, math.MaxUint32)), time.UnixMilli(created)
		if deleted != nil {
			w.DeletedAt = time.UnixMilli(*deleted)
		}
		all = append(all, w)
		return err
	})
	return all, err
}

func (t *Tables) spaces(ctx context.Context, what, query string, args ...any) ([]spaceRow, error) {
	var all []spaceRow
	err := t.db.Read(ctx, what, func(r Reader) (err error) {
		all, err = readSpaces(r, query, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func workspaces(rows []spaceRow) []store.Workspace {
	var all []store.Workspace
	for _, w := range rows {
		all = append(all, w.Workspace)
	}
	return all
}

// CreateWorkspace implements [store.Workspaces].
func (t *Tables) CreateWorkspace(ctx context.Context, name, by string) (w store.Workspace, created bool, err error) {
	if err := checkTexts(name, by); err != nil {
		return store.Workspace{}, false, err
	}
	known, err := t.spaces(ctx, "read a workspace", selectSpace, name)
	switch {
	case err != nil:
		return store.Workspace{}, false, err
	case len(known) > 0 && known[0].Exists():
		return known[0].Workspace, false, nil
	case len(known) > 0:
		// Nobody else may have had the time.
		if _, err := t.purge(ctx, name); err != nil {
			return store.Workspace{}, false, err
		}
	}
	now := t.now()
	err = t.db.Transact(ctx, "create a workspace", func(wr Writer) error {
		created = false
		number, err := take(wr, workspacesCounter, 1)
		if err != nil {
			return err
		}
		rows, err := readSpaces(wr, selectSpace, name)
		if err != nil {
			return err
		}
		w = store.Workspace{Name: name, CreatedAt: time.UnixMilli(now), CreatedBy: by}
		query := insertSpace
		if len(rows) > 0 {
			if rows[0].Exists() {
				w = rows[0].Workspace
				return nil
			}
			if rest := rows[0].DeletedAt.Add(store.WorkspaceRest).Sub(time.UnixMilli(now)); rest > 0 {
				return &store.RestError{Name: name, After: rest}
			}
			w.Era, query = rows[0].Era+1, reuseSpace
		}
		changed, err := wr.Exec(query, name, now, by, number)
		created = changed > 0
		return tell(wr, changed, err, store.SubjectWorkspaces)
	})
	if err != nil {
		return store.Workspace{}, false, err
	}
	return w, created, nil
}

// DeleteWorkspace implements [store.Workspaces].
func (t *Tables) DeleteWorkspace(ctx context.Context, name string) (deleted bool, err error) {
	if err := checkTexts(name); err != nil {
		return false, err
	}
	now := t.now()
	err = t.db.Transact(ctx, "delete a workspace", func(w Writer) error {
		deleted = false
		number, err := take(w, workspacesCounter, 1)
		if err != nil {
			return err
		}
		changed, err := w.Exec(deleteSpace, name, now, number)
		if err != nil || changed == 0 {
			return err
		}
		deleted = true
		if err := endMemberships(w, name, now); err != nil {
			return err
		}
		if err := endRules(w, name); err != nil {
			return err
		}
		if err := endGrants(w, name, now); err != nil {
			return err
		}
		if err := endImplementations(w, name); err != nil {
			return err
		}
		return w.Changed(store.SubjectWorkspaces)
	})
	return deleted && err == nil, err
}

// endMemberships ends all memberships of a workspace. The counter of members is
// taken first: who learns one meanwhile waits, or has been counted.
func endMemberships(w Writer, name string, now int64) error {
	if _, err := take(w, membersCounter, 1); err != nil {
		return err
	}
	in, err := readMembers(w, selectMembersIn, name, "", int64(math.MaxInt32))
	if err != nil || len(in) == 0 {
		return err
	}
	last, err := take(w, membersCounter, len(in))
	if err != nil {
		return err
	}
	users, numbers := make([]string, len(in)), make([]int64, len(in))
	for i, m := range in {
		users[i], numbers[i] = m.User, last-int64(len(in)-1-i)
	}
	changed, err := w.Bulk(endMembers, len(in), nil, users, name, numbers, now)
	return tell(w, changed, err, store.SubjectMembers)
}

// Workspaces implements [store.Workspaces].
func (t *Tables) Workspaces(ctx context.Context) ([]store.Workspace, error) {
	all, err := t.spaces(ctx, "list workspaces", selectLiveSpaces)
	return workspaces(all), err
}

// WorkspaceChanges implements [store.Workspaces].
func (t *Tables) WorkspaceChanges(ctx context.Context, after store.Cursor, limit int) ([]store.Workspace, store.Cursor, error) {
	var last int64
	var all []spaceRow
	err := t.db.Read(ctx, "read changes of workspaces", func(r Reader) (err error) {
		last = 0 // the counter first, as for memberships
		if _, err = one(r, selectCounter, []any{workspacesCounter}, &last); err != nil {
			return err
		}
		all, err = readSpaces(r, selectSpaceChanges, int64(after), max(limit, 1))
		return err
	})
	if err != nil {
		return nil, after, err
	}
	if after < 0 || int64(after) > last {
		return nil, after, store.ErrCursor
	}
	next := after
	if n := len(all); n > 0 {
		next = store.Cursor(all[n-1].change)
	}
	return workspaces(all), next, nil
}

// ExpireWorkspaces implements [store.Workspaces].
func (t *Tables) ExpireWorkspaces(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire workspaces", expireSpaces, before)
}

// MembershipsIn implements [store.Workspaces].
func (t *Tables) MembershipsIn(ctx context.Context, workspace, after string, limit int) ([]store.Membership, error) {
	if err := checkTexts(workspace, after); err != nil {
		return nil, err
	}
	all, err := t.members(ctx, "list memberships", selectMembersIn, workspace, after, int64(max(limit, 1)))
	return memberships(all), err
}
