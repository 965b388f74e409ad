package tables

import (
	"context"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Grants = (*Tables)(nil)

const (
	grantColumns = `id, root_id, parent_id, depth, subject_type, subject_id, delegate_type, delegate_id, issued_by,
		audience_type, audience_id, workspaces, terms, created_at, expires_at, renewable_until, renewed_at, revoked_at, revoked_by, revoke_reason, change`
	selectGrants       = `select ` + grantColumns + ` from grants `
	selectGrant        = selectGrants + `where id = $1`
	selectGrantChanges = selectGrants + `where change > $1 order by change limit $2`

	countGrants     = `select count(*) from grants`
	countGrantsOf   = `select count(*) from grants where subject_type = $1 and subject_id = $2`
	forgetGrantsOf  = `delete from grants where subject_type = $1 and subject_id = $2 and (expires_at < $3 or revoked_at > 0 and revoked_at < $3)`
	selectLiveGrant = `select 1 from grants where id = $1 and revoked_at = 0 and expires_at > $2`

	insertGrant = `insert into grants (` + grantColumns + `)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0, 0, '', '', $17) on conflict (id) do nothing`
	renewGrant = `update grants set expires_at = $2, renewed_at = $3, change = $4
		where id = $1 and revoked_at = 0 and expires_at > $3 and expires_at < $2 and renewable_until >= $2
		and (parent_id = '' or exists (select 1 from grants p where p.id = grants.parent_id and p.revoked_at = 0 and p.expires_at >= $2))`

	// The grants of a condition that are not revoked, and all that derive from
	// any of the condition's.
	grantsBelow = `with recursive down (id) as (
			select id from grants where `
	grantsBelowEnd = `
			union select g.id from grants g join down d on g.parent_id = d.id)
		select g.id from grants g join down on down.id = g.id where g.revoked_at = 0 order by g.depth, g.id`
	grantsUnder      = grantsBelow + `id = $1` + grantsBelowEnd
	grantsOfAudience = grantsBelow + `audience_type = $1 and audience_id = $2` + grantsBelowEnd
	grantsNaming     = grantsBelow + `replace(workspaces, $1, '') <> workspaces` + grantsBelowEnd

	liveGrantsOfAudience = `select id from grants where audience_type = $1 and audience_id = $2 and revoked_at = 0 and expires_at > $3 order by id`

	goneGrants   = `(expires_at < $1 or revoked_at > 0 and revoked_at < $1)`
	expireGrants = `delete from grants where ` + goneGrants + ` and id in (select id from grants where ` + goneGrants + ` limit $2)`
)

var revokeGrants = &Bulk{
	Row: `update grants set revoked_at = $3, revoked_by = $4, revoke_reason = $5, change = $2 where id = $1 and revoked_at = 0`,
	Rows: `update grants set revoked_at = $3, revoked_by = $4, revoke_reason = $5, change = c.n
		from unnest($1::text[], $2::bigint[]) as c (i, n) where grants.id = c.i and grants.revoked_at = 0`,
}

var delegateGrants = &Bulk{
	Row: `update grants set delegate_type = $3, delegate_id = $4, change = $2 where id = $1 and revoked_at = 0`,
	Rows: `update grants set delegate_type = $3, delegate_id = $4, change = c.n
		from unnest($1::text[], $2::bigint[]) as c (i, n) where grants.id = c.i and grants.revoked_at = 0`,
}

// grantsCounter numbers the changes of grants. Taking a number is also what makes
// those who change some wait for each other: who derives a grant sees whether
// its parent was revoked, and who revokes one sees all that derive from it.
const grantsCounter = "grants"

// names is how workspaces stand in a row. No name has a line feed.
func names(workspaces []string) string {
	if len(workspaces) == 0 {
		return ""
	}
	return "\n" + strings.Join(workspaces, "\n") + "\n"
}

func namesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.Trim(text, "\n"), "\n")
}

func checkGrant(g *store.Grant) error {
	for _, ws := range g.Workspaces {
		if ws == "" || strings.Contains(ws, "\n") {
			return store.ErrText
		}
	}
	return checkTexts(g.ID, g.RootID, g.ParentID, g.SubjectType, g.SubjectID, g.DelegateType, g.DelegateID, g.IssuedBy,
		g.AudienceType, g.AudienceID, names(g.Workspaces), g.Terms)
}

