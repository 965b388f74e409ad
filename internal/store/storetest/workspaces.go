package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aether-gateway/gateway/internal/store"
)

var workspaceTests = []test{
	{"NoWorkspace", noWorkspace},
	{"WorkspaceIsCreatedOnce", workspaceIsCreatedOnce},
	{"WorkspaceIsDeleted", workspaceIsDeleted},
	{"WorkspaceRests", workspaceRests},
	{"WorkspaceChanges", workspaceChanges},
	{"WorkspaceTexts", workspaceTexts},
	{"WorkspaceRefusals", workspaceRefusals},
	{"WorkspaceTakesItsMembers", workspaceTakesItsMembers},
	{"WorkspaceTakesNoRulings", workspaceTakesNoRulings},
	{"WorkspaceTakesItsRules", workspaceTakesItsRules},
	{"WorkspaceIsPurged", workspaceIsPurged},
	{"WorkspaceExpires", workspaceExpires},
	{"WorkspacesLast", workspacesLast},
	{"MembershipsInPages", membershipsInPages},
	{"RaceOfWorkspaces", raceOfWorkspaces},
}

func (b *bench) create(name string, era uint32) store.Workspace {
	b.t.Helper()
	before := b.now().Truncate(time.Millisecond)
	w, created, err := b.s.CreateWorkspace(context.Background(), name, "operator")
	if err != nil || !created {
		b.t.Fatalf("%q was not created: %v", name, err)
	}
	if w.Name != name || w.Era != era || w.CreatedBy != "operator" || w.CreatedAt.Before(before) || !w.Exists() {
		b.t.Errorf("created %+v", w)
	}
	return w
}

func (b *bench) delete(name string, want bool) {
	b.t.Helper()
	if deleted, err := b.s.DeleteWorkspace(context.Background(), name); err != nil || deleted != want {
		b.t.Fatalf("DeleteWorkspace(%q) = %v, %v", name, deleted, err)
	}
}

