package local

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// TestForgets: a session that has ended is remembered for a while, and not
// more than maxGone of them.
func TestForgets(t *testing.T) {
	t.Parallel()
	w := &world{now: time.Unix(1_800_000_000, 0)}
	l := New(w.Now)
	end := func(id string) {
		t.Helper()
		lease, err := l.Acquire(t.Context(), id, "agent::x")
		if err == nil {
			err = l.Release(t.Context(), lease)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	end("one")
	w.Advance(presence.Remembered - 1)
	if h, err := l.Find(t.Context(), "one"); err != nil || !h.Ended {
		t.Fatalf("got %+v, %v", h, err)
	}
	w.Advance(1)
	if _, err := l.Find(t.Context(), "one"); !errors.Is(err, presence.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	if g := presencetest.Take(t, l, presence.Claim{SessionID: "late", Names: []string{"agent::y"}, Resume: "one"}); g.Resumed {
		t.Error("resumed what is forgotten")
	}
	for i := range maxGone + 10 {
		end(fmt.Sprint("s", i))
	}
	if len(l.gone) > maxGone || len(l.goneIDs) > maxGone {
		t.Errorf("%d are remembered", len(l.gone))
	}
	if len(l.sessions) != 1 || len(l.held) != 1 || len(l.aliases) != 0 {
		t.Errorf("left: %d sessions, %d names, %d aliases", len(l.sessions), len(l.held), len(l.aliases))
	}
}

// TestWithoutHandler: a session is taken over without its knowledge.
func TestWithoutHandler(t *testing.T) {
	t.Parallel()
	l := New(nil)
	old := presencetest.Take(t, l, presence.Claim{SessionID: "one", Names: []string{"agent::x"}}).Lease
	g := presencetest.Take(t, l, presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"})
	if !g.Resumed || g.Exact || !old.Lost() {
		t.Errorf("got %+v, lost %v", g, old.Lost())
	}
	if err := l.Status(); err != nil || l.Fence() != nil {
		t.Errorf("status %v, fence %v", err, l.Fence())
	}
}
