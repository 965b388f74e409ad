package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var feedTests = []test{
	{"FollowBegins", followBegins},
	{"FollowTells", followTells},
	{"FollowUnread", followUnread},
	{"FollowStops", followStops},
	{"FollowClosed", followClosed},
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// await waits for a value of a feed.
func await(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("the feed tells nothing")
	}
}

// seen waits until a follower that is told has read a change.
func seen(t *testing.T, changed <-chan struct{}, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		await(t, changed)
		if there() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("told, and never of what was changed")
		}
	}
}

func followBegins(t *testing.T, b *bench) {
	for _, subjects := range [][]store.Subject{nil, {store.SubjectRules}, {store.SubjectMembers, store.SubjectKeys}} {
		changed, stop := b.s.Follow(subjects...)
		defer stop()
		await(t, changed)
	}
}

// What is told is visible to who asks then.
func followTells(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, subjects := range [][]store.Subject{nil, {store.SubjectMembers}, {store.SubjectRules, store.SubjectMembers}} {
		changed, stop := b.s.Follow(subjects...)
		await(t, changed)
		user := fmt.Sprint("u", len(subjects))
		b.learn(user, sec(1), "w")
		seen(t, changed, func() bool {
			list, err := b.s.MembershipsOf(ctx, user)
			return err == nil && len(list) == 1
		})
		b.rule(user, "w", store.RuledOut)
		seen(t, changed, func() bool {
			list, err := b.s.Ruled(ctx, store.RuledOut)
			return err == nil && len(list) > 0 && list[len(list)-1].User == user
		})
		b.rule(user, "w", store.Unruled)
		stop()
	}
}

// Nobody waits for a follower that does not look.
func followUnread(t *testing.T, b *bench) {
	changed, stop := b.s.Follow(store.SubjectMembers)
	defer stop()
	for i := range 50 {
		b.rule("u", "w", store.Ruling(i%3))
	}
	await(t, changed)
}

func followStops(_ *testing.T, b *bench) {
	_, stop := b.s.Follow()
	stop()
	stop()
	b.learn("u", sec(1), "w")
}

// A store that is closed tells nothing, and takes followers all the same.
func followClosed(t *testing.T, b *bench) {
	_, stop := b.s.Follow()
	defer stop()
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	_, stopLate := b.s.Follow()
	defer stopLate()
}
