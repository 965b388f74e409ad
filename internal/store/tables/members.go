package tables

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Members = (*Tables)(nil)

const (
	// nextNumbers takes numbers from a counter and returns the last. The row's
	// lock makes all who take some wait until this transaction has become
	// visible; without it a reader could see a number and miss a lower one
	// that comes later.
	nextNumbers = `insert into counters (name, value) values ($1, $2)
		on conflict (name) do update set value = counters.value + excluded.value returning value`
	selectCounter = `select value from counters where name = $1`

	selectMembers   = `select user_id, workspace, until, ruling, change from members `
	selectMembersOf = selectMembers + `where user_id = $1 order by workspace`
	selectRuled     = selectMembers + `where ruling = $1 order by workspace, user_id`
	selectDeleted   = `select 1 from workspaces where name = $1 and deleted_at is not null`
	selectChanges   = selectMembers + `where change > $1 order by change limit $2`

	insertMember = `insert into members (user_id, workspace, until, ruling, change, changed_at) `
	laterMember  = ` on conflict (user_id, workspace) do update set
			until = excluded.until, change = excluded.change, changed_at = excluded.changed_at
		where excluded.until > members.until`
	ruleMember = insertMember + `values ($1, $2, 0, $3, $4, $5)
		on conflict (user_id, workspace) do update set
			ruling = excluded.ruling, change = excluded.change, changed_at = excluded.changed_at
		where excluded.ruling <> members.ruling`

	expireMembers = `delete from members where until < $1 and changed_at < $1 and ruling = 0 and (user_id, workspace) in
		(select user_id, workspace from members where until < $1 and changed_at < $1 and ruling = 0 limit $2)`
)

var learnMembers = &Bulk{
	Row: insertMember + `values ($1, $2, $3, 0, $4, $5)` + laterMember,
	Rows: insertMember + `select $1::text, c.w, $3::bigint, 0, c.n, $5::bigint
		from unnest($2::text[], $4::bigint[]) as c (w, n)` + laterMember,
}

// membersCounter numbers the changes of members.
const membersCounter = "members"

// LearnMembership implements [store.Members].
func (t *Tables) LearnMembership(ctx context.Context, user string, workspaces []string, until time.Time) error {
	if err := checkTexts(append([]string{user}, workspaces...)...); err != nil {
		return err
	}
	expires := until.UnixMilli()
	if expires <= 0 || len(workspaces) == 0 {
		return nil
	}
	known, err := t.members(ctx, "read memberships", selectMembersOf, user)
	if err != nil {
		return err
	}
	news := slices.Clone(workspaces)
	slices.Sort(news)
	news = slices.DeleteFunc(slices.Compact(news), func(ws string) bool {
		return slices.ContainsFunc(known, func(m member) bool { return m.Workspace == ws && m.until >= expires })
	})
	for _, batch := range batches(t, news) {
		numbers, now := make([]int64, len(batch)), t.now()
		err := t.db.Transact(ctx, "learn memberships", func(w Writer) error {
			last, err := take(w, membersCounter, len(batch))
			if err != nil {
				return err
			}
			for i := range numbers {
				numbers[i] = last - int64(len(batch)-1-i)
			}
			changed, err := w.Bulk(learnMembers, len(batch), nil, user, batch, expires, numbers, now)
			return tell(w, changed, err, store.SubjectMembers)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// take takes n numbers from a counter and returns the last.
func take(w Writer, counter string, n int) (last int64, err error) {
	_, err = one(w, nextNumbers, []any{counter, int64(n)}, &last)
	return last, err
}

// RuleMembership implements [store.Members].
func (t *Tables) RuleMembership(ctx context.Context, user, workspace string, r store.Ruling) error {
	if r < store.Unruled || r > store.RuledOut {
		return store.ErrRuling
	}
	if err := checkTexts(user, workspace); err != nil {
		return err
	}
	now := t.now()
	return t.db.Transact(ctx, "rule a membership", func(w Writer) error {
		number, err := take(w, membersCounter, 1)
		if err != nil {
			return err
		}
		// Whoever deletes the workspace has taken a number before, or will find
		// this ruling: it must not be there when the name is used again.
		var found int64
		if gone, err := one(w, selectDeleted, []any{workspace}, &found); err != nil || gone {
			return cmp.Or(err, store.ErrNotFound)
		}
		changed, err := w.Exec(ruleMember, user, workspace, int64(r), number, now)
		return tell(w, changed, err, store.SubjectMembers)
	})
}

// MembershipsOf implements [store.Members].
func (t *Tables) MembershipsOf(ctx context.Context, user string) ([]store.Membership, error) {
	if err := checkTexts(user); err != nil {
		return nil, err
	}
	all, err := t.members(ctx, "read memberships", selectMembersOf, user)
	return memberships(all), err
}

// Ruled implements [store.Members].
func (t *Tables) Ruled(ctx context.Context, r store.Ruling) ([]store.Membership, error) {
	if r < store.Unruled || r > store.RuledOut {
		return nil, store.ErrRuling
	}
	all, err := t.members(ctx, "list rulings", selectRuled, int64(r))
	return memberships(all), err
}

// member is a row.
type member struct {
	store.Membership
	until, change int64
}

func memberships(rows []member) []store.Membership {
	var all []store.Membership
	for _, m := range rows {
		all = append(all, m.Membership)
	}
	return all
}

func (t *Tables) members(ctx context.Context, what, query string, args ...any) ([]member, error) {
	var all []member
	err := t.db.Read(ctx, what, func(r Reader) (err error) {
		all, err = readMembers(r, query, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func readMembers(r Reader, query string, args ...any) (all []member, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var m member
		var ruling int64
		err := scan(&m.User, &m.Workspace, &m.until, &ruling, &m.change)
		m.Ruling = store.Ruling(ruling)
		if m.until > 0 {
			m.Until = time.UnixMilli(m.until)
		}
		all = append(all, m)
		return err
	})
	return all, err
}

// MembershipChanges implements [store.Members].
func (t *Tables) MembershipChanges(ctx context.Context, after store.Cursor, limit int) ([]store.Membership, store.Cursor, error) {
	var last int64
	var all []member
	err := t.db.Read(ctx, "read changes of memberships", func(r Reader) (err error) {
		// The counter first: what it has counted by now, the list shows.
		last = 0
		if _, err = one(r, selectCounter, []any{membersCounter}, &last); err != nil {
			return err
		}
		all, err = readMembers(r, selectChanges, int64(after), max(limit, 1))
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
	return memberships(all), next, nil
}

// ExpireMemberships implements [store.Members].
func (t *Tables) ExpireMemberships(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire memberships", expireMembers, before)
}