// AddGrants implements [store.Grants].
func (t *Tables) AddGrants(ctx context.Context, list []store.Grant, limit int) error {
	for i := range list {
		if err := checkGrant(&list[i]); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return nil
	}
	now := t.now()
	return t.db.Transact(ctx, "add grants", func(w Writer) error {
		// The numbers first: who has them is alone, so that counts and parents
		// hold.
		last, err := take(w, grantsCounter, len(list))
		if err != nil {
			return err
		}
		first, total := last-int64(len(list))+1, int64(0)
		for i := range list {
			changed, err := addGrant(w, &list[i], now, first+int64(i))
			if err != nil {
				return err
			}
			total += changed
		}
		if err := grantsFit(w, list, int64(limit), now); err != nil {
			return err
		}
		return tell(w, total, nil, store.SubjectGrants)
	})
}

func addGrant(w Writer, g *store.Grant, now, number int64) (int64, error) {
	if g.ParentID != "" {
		var found int64
		if there, err := one(w, selectLiveGrant, []any{g.ParentID, now}, &found); err != nil {
			return 0, err
		} else if !there {
			return 0, store.ErrNotFound
		}
	}
	return w.Exec(insertGrant, g.ID, g.RootID, g.ParentID, int64(g.Depth), g.SubjectType, g.SubjectID, g.DelegateType, g.DelegateID, g.IssuedBy,
		g.AudienceType, g.AudienceID, names(g.Workspaces), g.Terms, now, millis(g.ExpiresAt), millis(g.RenewableUntil), number)
}

// grantsFit returns [store.ErrFull] if there are too many grants with those that
// were added.
func grantsFit(w Writer, list []store.Grant, limit, now int64) error {
	if err := room(w, countGrants, store.MaxGrants+1); err != nil {
		return err
	}
	seen := map[[2]string]bool{}
	for i := range list {
		of := [2]string{list[i].SubjectType, list[i].SubjectID}
		if seen[of] {
			continue
		}
		seen[of] = true
		var n int64
		if _, err := one(w, countGrantsOf, []any{of[0], of[1]}, &n); err != nil {
			return err
		}
		if n <= limit {
			continue
		}
		gone, err := w.Exec(forgetGrantsOf, of[0], of[1], now-store.GrantRest.Milliseconds())
		if err != nil {
			return err
		}
		if n-gone > limit {
			return store.ErrFull
		}
	}
	return nil
}

// Grant implements [store.Grants].
func (t *Tables) Grant(ctx context.Context, id string) (g store.Grant, ok bool, err error) {
	if err := checkTexts(id); err != nil {
		return g, false, err
	}
	var all []store.Grant
	err = t.db.Read(ctx, "read a grant", func(r Reader) (err error) {
		all, _, err = readGrants(r, selectGrant, id)
		return err
	})
	if err != nil || len(all) == 0 {
		return g, false, err
	}
	return all[0], true, nil
}

func readGrants(r Reader, query string, args ...any) (all []store.Grant, last int64, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var g store.Grant
		var depth, created, expires, renewable, renewed, revoked int64
		var workspaces string
		err := scan(&g.ID, &g.RootID, &g.ParentID, &depth, &g.SubjectType, &g.SubjectID, &g.DelegateType, &g.DelegateID, &g.IssuedBy,
			&g.AudienceType, &g.AudienceID, &workspaces, &g.Terms, &created, &expires, &renewable, &renewed, &revoked, &g.RevokedBy, &g.RevokeReason, &last)
		g.Depth, g.Workspaces = int32(depth), namesOf(workspaces)
		g.CreatedAt, g.ExpiresAt, g.RenewableUntil = timeOf(created), timeOf(expires), timeOf(renewable)
		g.RenewedAt, g.RevokedAt = timeOf(renewed), timeOf(revoked)
		all = append(all, g)
		return err
	})
	return all, last, err
}

// RenewGrant implements [store.Grants].
func (t *Tables) RenewGrant(ctx context.Context, id string, until time.Time) (g store.Grant, done bool, err error) {
	if err := checkTexts(id); err != nil {
		return g, false, err
	}
	now := t.now()
	err = t.db.Transact(ctx, "renew a grant", func(w Writer) error {
		done = false
		number, err := take(w, grantsCounter, 1)
		if err != nil {
			return err
		}
		changed, err := w.Exec(renewGrant, id, until.UnixMilli(), now, number)
		if err != nil || changed == 0 {
			return err
		}
		all, _, err := readGrants(w, selectGrant, id)
		if err != nil || len(all) == 0 {
			return err
		}
		g, done = all[0], true
		return w.Changed(store.SubjectGrants)
	})
	return g, done && err == nil, err
}

