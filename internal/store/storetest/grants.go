package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var grantTests = []test{
	{"Grants", grants},
	{"GrantRefusals", grantRefusals},
	{"GrantLists", grantLists},
	{"GrantLimit", grantLimit},
	{"RenewGrant", renewGrant},
	{"RevokeGrants", revokeGrants},
	{"RevokeGrantsOf", revokeGrantsOf},
	{"DelegateGrants", delegateGrants},
	{"GrantsOfWorkspace", grantsOfWorkspace},
	{"ExpireGrants", expireGrants},
	{"RaceOfDerivation", raceOfDerivation},
}

const manyGrants = 1000

// grantTimes leaves out what the store's own clock has set.
var grantTimes = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.Grant{}, "CreatedAt", "RenewedAt", "RevokedAt")}

// grant is one of user u for agent a, good for an hour and renewable for two.
func (b *bench) grant(id string, change func(*store.Grant)) store.Grant {
	now := b.now().Truncate(time.Millisecond)
	g := store.Grant{
		ID: id, RootID: id, SubjectType: "user", SubjectID: "u", DelegateType: "agent", DelegateID: "ag::w::i::a", IssuedBy: "us::u::w",
		Workspaces: []string{"w"}, Terms: `{"level":20}`, ExpiresAt: now.Add(time.Hour), RenewableUntil: now.Add(2 * time.Hour),
	}
	if change != nil {
		change(&g)
	}
	return g
}

// below derives a grant from another one.
func (b *bench) below(parent, id string) store.Grant {
	return b.grant(id, func(g *store.Grant) { g.ParentID, g.RootID, g.Depth = parent, "root of "+parent, 1 })
}

func (b *bench) addGrants(list ...store.Grant) {
	b.t.Helper()
	if err := b.s.AddGrants(context.Background(), list, manyGrants); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) oneGrant(id string) store.Grant {
	b.t.Helper()
	g, ok, err := b.s.Grant(context.Background(), id)
	if err != nil || !ok {
		b.t.Fatalf("grant %q: %v, %v", id, ok, err)
	}
	return g
}

func (b *bench) grantChanges(after store.Cursor, limit int) (ids []string, next store.Cursor) {
	b.t.Helper()
	list, next, err := b.s.GrantChanges(context.Background(), after, limit)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range list {
		ids = append(ids, g.ID)
	}
	return ids, next
}

func (b *bench) revokeGrants(want int, ids ...string) {
	b.t.Helper()
	if n, err := b.s.RevokeGrants(context.Background(), ids, "op", "why"); n != want || err != nil {
		b.t.Errorf("revoking %v: %d, %v, want %d", ids, n, err, want)
	}
}

func grants(t *testing.T, b *bench) {
	if _, ok, err := b.s.Grant(context.Background(), "none"); ok || err != nil {
		t.Errorf("a grant that is none: %v, %v", ok, err)
	}
	first := b.grant("a", func(g *store.Grant) {
		g.AudienceType, g.AudienceID, g.Workspaces = "session", "s", []string{"w", "v", odd[1]}
	})
	second := b.below("a", "b")
	b.addGrants(first)
	b.addGrants(second)
	b.addGrants(b.grant("a", func(g *store.Grant) { g.Terms = "changed" })) // a call may be repeated
	for _, want := range []store.Grant{first, second} {
		got := b.oneGrant(want.ID)
		if diff := cmp.Diff(want, got, grantTimes); diff != "" {
			t.Error(diff)
		}
		if got.CreatedAt.Sub(b.now()).Abs() > time.Minute || !got.RevokedAt.IsZero() || !got.RenewedAt.IsZero() {
			t.Errorf("times of %+v", got)
		}
	}
	ids, next := b.grantChanges(0, 1)
	more, next := b.grantChanges(next, 10)
	if diff := cmp.Diff([]string{"a", "b"}, append(ids, more...)); diff != "" {
		t.Error(diff)
	}
	if ids, _ := b.grantChanges(next, 10); len(ids) != 0 {
		t.Errorf("changes %v", ids)
	}
}

func grantRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []string{"a\x00b", "\xff"} {
		for what, change := range map[string]func(*store.Grant){
			"id": func(g *store.Grant) { g.ID = bad }, "subject": func(g *store.Grant) { g.SubjectID = bad },
			"terms": func(g *store.Grant) { g.Terms = bad }, "workspace": func(g *store.Grant) { g.Workspaces = []string{bad} },
		} {
			if err := b.s.AddGrants(ctx, []store.Grant{b.grant("good", nil), b.grant("x", change)}, manyGrants); !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v, want ErrText", what, bad, err)
			}
		}
		if _, err := b.s.RevokeGrants(ctx, []string{bad}, "", ""); !errors.Is(err, store.ErrText) {
			t.Errorf("revoking %q: %v", bad, err)
		}
		if _, _, err := b.s.Grants(ctx, store.GrantFilter{SubjectID: bad}, 0, 1); !errors.Is(err, store.ErrText) {
			t.Errorf("listing %q: %v", bad, err)
		}
	}
	for _, ws := range []string{"", "a\nb"} {
		if err := b.s.AddGrants(ctx, []store.Grant{b.grant("x", func(g *store.Grant) { g.Workspaces = []string{ws} })}, manyGrants); !errors.Is(err, store.ErrText) {
			t.Errorf("workspace %q: %v", ws, err)
		}
	}
	b.addGrants(b.grant("revoked", nil), b.grant("expired", func(g *store.Grant) { g.ExpiresAt = b.now().Add(-time.Second) }))
	b.revokeGrants(1, "revoked")
	for _, parent := range []string{"none", "revoked", "expired"} {
		if err := b.s.AddGrants(ctx, []store.Grant{b.grant("good", nil), b.below(parent, "x")}, manyGrants); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("derived from %s: %v, want ErrNotFound", parent, err)
		}
	}
	if _, ok, _ := b.s.Grant(ctx, "good"); ok {
		t.Error("a part of a refused call was done")
	}
	if err := b.s.AddGrants(ctx, nil, 0); err != nil {
		t.Errorf("no grants: %v", err)
	}
	for _, bad := range []store.Cursor{1000, -1} {
		if _, _, err := b.s.GrantChanges(ctx, bad, 1); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%d: %v, want ErrCursor", bad, err)
		}
	}
}

