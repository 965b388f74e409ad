package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var memberTests = []test{
	{"NoMembership", noMembership},
	{"LaterTokenWins", laterTokenWins},
	{"RulingsBeatTokens", rulingsBeatTokens},
	{"RuledLists", ruledLists},
	{"MemberTexts", memberTexts},
	{"MemberRefusals", memberRefusals},
	{"ManyWorkspaces", manyWorkspaces},
	{"Changes", changes},
	{"ChangesInPages", changesInPages},
	{"ForeignCursor", foreignCursor},
	{"ExpireMemberships", expireMemberships},
	{"MembersLast", membersLast},
	{"MembersCancelled", membersCancelled},
	{"RaceOfTokens", raceOfTokens},
	{"RaceOfChanges", raceOfChanges},
}

// The times of tokens, in Unix seconds; far off, because the suite does not set
// the clock.
func sec(s int64) time.Time { return time.Unix(4_000_000_000+s, 0) }

func in(user, workspace string, until time.Time) store.Membership {
	return store.Membership{User: user, Workspace: workspace, Until: until}
}

func ruled(m store.Membership, r store.Ruling) store.Membership {
	m.Ruling = r
	return m
}

func (b *bench) learn(user string, until time.Time, workspaces ...string) {
	b.t.Helper()
	if err := b.s.LearnMembership(context.Background(), user, workspaces, until); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) rule(user, workspace string, r store.Ruling) {
	b.t.Helper()
	if err := b.s.RuleMembership(context.Background(), user, workspace, r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wantMemberships(user string, want ...store.Membership) {
	b.t.Helper()
	got, err := b.s.MembershipsOf(context.Background(), user)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		b.t.Errorf("MembershipsOf(%q): %v %s", user, err, diff)
	}
}

// changed returns all changes after a cursor and the next one.
func (b *bench) changed(after store.Cursor, limit int) ([]store.Membership, store.Cursor) {
	b.t.Helper()
	list, next, err := b.s.MembershipChanges(context.Background(), after, limit)
	if err != nil {
		b.t.Fatal(err)
	}
	return list, next
}

func noMembership(t *testing.T, b *bench) {
	b.learn("u", sec(1)) // no workspace
	b.learn("u", time.Time{}, "w")
	b.learn("u", time.UnixMilli(0), "w")
	b.wantMemberships("u")
	for _, r := range []store.Ruling{store.RuledIn, store.RuledOut, store.Unruled} {
		if list, err := b.s.Ruled(context.Background(), r); err != nil || len(list) != 0 {
			t.Errorf("Ruled(%v): %v, %v", r, list, err)
		}
	}
	if list, next := b.changed(0, 10); len(list) != 0 || next != 0 {
		t.Errorf("changes %v, next %v", list, next)
	}
}

func laterTokenWins(_ *testing.T, b *bench) {
	b.learn("u", sec(50), "w", "v")
	b.learn("u", sec(40), "w")
	b.wantMemberships("u", in("u", "v", sec(50)), in("u", "w", sec(50)))
	b.learn("u", sec(60), "w", "x", "w")
	b.learn("other", sec(10), "w")
	b.wantMemberships("u", in("u", "v", sec(50)), in("u", "w", sec(60)), in("u", "x", sec(60)))
	b.wantMemberships("other", in("other", "w", sec(10)))
	b.learn("u", sec(70).Add(1999*time.Microsecond), "x")
	b.wantMemberships("u", in("u", "v", sec(50)), in("u", "w", sec(60)), in("u", "x", sec(70).Add(time.Millisecond)))
}

// What an operator removed stays removed, whatever tokens say, until it is
// ruled otherwise.
func rulingsBeatTokens(t *testing.T, b *bench) {
	b.learn("u", sec(50), "w")
	b.rule("u", "w", store.RuledOut)
	b.learn("u", sec(90), "w")
	b.wantMemberships("u", ruled(in("u", "w", sec(90)), store.RuledOut))
	b.rule("u", "w", store.RuledIn)
	b.wantMemberships("u", ruled(in("u", "w", sec(90)), store.RuledIn))
	b.rule("u", "w", store.Unruled)
	b.wantMemberships("u", in("u", "w", sec(90)))
	// Out before the first token, and in without any.
	b.rule("v", "w", store.RuledOut)
	b.rule("v", "x", store.RuledIn)
	b.learn("v", sec(1), "w")
	b.wantMemberships("v", ruled(in("v", "w", sec(1)), store.RuledOut), ruled(in("v", "x", time.Time{}), store.RuledIn))

	for _, test := range []struct {
		ruling store.Ruling
		at     time.Time
		want   bool
	}{
		{store.Unruled, sec(49), true},
		{store.Unruled, sec(50), false},
		{store.Unruled, sec(51), false},
		{store.RuledIn, sec(51), true},
		{store.RuledOut, sec(49), false},
		{store.Ruling(9), sec(49), false},
	} {
		if got := ruled(in("u", "w", sec(50)), test.ruling).Member(test.at); got != test.want {
			t.Errorf("ruling %v at %v: %v", test.ruling, test.at, got)
		}
	}
}

func ruledLists(t *testing.T, b *bench) {
	b.rule("u", "w", store.RuledOut)
	b.rule("a", "w", store.RuledOut)
	b.rule("z", "v", store.RuledOut)
	b.rule("z", "w", store.RuledIn)
	b.rule("gone", "w", store.RuledOut)
	b.rule("gone", "w", store.Unruled)
	b.learn("u", sec(5), "w")
	for r, want := range map[store.Ruling][]store.Membership{
		store.RuledOut: {
			ruled(in("z", "v", time.Time{}), store.RuledOut), ruled(in("a", "w", time.Time{}), store.RuledOut),
			ruled(in("u", "w", sec(5)), store.RuledOut),
		},
		store.RuledIn: {ruled(in("z", "w", time.Time{}), store.RuledIn)},
	} {
		got, err := b.s.Ruled(context.Background(), r)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("Ruled(%v): %v %s", r, err, diff)
		}
	}
}