// RevokeGrants implements [store.Grants].
func (t *Tables) RevokeGrants(ctx context.Context, ids []string, by, reason string) (int, error) {
	if err := checkTexts(append([]string{by, reason}, ids...)...); err != nil {
		return 0, err
	}
	return t.revokeGrants(ctx, by, reason, func(w Writer) (all []string, err error) {
		for _, id := range ids {
			under, err := grantIDs(w, grantsUnder, id)
			if err != nil {
				return nil, err
			}
			all = append(all, under...)
		}
		return all, nil
	})
}

// RevokeGrantsOf implements [store.Grants].
func (t *Tables) RevokeGrantsOf(ctx context.Context, audienceType, audienceID, by, reason string) (int, error) {
	if err := checkTexts(audienceType, audienceID, by, reason); err != nil {
		return 0, err
	}
	return t.revokeGrants(ctx, by, reason, func(w Writer) ([]string, error) {
		return grantIDs(w, grantsOfAudience, audienceType, audienceID)
	})
}

// revokeGrants revokes those that find names, under the counter's lock.
func (t *Tables) revokeGrants(ctx context.Context, by, reason string, find func(Writer) ([]string, error)) (n int, err error) {
	now := t.now()
	err = t.db.Transact(ctx, "revoke grants", func(w Writer) (err error) {
		n = 0
		if _, err = take(w, grantsCounter, 1); err != nil {
			return err
		}
		ids, err := find(w)
		if err != nil {
			return err
		}
		n, err = changeGrants(w, revokeGrants, ids, now, by, reason)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func grantIDs(r Reader, query string, args ...any) (all []string, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var id string
		err := scan(&id)
		all = append(all, id)
		return err
	})
	return all, err
}

// changeGrants runs a statement for grants, of which the same one twice changes
// once, and gives each change a number.
func changeGrants(w Writer, b *Bulk, ids []string, args ...any) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	last, err := take(w, grantsCounter, len(ids))
	if err != nil {
		return 0, err
	}
	numbers, seen, unique := make([]int64, 0, len(ids)), map[string]bool{}, ids[:0:0]
	for i, id := range ids {
		if !seen[id] {
			seen[id] = true
			unique, numbers = append(unique, id), append(numbers, last-int64(len(ids)-1-i))
		}
	}
	changed, err := w.Bulk(b, len(unique), nil, append([]any{unique, numbers}, args...)...)
	return int(changed), tell(w, changed, err, store.SubjectGrants)
}

// DelegateGrants implements [store.Grants].
func (t *Tables) DelegateGrants(ctx context.Context, audienceType, audienceID, delegateType, delegateID string) (n int, err error) {
	if err := checkTexts(audienceType, audienceID, delegateType, delegateID); err != nil {
		return 0, err
	}
	now := t.now()
	err = t.db.Transact(ctx, "give grants to another delegate", func(w Writer) (err error) {
		n = 0
		if _, err = take(w, grantsCounter, 1); err != nil {
			return err
		}
		ids, err := grantIDs(w, liveGrantsOfAudience, audienceType, audienceID, now)
		if err != nil {
			return err
		}
		n, err = changeGrants(w, delegateGrants, ids, delegateType, delegateID)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// endGrants ends all grants that name a workspace: what they allowed must not be
// allowed in another one of its name.
func endGrants(w Writer, workspace string, now int64) error {
	if _, err := take(w, grantsCounter, 1); err != nil {
		return err
	}
	ids, err := grantIDs(w, grantsNaming, names([]string{workspace}))
	if err != nil {
		return err
	}
	_, err = changeGrants(w, revokeGrants, ids, now, "", "the workspace was deleted")
	return err
}

// GrantChanges implements [store.Grants].
func (t *Tables) GrantChanges(ctx context.Context, after store.Cursor, limit int) (all []store.Grant, next store.Cursor, err error) {
	next, err = t.changes(ctx, "read changes of grants", grantsCounter, after, func(r Reader) (n int, last int64, err error) {
		all, last, err = readGrants(r, selectGrantChanges, int64(after), max(limit, 1))
		return len(all), last, err
	})
	if err != nil {
		return nil, after, err
	}
	return all, next, nil
}

// ExpireGrants implements [store.Grants].
func (t *Tables) ExpireGrants(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire grants", expireGrants, before)
}
