package presencetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Run runs the suite; each test has a world of its own.
func Run(t *testing.T, setup func(t *testing.T) World) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, w World, a, b *Member)
	}{
		{"AllOrNone", allOrNone},
		{"Wildcards", wildcards},
		{"L1Epochs", epochs},
		{"ReleaseOfOldLease", releaseOfOldLease},
		{"InvalidClaims", invalidClaims},
		{"L4HandOver", handOver},
		{"L4RecordedWatermark", recordedWatermark},
		{"L4NobodyBetween", nobodyBetween},
		{"L4TakerVanishes", takerVanishes},
		{"L5WrongResume", wrongResume},
		{"L5PredecessorUntilConfirmed", predecessorUntilConfirmed},
		{"L5ConfirmedGoesOn", confirmedGoesOn},
		{"L5ClaimBeforeFrame", claimBeforeFrame},
		{"ResumeAfterEnd", resumeAfterEnd},
		{"ResumeOtherNames", resumeOtherNames},
		{"Find", find},
		{"C7Directory", directory},
		{"Notices", notices},
		{"OneWinner", oneWinner},
		{"OneResumes", oneResumes},
		{"Close", closing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			a, b := w.Gateways()
			c.test(t, w, a, b)
		})
	}
}

func allOrNone(t *testing.T, _ World, a, b *Member) {
	lease := Take(t, a, named("one", "agent::x", "agent::y")).Lease
	_, err := b.Acquire(t.Context(), "two", "agent::z", "agent::y")
	var held *presence.HeldError
	if !errors.As(err, &held) || held.SessionID != "one" || !errors.Is(err, presence.ErrHeld) {
		t.Fatalf("got %v, want that one holds it", err)
	}
	if strings.Contains(err.Error(), "one") {
		t.Errorf("%q tells the session id", err)
	}
	third := Take(t, b, named("three", "agent::z")).Lease // two has got nothing
	release(t, a, lease)
	if !lease.Lost() {
		t.Error("a released lease is not lost")
	}
	Take(t, b, named("four", "agent::y", "agent::x"))
	release(t, b, third)
	Take(t, a, named("five", "agent::z"))
}

func wildcards(t *testing.T, _ World, a, b *Member) {
	w := Take(t, a, named("w", "wf::1", "event::*")).Lease
	for i, name := range []string{"event::ws", "event::ws::x", "event::", "event::*", "event::ws::*"} {
		Refused(t, b, named(fmt.Sprint("r", i), name))
	}
	for i, name := range []string{"event", "event:", "events::ws", "xevent::ws", "event:*"} {
		Take(t, b, named(fmt.Sprint("f", i), name))
	}
	release(t, a, w)
	ws := Take(t, b, named("ws", "event::ws::x")).Lease
	Refused(t, a, named("w2", "event::*"))
	Refused(t, a, named("w3", "event::ws::*"))
	Refused(t, a, named("w4", "wf::1", "event::*"))
	Take(t, a, named("w5", "event::other::*", "wf::1"))
	Refused(t, a, named("w6", "event::*"))
	release(t, b, ws)
	Refused(t, b, named("w7", "event::*"))
	Take(t, b, named("both", "mine::*", "mine::x")) // one session, one lease
	Refused(t, a, named("w8", "mine::x"))
}

func epochs(t *testing.T, w World, a, b *Member) {
	last := uint64(0)
	for i := range 20 {
		g := Take(t, []*Member{a, b}[i%2], named(fmt.Sprint("s", i), "agent::x"))
		if g.Lease.Epoch <= last || g.Lease.Epoch < uint64(w.Now().UnixMilli()) {
			t.Fatalf("epoch %d after %d at %d", g.Lease.Epoch, last, w.Now().UnixMilli())
		}
		last = g.Lease.Epoch
		release(t, []*Member{a, b}[i%2], g.Lease)
	}
}

func releaseOfOldLease(t *testing.T, _ World, a, b *Member) {
	old := Take(t, a, named("one", "agent::x")).Lease
	now := Take(t, b, resuming("one", "two", "agent::x")).Lease
	release(t, a, old)
	release(t, b, presence.Lease{SessionID: "two", Names: []string{"agent::x"}, Epoch: now.Epoch - 1})
	Refused(t, a, named("three", "agent::x"))
	release(t, b, now)
	release(t, b, now)
	Take(t, a, named("four", "agent::x"))
}

func invalidClaims(t *testing.T, _ World, a, _ *Member) {
	Take(t, a, named("used", "agent::used"))
	for what, c := range map[string]presence.Claim{
		"no session":       named("", "agent::x"),
		"long session":     named(strings.Repeat("s", presence.MaxSessionID+1), "agent::x"),
		"control":          named("s\n", "agent::x"),
		"no names":         named("s"),
		"an empty name":    named("s", "agent::x", ""),
		"a long name":      named("s", strings.Repeat("n", presence.MaxName+1)),
		"not UTF-8":        named("s", "agent::\xff"),
		"control in name":  named("s", "agent::\x00"),
		"too many names":   named("s", slices.Repeat([]string{"n"}, presence.MaxNames+1)...),
		"a session in use": named("used", "agent::x"),
	} {
		if _, err := a.Claim(t.Context(), c); !errors.Is(err, presence.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	lease := Take(t, a, named("ok", "agent::x")).Lease
	if err := a.Mark(lease, make([]byte, presence.MaxWatermark+1)); !errors.Is(err, presence.ErrInvalid) {
		t.Errorf("a long watermark: got %v", err)
	}
}

// oneWinner: racers over both gateways; peer fault 11.
func oneWinner(t *testing.T, _ World, a, b *Member) {
	const racers, rounds = 20, 50
	for round := range rounds {
		var wins sync.Map
		var wg sync.WaitGroup
		for r := range racers {
			g := []*Member{a, b}[r%2]
			wg.Go(func() {
				lease, err := g.Acquire(t.Context(), fmt.Sprintf("%d/%d", round, r), "agent::x", fmt.Sprint("agent::", r%3))
				switch {
				case err == nil:
					wins.Store(r, lease)
				case !errors.Is(err, presence.ErrHeld):
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		n := 0
		wins.Range(func(r, lease any) bool {
			n++
			release(t, []*Member{a, b}[r.(int)%2], lease.(presence.Lease))
			return true
		})
		if n != 1 {
			t.Fatalf("round %d: %d winners", round, n)
		}
	}
}

func closing(t *testing.T, _ World, a, b *Member) {
	lease := Take(t, a, named("one", "agent::x")).Lease
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !lease.Lost() {
		t.Error("the lease is not lost")
	}
	if err := a.LostSession("one"); err != nil {
		t.Errorf("told at Close: %v", err)
	}
	if _, err := a.Acquire(t.Context(), "two", "agent::y"); !errors.Is(err, presence.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if err := a.Status(); !errors.Is(err, presence.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if a.Gateway != b.Gateway {
		Take(t, b, named("three", "agent::x")) // at once
	}
	if err := a.Close(t.Context()); err != nil {
		t.Errorf("closed again: %v", err)
	}
}
