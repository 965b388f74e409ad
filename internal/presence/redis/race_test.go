package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// Things that happen while others are on their way.

// TestTomb: a session that was given up gets nothing, however late its claim
// is run.
func TestTomb(t *testing.T) {
	t.Parallel()
	_, m := settled(t, 2)
	a, b := m[0], m[1]
	presencetest.Take(t, a, claim("one", "agent::x"))
	a.p.mu.Lock()
	a.p.drops["late"] = ""
	a.p.mu.Unlock()
	a.beats(t)
	for _, c := range []presence.Claim{claim("late", "agent::y"), {SessionID: "late", Names: []string{"agent::x"}, Resume: "one"}} {
		if g, err := a.Claim(t.Context(), c); !errors.Is(err, presence.ErrInvalid) {
			t.Errorf("got %+v, %v", g, err)
		}
	}
	presencetest.Take(t, b, claim("two", "agent::y"))
}

// TestLostByHeartbeat: a gateway did not hear that it was taken from; its next
// heartbeat says so.
func TestLostByHeartbeat(t *testing.T) {
	t.Parallel()
	w := setup(t)
	// It needs a second to listen again.
	a := w.start("a", func(o *Options) { o.Beat = 20 * time.Second })
	b := w.start("b")
	w.Advance(presence.TTL + time.Second)
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	a.OnYield("one", nil)
	presencetest.Eventually(t, "a listens", func() bool {
		n, err := w.raw.PubSubNumSub(t.Context(), a.p.channel(a.Self().ID)).Result()
		return err == nil && n[a.p.channel(a.Self().ID)] == 1
	})
	if err := w.raw.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	presencetest.Take(t, b, presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"})
	if x.Lost() {
		t.Fatal("a has heard of it")
	}
	a.beats(t)
	if err := a.LostSession("one"); !errors.Is(err, presence.ErrSuperseded) || !x.Lost() {
		t.Errorf("told %v, lost %v", err, x.Lost())
	}
	a.beats(t)
	if n, err := w.raw.Exists(t.Context(), "{aether}:0:lost:"+a.Self().ID).Result(); err != nil || n != 0 {
		t.Errorf("it is told again and again: %v, %v", n, err)
	}
}

// TestClearedByMistake: Redis has taken a gateway for dead that is not.
func TestClearedByMistake(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	y := presencetest.Take(t, a, claim("two", "agent::y")).Lease
	if err := w.raw.ZIncrBy(t.Context(), "{aether}:0:boots", -10_000, a.Self().ID).Err(); err != nil {
		t.Fatal(err)
	}
	b.beats(t)
	presencetest.Take(t, b, claim("three", "agent::y"))
	// It cannot have been dead by its own clock, so that is set right.
	a.p.mu.Lock()
	a.p.confirmed = time.Time{}
	a.p.mu.Unlock()
	a.beats(t)
	presencetest.Refused(t, b, claim("four", "agent::x"))
	if x.Lost() || !y.Lost() {
		t.Errorf("x lost: %v, y lost: %v", x.Lost(), y.Lost())
	}
}

// TestFencedMeanwhile: the answer to a claim comes when the fence has fallen.
func TestFencedMeanwhile(t *testing.T) {
	t.Parallel()
	w := setup(t)
	proxy := faultproxy.New(t, w.server.Addr())
	a, b := w.start("a", through(proxy)), w.start("b")
	w.Advance(presence.TTL + time.Second)
	presencetest.Take(t, a, claim("warm", "agent::warm"))
	proxy.DelayDown(500 * time.Millisecond)
	result := make(chan error, 1)
	go func() {
		_, err := a.Acquire(t.Context(), "one", "agent::x")
		result <- err
	}()
	presencetest.Eventually(t, "the claim has run", func() bool {
		return w.raw.HGet(t.Context(), "{aether}:0:l", "agent::x").Val() == "one"
	})
	a.skew.Store(int64(10 * time.Second))
	if err := <-result; !errors.Is(err, presence.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	proxy.DelayDown(0)
	a.skew.Store(0)
	a.beats(t)
	presencetest.Take(t, b, claim("two", "agent::x"))
}

// TestSupersededMeanwhile: a session is taken over from before its own claim is
// answered.
func TestSupersededMeanwhile(t *testing.T) {
	t.Parallel()
	w := setup(t)
	proxy := faultproxy.New(t, w.server.Addr())
	a, b := w.start("a", through(proxy)), w.start("b")
	w.Advance(presence.TTL + time.Second)
	presencetest.Take(t, b, claim("one", "agent::x"))
	presencetest.Take(t, a, claim("warm", "agent::warm"))
	proxy.DelayDown(150 * time.Millisecond)
	result := make(chan error, 1)
	go func() {
		_, err := a.Claim(t.Context(), presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"})
		result <- err
	}()
	presencetest.Eventually(t, "the claim has run", func() bool {
		return w.raw.HGet(t.Context(), "{aether}:0:l", "agent::x").Val() == "two"
	})
	a.p.lose("two", 0) // as a heartbeat says
	if err := <-result; !errors.Is(err, presence.ErrHeld) {
		t.Errorf("got %v", err)
	}
	proxy.DelayDown(0)
	a.beats(t)
	presencetest.Take(t, b, claim("three", "agent::x"))
}

// TestMarkAfterHandOver: a renewal that was on its way does not overwrite the
// exact watermark.
func TestMarkAfterHandOver(t *testing.T) {
	t.Parallel()
	_, m := settled(t, 2)
	a, b := m[0], m[1]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	for _, call := range []struct {
		run  func() (reply, error)
		want string
	}{
		{func() (reply, error) {
			return a.p.run(t.Context(), yieldScript, a.p.incarnation, "one", decimal(x.Epoch), "exact")
		}, statusOK},
		{func() (reply, error) {
			return a.p.run(t.Context(), markScript, a.p.incarnation, "one", decimal(x.Epoch), "late")
		}, statusOK},
		{func() (reply, error) {
			return b.p.run(t.Context(), yieldScript, b.p.incarnation, "one", decimal(x.Epoch), "foreign")
		}, "LOST"},
		{func() (reply, error) {
			return a.p.run(t.Context(), yieldScript, a.p.incarnation, "one", decimal(x.Epoch-1), "old")
		}, "LOST"},
		{func() (reply, error) {
			return b.p.run(t.Context(), releaseScript, b.p.incarnation, "one", decimal(x.Epoch))
		}, statusOK}, // of no effect
	} {
		if r, err := call.run(); err != nil || r.status != call.want {
			t.Fatalf("got %q, %v, want %q", r.status, err, call.want)
		}
	}
	g := presencetest.Take(t, b, presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"})
	if !g.Exact || string(g.Watermark) != "exact" {
		t.Errorf("got %+v, %q", g, g.Watermark)
	}
}

// TestC7SilentConnection: changes do not come any more, and the connection
// looks well.
func TestC7SilentConnection(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.start("a", func(o *Options) { o.Beat = 100 * time.Millisecond })
	w.Advance(presence.TTL + time.Second)
	certain := func() bool {
		a.beats(t)
		_, certain := a.Held("agent::x")
		return certain
	}
	presencetest.Eventually(t, "certain", certain)
	if err := w.raw.Incr(t.Context(), "{aether}:0:ver").Err(); err != nil {
		t.Fatal(err)
	}
	w.Advance(presence.Staleness + time.Second)
	if _, certain := a.Held("agent::x"); certain {
		t.Error("certain without the change")
	}
	presencetest.Eventually(t, "certain again", certain)
}