func (b *bench) wantWorkspaces(names ...string) {
	b.t.Helper()
	list, err := b.s.Workspaces(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for _, w := range list {
		got = append(got, w.Name)
	}
	if diff := cmp.Diff(names, got); diff != "" {
		b.t.Error(diff)
	}
}

// rest lets the name of a deleted workspace rest.
func (b *bench) rest() { b.later.Add(int64(store.WorkspaceRest)) }

func noWorkspace(t *testing.T, b *bench) {
	b.wantWorkspaces()
	b.delete("w", false)
	list, next, err := b.s.WorkspaceChanges(context.Background(), 0, 10)
	if err != nil || len(list) != 0 || next != 0 {
		t.Errorf("changes %v, next %d, %v", list, next, err)
	}
	if n, err := b.s.PurgeWorkspaces(context.Background()); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func workspaceIsCreatedOnce(t *testing.T, b *bench) {
	first := b.create("w", 0)
	b.create("v", 0)
	again, created, err := b.s.CreateWorkspace(context.Background(), "w", "another")
	if err != nil || created || again != first {
		t.Errorf("created again: %+v, %v, %v", again, created, err)
	}
	b.wantWorkspaces("v", "w")
}

func workspaceIsDeleted(_ *testing.T, b *bench) {
	b.create("w", 0)
	b.create("v", 0)
	b.delete("w", true)
	b.delete("w", false)
	b.wantWorkspaces("v")
}

// A name can be used again when it has rested, in a new era.
func workspaceRests(t *testing.T, b *bench) {
	ctx := context.Background()
	for era := range uint32(3) {
		b.create("w", era)
		b.delete("w", true)
		var rest *store.RestError
		if _, _, err := b.s.CreateWorkspace(ctx, "w", "o"); !errors.As(err, &rest) {
			t.Fatalf("%v, want RestError", err)
		} else if rest.Name != "w" || rest.After <= 0 || rest.After > store.WorkspaceRest {
			t.Errorf("%+v", rest)
		}
		b.wantWorkspaces()
		b.rest()
	}
}

func workspaceChanges(t *testing.T, b *bench) {
	ctx := context.Background()
	changes := func(after store.Cursor, limit int) ([]store.Workspace, store.Cursor) {
		t.Helper()
		list, next, err := b.s.WorkspaceChanges(ctx, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		return list, next
	}
	v, w := b.create("v", 0), b.create("w", 0)
	list, first := changes(0, 10)
	if diff := cmp.Diff([]store.Workspace{v, w}, list); diff != "" {
		t.Error(diff)
	}
	if _, _, err := b.s.CreateWorkspace(ctx, "w", "o"); err != nil {
		t.Fatal(err)
	}
	if list, _ := changes(first, 10); len(list) != 0 {
		t.Errorf("what says nothing new is a change: %v", list)
	}
	b.delete("v", true)
	list, second := changes(first, 10)
	if len(list) != 1 || list[0].Name != "v" || list[0].Exists() || list[0].Era != 0 {
		t.Errorf("the deletion is told as %v", list)
	}
	b.rest()
	b.create("v", 1)
	b.create("x", 0)
	page, third := changes(second, 1)
	if len(page) != 1 || page[0].Name != "v" || page[0].Era != 1 || !page[0].Exists() {
		t.Errorf("the new era is told as %v", page)
	}
	if page, _ = changes(third, 1); len(page) != 1 || page[0].Name != "x" {
		t.Errorf("the next page is %v", page)
	}
	for _, bad := range []store.Cursor{-1, 1000} {
		if _, _, err := b.s.WorkspaceChanges(ctx, bad, 1); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%d: %v, want ErrCursor", bad, err)
		}
	}
}

// Names shaped like SQL, patterns or paths are just names.
func workspaceTexts(t *testing.T, b *bench) {
	names := append([]string{"'; drop table workspaces; --", "../../etc/passwd", "w%", "a:b"}, odd...)
	for _, name := range names {
		b.create(name, 0)
	}
	if list, err := b.s.Workspaces(context.Background()); err != nil || len(list) != len(names) {
		t.Errorf("%d of %d, %v", len(list), len(names), err)
	}
	for _, name := range names {
		b.delete(name, true)
	}
	b.wantWorkspaces()
}

func workspaceRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []string{"a\x00b", "\xff"} {
		_, _, name := b.s.CreateWorkspace(ctx, bad, "o")
		_, _, by := b.s.CreateWorkspace(ctx, "w", bad)
		_, gone := b.s.DeleteWorkspace(ctx, bad)
		_, in := b.s.MembershipsIn(ctx, bad, "", 1)
		_, after := b.s.MembershipsIn(ctx, "w", bad, 1)
		for what, err := range map[string]error{"name": name, "by": by, "delete": gone, "in": in, "after": after} {
			if !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v, want ErrText", what, bad, err)
			}
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, _, create := b.s.CreateWorkspace(cancelled, "w", "o")
	_, remove := b.s.DeleteWorkspace(cancelled, "w")
	_, list := b.s.Workspaces(cancelled)
	_, _, changes := b.s.WorkspaceChanges(cancelled, 0, 1)
	_, purge := b.s.PurgeWorkspaces(cancelled)
	for what, err := range map[string]error{"create": create, "delete": remove, "list": list, "changes": changes, "purge": purge} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	b.wantWorkspaces()
}

// A deleted workspace has no members and no rulings, and is told of as that.
func workspaceTakesItsMembers(t *testing.T, b *bench) {
	b.create("w", 0)
	b.learn("token", sec(5), "w", "other")
	b.rule("in", "w", store.RuledIn)
	b.rule("out", "w", store.RuledOut)
	b.rule("out", "other", store.RuledOut)
	_, next := b.changed(0, 10)
	b.delete("w", true)
	b.wantMemberships("token", in("token", "other", sec(5)), in("token", "w", time.Time{}))
	b.wantMemberships("out", ruled(in("out", "other", time.Time{}), store.RuledOut), in("out", "w", time.Time{}))
	list, _ := b.changed(next, 10)
	if len(list) != 3 {
		t.Errorf("told of %v", list)
	}
	for _, m := range list {
		if m.Workspace != "w" || m.Member(sec(0)) || m.Ruling != store.Unruled {
			t.Errorf("%+v is left", m)
		}
	}
}

// Nobody is ruled in, or out, in a workspace that was deleted: the ruling would be
// there when its name is used again.
func workspaceTakesNoRulings(t *testing.T, b *bench) {
	b.create("w", 0)
	b.delete("w", true)
	for _, r := range []store.Ruling{store.RuledIn, store.RuledOut, store.Unruled} {
		if err := b.s.RuleMembership(context.Background(), "u", "w", r); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("ruled %v: %v", r, err)
		}
	}
	b.wantMemberships("u")
	b.rest()
	b.create("w", 1)
	b.rule("u", "w", store.RuledIn)
}

// The rules that name a deleted workspace go with it, and no others.
func workspaceTakesItsRules(_ *testing.T, b *bench) {
	b.create("w", 0)
	for _, address := range []string{"ag::w::i::s", "ga::w", "tb::w::*", "uw::u::w", "event::w", "metric::w", "ag::w"} {
		b.addRule(denies("*", address))
	}
	b.addRule(denies("ag::w::i::*", "sv::i::s"))
	keys := func(name string) store.Rule {
		r := denies("*", name)
		r.Action = "kv:read"
		return b.addRule(r)
	}
	for _, name := range []string{
		"workspace::w", "user_workspace::w::i::*", "workspace_exclusive::w::ag::w::i::s", "user_workspace_shared::w::u",
		"global_exclusive::ag::w::i::s", "checkpoint::tu::w::i::*",
	} {
		keys(name)
	}
	kept := []store.Rule{
		b.addRule(denies("sv::w::s", "ag::*::i::w")), b.addRule(denies("*", "ag::w:x::i::s")), b.addRule(denies("us::w::1", "us::w::w")),
		b.addRule(denies("ag::v::w::w", "uw::w::v")), b.addRule(denies("*", "ga::w2")), b.addRule(denies("*", "sv::w::w")),
		keys("workspace::v::w"), keys("global::w"), keys("user::w::w"), keys("checkpoint::sv::w::s"), keys("workspace::*::w"),
	}
	b.delete("w", true)
	b.wantRules(kept...)
}

func workspaceIsPurged(t *testing.T, b *bench) {
	ctx := context.Background()
	gone := []string{"ag::w::i::s", "tu::w::i::s", "ta::w::i::s", "event::w"}
	kept := []string{"ag::w:x::i::s", "ag::v::w::w", "ag::w2::i::s", "us::w::1", "event::w2", "event::w:x", "sv::w::s", "event::*/0"}
	for _, name := range []string{"w", "v"} {
		b.create(name, 0)
	}
	fill := func(addresses []string) {
		t.Helper()
		for _, a := range addresses {
			session := store.Session{Identity: a, Address: a, Workspace: "w", Epoch: 1}
			if _, err := b.s.BeginSession(ctx, session); err != nil {
				t.Fatal(err)
			}
			if err := b.s.CommitClean(ctx, []store.Commit{at(a, a, 7, 1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.s.NoteAbsence(ctx, []store.Note{{Address: a, Position: 3, Workspace: "w"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	purge := func(want int64) {
		t.Helper()
		if n, err := b.s.PurgeWorkspaces(ctx); err != nil || n != want {
			t.Errorf("%d rows removed, %v, want %d", n, err, want)
		}
	}
	look := func(addresses []string, want bool) {
		t.Helper()
		for _, a := range addresses {
			_, position, err := b.s.Position(ctx, a, a)
			_, note, noteErr := b.s.Note(ctx, a)
			mark, markErr := b.s.Mark(ctx, a, a)
			if errors.Join(err, noteErr, markErr) != nil || position != want || note != want || mark.Clean != want {
				t.Errorf("%s: position %v, note %v, mark %v, %v", a, position, note, mark.Clean, errors.Join(err, noteErr, markErr))
			}
		}
	}
	fill(gone)
	fill(kept)
	purge(0)
	look(gone, true)
	b.delete("w", true)
	purge(int64(3 * len(gone)))
	look(gone, false)
	look(kept, true)
	// A gateway that had not heard of it.
	fill(gone[:1])
	b.rest()
	purge(3)
	fill(gone[:1])
	purge(0) // it has rested
	look(gone[:1], true)
	b.create("w", 1)
	look(gone[:1], false) // not even what came after that
	fill(gone)
	purge(0)
	look(gone, true)
}

func workspaceExpires(t *testing.T, b *bench) {
	ctx := context.Background()
	expire := func(before time.Time, want int64) {
		t.Helper()
		if n, err := b.s.ExpireWorkspaces(ctx, before); err != nil || n != want {
			t.Errorf("%d expired, %v, want %d", n, err, want)
		}
	}
	b.create("w", 0)
	b.create("v", 0)
	b.delete("w", true)
	far := b.now().Add(24 * time.Hour)
	expire(far, 0) // it is not purged
	b.rest()
	if _, err := b.s.PurgeWorkspaces(ctx); err != nil {
		t.Fatal(err)
	}
	expire(b.now().Add(-time.Hour), 0)
	expire(far, 1)
	b.create("w", 0)
	b.wantWorkspaces("v", "w")
}

func workspacesLast(t *testing.T, b *bench) {
	b.create("w", 0)
	b.create("v", 0)
	b.delete("v", true)
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.wantWorkspaces("w")
	b.rest()
	b.create("v", 1)
}

func membershipsInPages(t *testing.T, b *bench) {
	for i := range 5 {
		b.learn(fmt.Sprint("u", i), sec(1), "w", "v")
	}
	b.rule("u2", "w", store.RuledOut)
	var got []string
	for after := ""; ; {
		page, err := b.s.MembershipsIn(context.Background(), "w", after, 2)
		if err != nil || len(page) > 2 {
			t.Fatal(page, err)
		}
		for _, m := range page {
			if m.Workspace != "w" || (m.Ruling == store.RuledOut) != (m.User == "u2") {
				t.Errorf("%+v", m)
			}
			got = append(got, m.User)
			after = m.User
		}
		if len(page) < 2 {
			break
		}
	}
	if diff := cmp.Diff([]string{"u0", "u1", "u2", "u3", "u4"}, got); diff != "" {
		t.Error(diff)
	}
}

// Of several gateways that create a workspace, and of those that delete one,
// one does; users who learn that they are members meanwhile are members of the
// one or of the other.
func raceOfWorkspaces(t *testing.T, b *bench) {
	ctx := context.Background()
	const gateways = 6
	for era := range uint32(2) {
		made := make([]bool, gateways)
		fns := make([]func(), gateways)
		for g := range fns {
			fns[g] = func() {
				w, created, err := b.s.CreateWorkspace(ctx, "w", fmt.Sprint("g", g))
				if err != nil || w.Era != era {
					t.Errorf("%+v, %v", w, err)
				}
				made[g] = created
				if err := b.s.LearnMembership(ctx, fmt.Sprint("u", g), []string{"w", "v"}, sec(int64(era))); err != nil {
					t.Error(err)
				}
			}
		}
		together(fns...)
		gone := make([]bool, gateways)
		for g := range fns {
			fns[g] = func() {
				var err error
				if gone[g], err = b.s.DeleteWorkspace(ctx, "w"); err != nil {
					t.Error(err)
				}
				if err := b.s.LearnMembership(ctx, fmt.Sprint("v", g), []string{"w", "v"}, sec(int64(era))); err != nil {
					t.Error(err)
				}
			}
		}
		together(fns...)
		creators, deleters := 0, 0
		for g := range gateways {
			if made[g] {
				creators++
			}
			if gone[g] {
				deleters++
			}
		}
		if creators != 1 || deleters != 1 {
			t.Errorf("%d created it, %d deleted it", creators, deleters)
		}
		b.rest()
	}
}