func grantLists(t *testing.T, b *bench) {
	for i := range 5 {
		b.addGrants(b.grant(fmt.Sprint("u", i), func(g *store.Grant) { g.DelegateID = fmt.Sprint("ag::w::i::", i%2) }))
		b.later.Add(int64(time.Second))
	}
	b.addGrants(b.grant("other", func(g *store.Grant) { g.SubjectID, g.AudienceType, g.AudienceID = "v", "task", "t" }))
	b.revokeGrants(1, "u1")
	list := func(f store.GrantFilter, offset, limit int) (ids []string, total int) {
		t.Helper()
		all, total, err := b.s.Grants(context.Background(), f, offset, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range all {
			ids = append(ids, g.ID)
		}
		return ids, total
	}
	ofU := store.GrantFilter{SubjectType: "user", SubjectID: "u"}
	withEnded := ofU
	withEnded.Ended = true
	for _, c := range []struct {
		f             store.GrantFilter
		offset, limit int
		want          []string
		total         int
	}{
		{ofU, 0, 10, []string{"u4", "u3", "u2", "u0"}, 4},
		{ofU, 1, 2, []string{"u3", "u2"}, 4},
		{ofU, 9, 2, nil, 4},
		{withEnded, 0, 10, []string{"u4", "u3", "u2", "u1", "u0"}, 5},
		{store.GrantFilter{Delegates: []string{"ag::w::i::1", "ag::w::i::7"}}, 0, 10, []string{"u3"}, 1},
		{store.GrantFilter{AudienceType: "task", AudienceID: "t"}, 0, 10, []string{"other"}, 1},
		{store.GrantFilter{Ended: true}, 0, 100, []string{"other", "u4", "u3", "u2", "u1", "u0"}, 6},
	} {
		ids, total := list(c.f, c.offset, c.limit)
		if diff := cmp.Diff(c.want, ids, cmpopts.EquateEmpty()); diff != "" || total != c.total {
			t.Errorf("%+v: total %d, %s", c.f, total, diff)
		}
	}
	b.later.Add(int64(2 * time.Hour))
	if ids, _ := list(ofU, 0, 10); len(ids) != 0 {
		t.Errorf("expired and listed: %v", ids)
	}
}

func grantLimit(t *testing.T, b *bench) {
	ctx := context.Background()
	add := func(id, user string) error {
		return b.s.AddGrants(ctx, []store.Grant{b.grant(id, func(g *store.Grant) { g.SubjectID = user })}, 3)
	}
	for _, id := range []string{"1", "2", "3"} {
		if err := add(id, "u"); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("4", "u"); !errors.Is(err, store.ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	if _, ok, _ := b.s.Grant(ctx, "4"); ok {
		t.Error("it was stored all the same")
	}
	if err := add("5", "v"); err != nil {
		t.Errorf("of another subject: %v", err)
	}
	b.revokeGrants(1, "1")
	if err := add("4", "u"); !errors.Is(err, store.ErrFull) {
		t.Errorf("at once after one was revoked: %v", err)
	}
	b.later.Add(int64(store.GrantRest + time.Second))
	if err := add("4", "u"); err != nil {
		t.Errorf("when that is long ago: %v", err)
	}
	if _, ok, _ := b.s.Grant(ctx, "1"); ok {
		t.Error("what made room is there")
	}
}

func renewGrant(t *testing.T, b *bench) {
	now := b.now().Truncate(time.Millisecond)
	b.addGrants(
		b.grant("a", nil),
		b.grant("revoked", nil),
		b.grant("expired", func(g *store.Grant) { g.ExpiresAt = now.Add(-time.Second) }),
	)
	b.addGrants(b.below("a", "b"))
	b.revokeGrants(1, "revoked")
	for _, c := range []struct {
		id    string
		until time.Duration
		want  bool
	}{
		{"none", 90 * time.Minute, false},
		{"revoked", 90 * time.Minute, false},
		{"expired", 90 * time.Minute, false},
		{"a", 30 * time.Minute, false},
		{"a", time.Hour, false},
		{"b", 90 * time.Minute, false}, // beyond its parent
		{"a", 90 * time.Minute, true},
		{"b", 91 * time.Minute, false},
		{"b", 80 * time.Minute, true},
		{"a", 121 * time.Minute, false},
		{"a", 2 * time.Hour, true},
	} {
		g, done, err := b.s.RenewGrant(context.Background(), c.id, now.Add(c.until))
		if err != nil || done != c.want {
			t.Errorf("%s to %v: %v, %v", c.id, c.until, done, err)
		}
		if done && (!g.ExpiresAt.Equal(now.Add(c.until)) || g.RenewedAt.IsZero() || g.ID != c.id) {
			t.Errorf("%s to %v: %+v", c.id, c.until, g)
		}
	}
}

func revokeGrants(t *testing.T, b *bench) {
	b.addGrants(b.grant("a", nil), b.grant("other", nil))
	b.addGrants(b.below("a", "b"), b.below("a", "c"))
	b.addGrants(b.below("b", "d"))
	_, cursor := b.grantChanges(0, 100)
	b.revokeGrants(0, "none")
	b.revokeGrants(2, "b")
	ids, cursor := b.grantChanges(cursor, 1)
	more, cursor := b.grantChanges(cursor, 10)
	if diff := cmp.Diff([]string{"b", "d"}, append(ids, more...)); diff != "" {
		t.Error(diff)
	}
	at := b.oneGrant("b").RevokedAt
	b.later.Add(int64(time.Minute))
	b.revokeGrants(2, "a", "b", "a")
	if g := b.oneGrant("b"); !g.RevokedAt.Equal(at) || g.RevokedBy != "op" || g.RevokeReason != "why" {
		t.Errorf("revoked once more: %+v", g)
	}
	b.revokeGrants(0, "a")
	if ids, _ := b.grantChanges(cursor, 10); len(ids) != 2 {
		t.Errorf("changes %v", ids)
	}
	if !b.oneGrant("other").RevokedAt.IsZero() {
		t.Error("another grant was revoked")
	}
}

func revokeGrantsOf(t *testing.T, b *bench) {
	of := func(id string) store.Grant {
		return b.grant(id, func(g *store.Grant) { g.AudienceType, g.AudienceID = "task", id })
	}
	b.addGrants(of("1"), of("2"))
	b.addGrants(b.below("1", "3"))
	if n, err := b.s.RevokeGrantsOf(context.Background(), "task", "1", "", "it is over"); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := b.s.RevokeGrantsOf(context.Background(), "session", "2", "", ""); n != 0 || err != nil {
		t.Errorf("of another type: %d, %v", n, err)
	}
}

func delegateGrants(t *testing.T, b *bench) {
	of := func(id, task string) store.Grant {
		return b.grant(id, func(g *store.Grant) {
			g.AudienceType, g.AudienceID, g.DelegateType, g.DelegateID = "task", task, "", ""
		})
	}
	b.addGrants(of("1", "t"), of("2", "t"), of("3", "other"))
	b.revokeGrants(1, "2")
	_, cursor := b.grantChanges(0, 100)
	if n, err := b.s.DelegateGrants(context.Background(), "task", "t", "agent", "ag::w::i::b"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if g := b.oneGrant("1"); g.DelegateType != "agent" || g.DelegateID != "ag::w::i::b" {
		t.Errorf("%+v", g)
	}
	if ids, _ := b.grantChanges(cursor, 10); len(ids) != 1 {
		t.Errorf("changes %v", ids)
	}
}

// With a workspace go the grants that name it, and what derives from them.
func grantsOfWorkspace(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, name := range []string{"w", "v", "W"} {
		if _, _, err := b.s.CreateWorkspace(ctx, name, "op"); err != nil {
			t.Fatal(err)
		}
	}
	in := func(id string, workspaces ...string) store.Grant {
		return b.grant(id, func(g *store.Grant) { g.Workspaces = workspaces })
	}
	b.addGrants(in("one", "w"), in("two", "v", "w"), in("other", "v"), in("case", "W"), in("longer", "ww", "x::w"), in("none"))
	below := b.below("two", "below")
	below.Workspaces = []string{"v"}
	b.addGrants(below)
	if deleted, err := b.s.DeleteWorkspace(ctx, "w"); !deleted || err != nil {
		t.Fatal(deleted, err)
	}
	for id, want := range map[string]bool{"one": true, "two": true, "below": true, "other": false, "case": false, "longer": false, "none": false} {
		if got := !b.oneGrant(id).RevokedAt.IsZero(); got != want {
			t.Errorf("%s is revoked: %v", id, got)
		}
	}
}

func expireGrants(t *testing.T, b *bench) {
	b.addGrants(
		b.grant("over", func(g *store.Grant) { g.ExpiresAt = b.now().Add(-time.Hour) }),
		b.grant("on", nil), b.grant("revoked", nil),
	)
	b.revokeGrants(1, "revoked")
	for _, c := range []struct {
		ahead time.Duration
		want  int64
	}{{-30 * time.Minute, 1}, {-30 * time.Minute, 0}, {time.Minute, 1}} {
		if n, err := b.s.ExpireGrants(context.Background(), b.now().Add(c.ahead)); n != c.want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, c.want)
		}
	}
	b.oneGrant("on")
}

// Of a grant that is revoked while others derive from it nothing is left that
// holds.
func raceOfDerivation(t *testing.T, b *bench) {
	b.addGrants(b.grant("a", nil))
	var wg sync.WaitGroup
	var made atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for j := range 4 {
				err := b.s.AddGrants(context.Background(), []store.Grant{b.below("a", fmt.Sprint(i, "-", j))}, manyGrants)
				switch {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, store.ErrNotFound):
					t.Error(err)
				}
				if i == 0 && j == 1 {
					if _, err := b.s.RevokeGrants(context.Background(), []string{"a"}, "", ""); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	list, total, err := b.s.Grants(context.Background(), store.GrantFilter{}, 0, 100)
	if err != nil || total != 0 {
		t.Errorf("%d grants hold: %v, %v", total, list, err)
	}
	if _, total, _ := b.s.Grants(context.Background(), store.GrantFilter{Ended: true}, 0, 100); total != int(made.Load())+1 {
		t.Errorf("%d are stored, %d were made", total, made.Load())
	}
}