func memberTexts(t *testing.T, b *bench) {
	for n, text := range odd {
		b.learn(text, sec(int64(n)), "w")
	}
	b.learn("u", sec(1), odd...)
	for n, text := range odd {
		b.wantMemberships(text, in(text, "w", sec(int64(n))))
	}
	list, err := b.s.MembershipsOf(context.Background(), "u")
	if err != nil || len(list) != len(odd) {
		t.Errorf("%d of %d, %v", len(list), len(odd), err)
	}
	if !slices.IsSortedFunc(list, func(a, b store.Membership) int { return strings.Compare(a.Workspace, b.Workspace) }) {
		t.Error("not by workspace")
	}
}

func memberRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []string{"a\x00b", "\xff"} {
		_, err := b.s.MembershipsOf(ctx, bad)
		for what, err := range map[string]error{
			"user":          b.s.LearnMembership(ctx, bad, []string{"w"}, sec(1)),
			"workspace":     b.s.LearnMembership(ctx, "u", []string{"w", bad}, sec(1)),
			"MembershipsOf": err,
			"ruled user":    b.s.RuleMembership(ctx, bad, "w", store.RuledIn),
			"ruled in":      b.s.RuleMembership(ctx, "u", bad, store.RuledIn),
		} {
			if !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v, want ErrText", what, bad, err)
			}
		}
	}
	for _, r := range []store.Ruling{-1, store.RuledOut + 1} {
		if err := b.s.RuleMembership(ctx, "u", "w", r); !errors.Is(err, store.ErrRuling) {
			t.Errorf("RuleMembership %d: %v", r, err)
		}
		if _, err := b.s.Ruled(ctx, r); !errors.Is(err, store.ErrRuling) {
			t.Errorf("Ruled %d: %v", r, err)
		}
	}
	b.wantMemberships("u")
}

