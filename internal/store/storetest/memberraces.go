package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
)

// Tokens of one user on several gateways, and an operator, at the same time:
// the latest time is left, and the ruling.
func raceOfTokens(t *testing.T, b *bench) {
	ctx := context.Background()
	var fns []func()
	for g := range 5 {
		fns = append(fns, func() {
			workspaces := []string{"a", "b", "c", "d"}
			if g%2 == 0 {
				slices.Reverse(workspaces)
			}
			for r := range 10 {
				if err := b.s.LearnMembership(ctx, "u", workspaces, sec(int64(r*5+(g+r)%5))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	fns = append(fns, func() {
		for _, r := range []store.Ruling{store.RuledIn, store.Unruled, store.RuledOut} {
			if err := b.s.RuleMembership(ctx, "u", "c", r); err != nil {
				t.Error(err)
			}
		}
	})
	together(fns...)
	b.wantMemberships("u", in("u", "a", sec(49)), in("u", "b", sec(49)),
		ruled(in("u", "c", sec(49)), store.RuledOut), in("u", "d", sec(49)))
}

// A reader that follows the changes while many are made misses none: numbers
// become visible in their order.
func raceOfChanges(t *testing.T, b *bench) {
	ctx := context.Background()
	const writers, users = 6, 12
	var writing atomic.Int64
	writing.Store(writers)
	var fns []func()
	for w := range writers {
		fns = append(fns, func() {
			defer writing.Add(-1)
			for r := range users {
				user := fmt.Sprint("u", (r*(2*w+1))%users)
				if err := b.s.LearnMembership(ctx, user, []string{fmt.Sprint("w", w), "all"}, sec(int64(w*100+r))); err != nil {
					t.Error(err)
				}
				if err := b.s.RuleMembership(ctx, user, "ruled", store.Ruling((r+w)%3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[[2]string]store.Membership{}
	fns = append(fns, func() {
		for cursor := store.Cursor(0); ; {
			last := writing.Load() == 0
			page, next, err := b.s.MembershipChanges(ctx, cursor, 7)
			if err != nil {
				t.Error(err)
				return
			}
			if next < cursor {
				t.Errorf("the cursor went from %d to %d", cursor, next)
			}
			for _, m := range page {
				seen[[2]string{m.User, m.Workspace}] = m
			}
			if cursor = next; last && len(page) == 0 {
				return
			}
		}
	})
	together(fns...)
	total := 0
	for u := range users {
		list, err := b.s.MembershipsOf(ctx, fmt.Sprint("u", u))
		if err != nil {
			t.Fatal(err)
		}
		total += len(list)
		for _, m := range list {
			if got := seen[[2]string{m.User, m.Workspace}]; !cmp.Equal(got, m) {
				t.Errorf("the reader has %+v, the store %+v", got, m)
			}
		}
	}
	if total != len(seen) || total < users*3 {
		t.Errorf("%d stored, %d seen", total, len(seen))
	}
}
