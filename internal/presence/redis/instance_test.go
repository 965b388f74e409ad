package redis

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// TestInstanceInUse: a second gateway with the same instance id does not start.
func TestInstanceInUse(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	a := m[0]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a's heartbeats go on
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
				w.mu.Lock()
				w.now = w.now.Add(100 * time.Millisecond)
				w.mu.Unlock()
				a.p.beat(t.Context())
			}
		}
	}()
	_, err := w.tryStart("gw0", func(o *Options) { o.Beat = 200 * time.Millisecond })
	close(done)
	<-stopped
	if !errors.Is(err, presence.ErrInstanceInUse) {
		t.Fatalf("got %v, want ErrInstanceInUse", err)
	}
	w.Advance(time.Second)
	if x.Lost() || a.Status() != nil {
		t.Error("the first one suffers")
	}
	b := w.start("gw1")
	presencetest.Take(t, b, claim("two", "agent::y"))
	presencetest.Eventually(t, "both know each other", func() bool {
		w.Advance(time.Second)
		la, _ := a.Instances()
		lb, _ := b.Instances()
		return slices.Contains(la, b.Self()) && slices.Contains(lb, a.Self()) && len(la) == 2
	})
}

// TestInstanceAfterCrash: a gateway that starts again after a crash waits until
// the old one is dead, and takes its name.
func TestInstanceAfterCrash(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	a := m[0]
	presencetest.Take(t, a, claim("one", "agent::x"))
	a.frozen.Store(true)
	started := make(chan *member, 1)
	go func() {
		m, err := w.tryStart("gw0", func(o *Options) { o.Beat = 20 * time.Millisecond })
		if err != nil {
			t.Error(err)
		}
		started <- m
	}()
	var b *member
	for b == nil {
		select {
		case b = <-started:
		case <-time.After(100 * time.Millisecond):
			w.mu.Lock()
			w.now = w.now.Add(time.Second)
			w.mu.Unlock()
		}
	}
	if t.Failed() {
		return
	}
	w.Advance(time.Second)
	presencetest.Take(t, b, claim("two", "agent::x"))

	// The old one was only stopped, and goes on: it is refused, and harms
	// nobody.
	a.frozen.Store(false)
	a.p.beat(t.Context())
	if err := a.Status(); !errors.Is(err, presence.ErrInstanceInUse) || !errors.Is(err, presence.ErrUnavailable) {
		t.Errorf("status %v", err)
	}
	unavailable(t, a, "three", "agent::z")
	if a.LostSession("one") == nil {
		t.Error("not told")
	}
	w.Advance(time.Second)
	if b.Status() != nil {
		t.Error("the new one suffers")
	}
	// When the new one ends, the old one may have its name back.
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Advance(time.Second)
	presencetest.Take(t, a, claim("four", "agent::x"))
}

// TestCloseLeavesNothing: an ordered end needs no time to be noticed.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	for _, c := range []presence.Claim{claim("one", "agent::x", "event::*"), claim("two", "agent::y")} {
		presencetest.Take(t, a, c)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	presencetest.Take(t, b, claim("three", "agent::x", "event::ws", "agent::y"))
	again := w.start("gw0") // does not wait for anything
	presencetest.Take(t, again, claim("four", "agent::z"))
	keys, err := w.raw.Keys(t.Context(), "*"+a.Self().ID+"*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
}

func TestNotStarted(t *testing.T) {
	t.Parallel()
	p, err := New(Options{URL: "redis://127.0.0.1:1", Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Acquire(t.Context(), "one", "agent::x"); !errors.Is(err, presence.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if held, certain := p.Held("agent::x"); held || certain {
		t.Errorf("held %v, certain %v", held, certain)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := New(Options{URL: "redis://127.0.0.1:1"}); err == nil {
		t.Error("accepted without an instance id")
	}
}