func manyWorkspaces(t *testing.T, b *bench) {
	const n = 1200
	workspaces := make([]string, n)
	for i := range workspaces {
		workspaces[i] = fmt.Sprint("w", i)
	}
	b.learn("u", sec(1), workspaces...)
	list, err := b.s.MembershipsOf(context.Background(), "u")
	if err != nil || len(list) != n {
		t.Errorf("%d, %v", len(list), err)
	}
	seen := map[string]bool{}
	for cursor := store.Cursor(0); ; {
		page, next := b.changed(cursor, 500)
		for _, m := range page {
			seen[m.Workspace] = true
		}
		if cursor = next; len(page) < 500 {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("%d changes", len(seen))
	}
}

func changes(t *testing.T, b *bench) {
	b.learn("u", sec(5), "w")
	b.learn("v", sec(6), "w")
	list, first := b.changed(0, 10)
	if diff := cmp.Diff([]store.Membership{in("u", "w", sec(5)), in("v", "w", sec(6))}, list); diff != "" {
		t.Error(diff)
	}
	// What says nothing new is no change.
	b.learn("u", sec(5), "w")
	b.learn("u", sec(4), "w")
	b.rule("u", "w", store.Unruled)
	if list, next := b.changed(first, 10); len(list) != 0 || next != first {
		t.Errorf("changes %v, next %v", list, next)
	}
	// Of several changes of one the last is seen, in its place.
	b.rule("u", "w", store.RuledOut)
	b.learn("v", sec(9), "w")
	b.rule("u", "w", store.RuledIn)
	list, second := b.changed(first, 10)
	want := []store.Membership{in("v", "w", sec(9)), ruled(in("u", "w", sec(5)), store.RuledIn)}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	if list, _ := b.changed(second, 10); len(list) != 0 {
		t.Errorf("changes %v", list)
	}
	// A ruling that is taken back is told as such.
	b.rule("u", "w", store.Unruled)
	if list, _ := b.changed(second, 10); !cmp.Equal(list, []store.Membership{in("u", "w", sec(5))}) {
		t.Errorf("changes %v", list)
	}
}

func changesInPages(t *testing.T, b *bench) {
	for i := range 10 {
		b.learn(fmt.Sprint("u", i), sec(1), "v", "w")
	}
	for _, limit := range []int{-1, 0, 1, 3, 19, 20, 21} {
		seen := map[string]bool{}
		pages := 0
		for cursor := store.Cursor(0); ; pages++ {
			page, next := b.changed(cursor, limit)
			if len(page) > max(limit, 1) {
				t.Fatalf("%d in a page of %d", len(page), limit)
			}
			for _, m := range page {
				key := m.User + " " + m.Workspace
				if seen[key] {
					t.Errorf("%s twice", key)
				}
				seen[key] = true
			}
			if cursor = next; len(page) < max(limit, 1) {
				break
			}
		}
		if len(seen) != 20 || pages != 20/max(limit, 1) {
			t.Errorf("limit %d: %d in %d pages", limit, len(seen), pages)
		}
	}
}

func foreignCursor(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []store.Cursor{1, -1} {
		if _, _, err := b.s.MembershipChanges(ctx, bad, 1); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%d: %v, want ErrCursor", bad, err)
		}
	}
	b.learn("u", sec(1), "w")
	_, next := b.changed(0, 1)
	if _, _, err := b.s.MembershipChanges(ctx, next+1, 1); !errors.Is(err, store.ErrCursor) {
		t.Errorf("%v, want ErrCursor", err)
	}
	// A cursor lasts longer than what it has seen.
	b.learn("v", time.Unix(1000, 0), "w")
	_, next = b.changed(next, 1)
	if n, err := b.s.ExpireMemberships(ctx, time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if list, _ := b.changed(next, 1); len(list) != 0 {
		t.Errorf("changes %v", list)
	}
}

func expireMemberships(t *testing.T, b *bench) {
	ctx := context.Background()
	past := time.Unix(1000, 0)
	b.learn("valid", sec(1), "w")
	b.learn("over", past, "w")
	b.learn("out", past, "w")
	b.rule("out", "w", store.RuledOut)
	b.rule("in", "w", store.RuledIn)
	b.rule("unruled", "w", store.RuledIn)
	b.rule("unruled", "w", store.Unruled)
	// A change is kept for those who have not seen it yet.
	if n, err := b.s.ExpireMemberships(ctx, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := b.s.ExpireMemberships(ctx, time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.wantMemberships("over")
	b.wantMemberships("unruled")
	b.wantMemberships("valid", in("valid", "w", sec(1)))
	b.wantMemberships("out", ruled(in("out", "w", past), store.RuledOut))
	b.wantMemberships("in", ruled(in("in", "w", time.Time{}), store.RuledIn))
}

func membersLast(t *testing.T, b *bench) {
	b.learn("u", sec(1), "w")
	b.rule("u", "v", store.RuledOut)
	_, next := b.changed(0, 10)
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.wantMemberships("u", ruled(in("u", "v", time.Time{}), store.RuledOut), in("u", "w", sec(1)))
	b.learn("x", sec(1), "w")
	if list, _ := b.changed(next, 10); !cmp.Equal(list, []store.Membership{in("x", "w", sec(1))}) {
		t.Errorf("changes %v", list)
	}
}

func membersCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, ofErr := b.s.MembershipsOf(ctx, "u")
	_, ruledErr := b.s.Ruled(ctx, store.RuledOut)
	_, _, changesErr := b.s.MembershipChanges(ctx, 0, 1)
	_, expireErr := b.s.ExpireMemberships(ctx, time.Now())
	for what, err := range map[string]error{
		"LearnMembership": b.s.LearnMembership(ctx, "u", []string{"w"}, sec(1)),
		"RuleMembership":  b.s.RuleMembership(ctx, "u", "w", store.RuledIn),
		"MembershipsOf":   ofErr, "Ruled": ruledErr, "MembershipChanges": changesErr, "ExpireMemberships": expireErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	b.wantMemberships("u")
}
