package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

func claim(session string, names ...string) presence.Claim {
	return presence.Claim{SessionID: session, Names: names}
}

func unavailable(t *testing.T, m *member, session string, names ...string) *presence.UnavailableError {
	t.Helper()
	g, err := m.Claim(t.Context(), claim(session, names...))
	var u *presence.UnavailableError
	if !errors.As(err, &u) || !errors.Is(err, presence.ErrUnavailable) {
		t.Fatalf("got %+v, %v, want ErrUnavailable", g, err)
	}
	return u
}

// TestL1FirstStart: an empty Redis may be one that has lost everything.
func TestL1FirstStart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.start("a")
	if u := unavailable(t, a, "one", "agent::x"); u.RetryAfter != presence.TTL {
		t.Errorf("retry after %v", u.RetryAfter)
	}
	w.Advance(presence.TTL - time.Second)
	unavailable(t, a, "two", "agent::x")
	if err := a.Status(); !errors.Is(err, presence.ErrUnavailable) {
		t.Errorf("status %v", err)
	}
	w.Advance(time.Second)
	if err := a.Status(); err != nil {
		t.Error(err)
	}
	presencetest.Take(t, a, claim("three", "agent::x"))
	presencetest.Take(t, w.start("b"), claim("four", "agent::y")) // the second one waits for nothing
}

// lostStates are the ways in which Redis loses its state.
func lostStates() map[string]func(w *world) {
	return map[string]func(w *world){
		"flush": func(w *world) {
			if err := w.raw.FlushAll(w.t.Context()).Err(); err != nil {
				w.t.Fatal(err)
			}
		},
		"restart": func(w *world) {
			w.server.Kill()
			w.server.Start()
		},
		// A server that has loaded an old state from its disk is another
		// process with the same incarnation key.
		"old state": func(w *world) {
			if err := w.raw.HSet(w.t.Context(), "{aether}:0:inc", "run", "another").Err(); err != nil {
				w.t.Fatal(err)
			}
		},
	}
}

// beats sends heartbeats until one gets through: connections may have broken.
func (m *member) beats(t *testing.T) {
	t.Helper()
	presencetest.Eventually(t, "a heartbeat", func() bool { return m.p.beat(t.Context()) == nil })
}

func TestL1IncarnationChange(t *testing.T) {
	t.Parallel()
	for name, lose := range lostStates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, m := settled(t, 2)
			a, b := m[0], m[1]
			x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
			if err := a.Mark(x, []byte("mark")); err != nil {
				t.Fatal(err)
			}
			lose(w)
			// The newcomer is the first to see the emptied Redis, and wants
			// what a still holds.
			presencetest.Eventually(t, "b notices", func() bool {
				_, err := b.Acquire(t.Context(), "thief", "agent::x")
				if !errors.Is(err, presence.ErrUnavailable) {
					t.Fatalf("got %v", err)
				}
				return b.p.beat(t.Context()) == nil
			})
			unavailable(t, b, "thief1", "agent::x")
			unavailable(t, b, "thief2", "agent::free")
			a.frozen.Store(true) // a is late, but not too late
			w.Advance(3 * time.Second)
			unavailable(t, b, "thief3", "agent::x")
			if x.Lost() {
				t.Fatal("the lease is lost")
			}
			a.beats(t)
			a.frozen.Store(false)
			w.Advance(3 * time.Second)
			presencetest.Refused(t, b, claim("thief4", "agent::x"))
			y := presencetest.Take(t, b, claim("two", "agent::y")).Lease
			if y.Epoch <= x.Epoch {
				t.Errorf("epoch %d after %d", y.Epoch, x.Epoch)
			}
			presencetest.Eventually(t, "the directory is certain", func() bool {
				b.beats(t)
				held, certain := b.Held("agent::x")
				return held && certain
			})
			g := presencetest.Take(t, b, presence.Claim{SessionID: "three", Names: []string{"agent::x"}, Resume: "one"})
			if string(g.Watermark) != "mark" || g.Lease.Epoch <= y.Epoch {
				t.Errorf("got %+v, %q", g, g.Watermark)
			}
		})
	}
}

// TestL1EpochsAboveTheClock: an emptied Redis learns the highest epoch from
// those who register.
func TestL1EpochsAboveTheClock(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	a := m[0]
	ahead := uint64(w.Now().UnixMilli()) + 3_600_000
	if err := w.raw.Set(t.Context(), "{aether}:0:epoch", ahead, 0).Err(); err != nil {
		t.Fatal(err)
	}
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	if x.Epoch != ahead+1 {
		t.Fatalf("epoch %d, want %d", x.Epoch, ahead+1)
	}
	if err := w.raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.Advance(presence.TTL + time.Second)
	if y := presencetest.Take(t, a, claim("two", "agent::y")).Lease; y.Epoch <= x.Epoch {
		t.Errorf("epoch %d after %d", y.Epoch, x.Epoch)
	}
}

// TestL1RegisterMany: more leases than one call takes, with predecessors.
func TestL1RegisterMany(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	const n = 2*chunk + 50
	leases := make([]presence.Lease, n)
	for i := range n {
		leases[i] = presencetest.Take(t, a, claim(fmt.Sprint("s", i), fmt.Sprint("agent::", i), fmt.Sprint("event::", i))).Lease
	}
	presencetest.Take(t, a, presence.Claim{SessionID: "resumed", Names: []string{"agent::0"}, Resume: "s0"})
	if err := w.raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.Advance(presence.TTL + time.Second)
	for i := 1; i < n; i++ {
		if leases[i].Lost() {
			t.Fatalf("lease %d is lost", i)
		}
	}
	presencetest.Refused(t, b, claim("t1", "agent::1"))
	presencetest.Refused(t, b, claim("t2", fmt.Sprint("event::", n-1)))
	presencetest.Refused(t, b, claim("t3", "event::*"))
	presencetest.Take(t, b, claim("t4", "event::0"))
	presencetest.Take(t, b, presence.Claim{SessionID: "again", Names: []string{"agent::0"}, Resume: "s0"})
}

// TestL1OlderHolderLoses: two gateways register the same name; the one with
// the older epoch had lost it already.
func TestL1OlderHolderLoses(t *testing.T) {
	t.Parallel()
	for _, oldFirst := range []bool{true, false} {
		t.Run(fmt.Sprint(oldFirst), func(t *testing.T) {
			t.Parallel()
			w, m := settled(t, 2)
			a, b := m[0], m[1]
			old := presencetest.Take(t, a, claim("one", "agent::x")).Lease
			// a knows nothing of the takeover: its messages are held up.
			a.p.mu.Lock()
			h := a.p.own["one"]
			a.p.mu.Unlock()
			now := presencetest.Take(t, b, presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"}).Lease
			presencetest.Eventually(t, "a is told", old.Lost)
			a.p.mu.Lock()
			back := &held{lease: h.lease, in: h.in}
			back.lease.Hold = presence.NewHold(a.p.fence)
			a.p.own["one"], a.p.names["agent::x"] = back, back
			old = back.lease
			a.p.mu.Unlock()
			if err := w.raw.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if oldFirst {
				a.beats(t)
			}
			b.beats(t)
			w.Advance(2 * time.Second)
			presencetest.Eventually(t, "the old one is lost", old.Lost)
			if now.Lost() {
				t.Error("the new one is lost")
			}
			presencetest.Eventually(t, "a sees who holds it", func() bool {
				a.beats(t)
				e, _ := a.Lookup("agent::x")
				return e.SessionID == "two"
			})
		})
	}
}
