package redis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// TestL2Stopped: a process is stopped and goes on ten seconds later; others
// have taken its lease meanwhile. Whatever it does first, nothing has an effect.
func TestL2Stopped(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	y := presencetest.Take(t, a, claim("two", "agent::y")).Lease
	if err := a.Mark(y, []byte("before the stop")); err != nil {
		t.Fatal(err)
	}
	w.Advance(time.Second)
	a.frozen.Store(true)
	a.skew.Store(int64(-4 * time.Second)) // its clock stands still, as far as it knows
	w.Advance(4 * time.Second)
	presencetest.Refused(t, b, claim("early", "agent::x"))
	w.Advance(time.Second)
	taken := presencetest.Take(t, b, claim("three", "agent::x")).Lease
	if y.Lost() {
		t.Fatal("the test is wrong: the stopped process has looked at its clock")
	}

	a.skew.Store(0) // SIGCONT
	if !x.Lost() || !y.Lost() || !a.Fence().Fenced() {
		t.Fatal("the first look at a lease does not see that it is lost")
	}
	if err := a.Mark(y, []byte("after the stop")); err != nil {
		t.Fatal(err)
	}
	unavailable(t, a, "four", "agent::z")
	a.frozen.Store(false)
	old := a.Fence()
	a.beats(t)
	<-old.Done()
	if err := a.LostSession("one"); err == nil { // by the fence, or because of the other holder
		t.Error("one was not told")
	}
	if err := a.LostSession("two"); !errors.Is(err, presence.ErrFenced) {
		t.Errorf("two: %v", err)
	}
	if !x.Lost() || !y.Lost() {
		t.Error("a lease has come back with the network")
	}
	if held, _ := a.Held("agent::y"); held {
		t.Error("a counts a lost name as held")
	}
	if taken.Lost() {
		t.Error("the new holder has lost the lease")
	}
	w.Advance(time.Second)
	presencetest.Take(t, a, claim("five", "agent::z")) // a is well again
	g := presencetest.Take(t, b, presence.Claim{SessionID: "six", Names: []string{"agent::y"}, Resume: "two"})
	if !g.Resumed || string(g.Watermark) != "before the stop" {
		t.Errorf("got %+v, %q", g, g.Watermark)
	}
	if err := a.Release(t.Context(), x); err != nil {
		t.Error(err)
	}
	presencetest.Refused(t, a, claim("seven", "agent::x"))
}

// TestL2Gap: a heartbeat that is confirmed after the fence has fallen does not
// raise it again for what it covered.
func TestL2Gap(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	a := m[0]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	a.frozen.Store(true)
	w.Advance(presence.FenceAfter)
	a.beats(t) // nobody has looked at the fence
	if !x.Lost() {
		t.Fatal("the lease has survived")
	}
	presencetest.Take(t, a, claim("two", "agent::x"))
}

// TestL2DeadInstance: what a crashed gateway held is free five seconds after
// its last heartbeat, and cleared away.
func TestL2DeadInstance(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 3)
	a, b, c := m[0], m[1], m[2]
	const n = 450
	for i := range n {
		presencetest.Take(t, a, claim(fmt.Sprint("s", i), fmt.Sprint("agent::", i)))
	}
	wild := presencetest.Take(t, a, claim("w", "wf::1", "event::*")).Lease
	if err := a.Mark(wild, []byte("mark")); err != nil {
		t.Fatal(err)
	}
	w.Advance(time.Second)
	presencetest.Eventually(t, "b knows the names", func() bool { return b.p.dir.size() == n+2 })
	gone := make(chan presence.Notice, 1)
	b.Listen(presence.KindGone, func(n presence.Notice) { gone <- n })

	a.frozen.Store(true)
	w.Advance(4 * time.Second)
	presencetest.Refused(t, b, claim("early", "event::ws"))
	if held, certain := b.Held("agent::7"); !held || !certain {
		t.Fatalf("held %v, certain %v", held, certain)
	}
	w.Advance(time.Second)
	presencetest.Take(t, b, claim("now", "event::ws"))
	presencetest.Refused(t, c, claim("late", "event::*"))
	presencetest.Take(t, c, claim("now2", "agent::7"))
	if n := <-gone; n.From != a.Self().ID || string(n.Payload) != "gw0" {
		t.Errorf("got %+v", n)
	}
	if held, certain := b.Held("agent::8"); held || !certain {
		t.Errorf("held %v, certain %v", held, certain)
	}
	g := presencetest.Take(t, b, presence.Claim{SessionID: "w2", Names: []string{"wf::1"}, Resume: "w"})
	if !g.Resumed || string(g.Watermark) != "mark" {
		t.Errorf("got %+v, %q", g, g.Watermark)
	}
	presencetest.Eventually(t, "everything of it is gone", func() bool {
		w.Advance(time.Second)
		return b.p.dir.size() == 3 && c.p.dir.size() == 3
	})
	keys, err := w.raw.Keys(t.Context(), "*"+a.Self().ID+"*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
}

// TestL4DeadInstance: with its id a session comes back at once, while its dead
// gateway still counts as alive.
func TestL4DeadInstance(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	if err := a.Mark(x, []byte("mark")); err != nil {
		t.Fatal(err)
	}
	w.Advance(time.Second)
	a.frozen.Store(true)
	// It does not listen any more, or hangs.
	a.OnYield("one", func(ctx context.Context) ([]byte, bool) {
		<-ctx.Done()
		return nil, false
	})
	w.Advance(2 * time.Second)
	began := time.Now()
	g := presencetest.Take(t, b, presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"})
	t.Logf("taken over after %v", time.Since(began))
	if !g.Resumed || g.Exact || string(g.Watermark) != "mark" {
		t.Errorf("got %+v, %q", g, g.Watermark)
	}
}

// TestServerClock: a step of the server's clock kills nobody and keeps nobody
// alive.
func TestServerClock(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			w, m := settled(t, 3)
			a, b, c := m[0], m[1], m[2]
			x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
			presencetest.Take(t, c, claim("two", "agent::y"))
			w.Advance(time.Second)
			c.frozen.Store(true) // c is dead from now on
			w.mu.Lock()
			w.now = w.now.Add(step)
			for _, m := range w.members {
				m.skew.Add(int64(-step))
			}
			w.mu.Unlock()
			// Before its next heartbeat nobody hands out anything of others.
			if _, err := b.Acquire(t.Context(), "thief", "agent::x"); err == nil {
				t.Fatal("taken from a live gateway")
			}
			w.Advance(time.Second)
			presencetest.Refused(t, b, claim("thief2", "agent::x"))
			w.Advance(2 * time.Second)
			presencetest.Refused(t, b, claim("thief3", "agent::y"))
			w.Advance(3 * time.Second)
			presencetest.Take(t, b, claim("three", "agent::y"))
			presencetest.Refused(t, b, claim("thief4", "agent::x"))
			if x.Lost() {
				t.Error("lost")
			}
		})
	}
}
