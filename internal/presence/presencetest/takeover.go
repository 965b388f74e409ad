package presencetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// handOver: the old session stops and hands over its exact watermark.
func handOver(t *testing.T, w World, a, b *Member) {
	old := Take(t, a, named("one", "agent::x", "agent::y")).Lease
	if err := a.Mark(old, []byte("old mark")); err != nil {
		t.Fatal(err)
	}
	w.Advance(time.Second)
	exact := []byte("exact\x00mark")
	a.OnYield("one", func(context.Context) ([]byte, bool) { return exact, true })
	g := Take(t, b, resuming("one", "two", "agent::x", "agent::y"))
	if !g.Resumed || !g.Exact || !bytes.Equal(g.Watermark, exact) {
		t.Fatalf("got %+v", g)
	}
	if g.Lease.Epoch <= old.Epoch {
		t.Fatalf("epoch %d after %d", g.Lease.Epoch, old.Epoch)
	}
	Eventually(t, "the old lease is lost", old.Lost)
	if err := a.LostSession("one"); err != nil {
		t.Errorf("a session that handed over was told that it is lost: %v", err)
	}
	if err := a.Mark(old, []byte("late")); err != nil {
		t.Fatal(err)
	}
	release(t, a, old)
	w.Advance(3 * time.Second)
	// The watermark goes with the lease.
	third := Take(t, a, resuming("two", "three", "agent::x", "agent::y"))
	if third.Exact || !bytes.Equal(third.Watermark, exact) {
		t.Fatalf("got %q, exact %v", third.Watermark, third.Exact)
	}
	Eventually(t, "two is told", func() bool { return errors.Is(b.LostSession("two"), presence.ErrSuperseded) })
	if !g.Lease.Lost() {
		t.Error("the lease of two is not lost")
	}
}

// recordedWatermark: without an answer, what was renewed last counts.
func recordedWatermark(t *testing.T, w World, a, b *Member) {
	old := Take(t, a, named("one", "agent::x")).Lease
	for i := range 3 {
		if err := a.Mark(old, fmt.Append(nil, "mark ", i)); err != nil {
			t.Fatal(err)
		}
	}
	w.Advance(time.Second)
	began := time.Now()
	a.OnYield("one", func(ctx context.Context) ([]byte, bool) {
		<-ctx.Done()
		return []byte("too late"), false
	})
	g := Take(t, b, resuming("one", "two", "agent::x"))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the takeover took %v", took)
	}
	if !g.Resumed || g.Exact || string(g.Watermark) != "mark 2" {
		t.Fatalf("got %+v with watermark %q", g, g.Watermark)
	}
	Eventually(t, "one is told", func() bool { return errors.Is(a.LostSession("one"), presence.ErrSuperseded) })
	if !old.Lost() {
		t.Error("the old lease is not lost")
	}
}

// nobodyBetween: the session that yields gives its names back, as sessions do
// at their end, and a third one claims them at that moment.
func nobodyBetween(t *testing.T, _ World, a, b *Member) {
	old := Take(t, a, named("one", "agent::x")).Lease
	a.OnYield("one", func(ctx context.Context) ([]byte, bool) {
		if err := a.Release(ctx, old); err != nil {
			t.Errorf("release: %v", err)
		}
		for i, g := range []*Member{a, b} {
			if _, err := g.Claim(ctx, named(fmt.Sprint("thief", i), "agent::x")); !errors.Is(err, presence.ErrHeld) {
				t.Errorf("a third one: %v, want ErrHeld", err)
			}
		}
		return []byte("mark"), true
	})
	if g := Take(t, b, resuming("one", "two", "agent::x")); !g.Exact {
		t.Errorf("got %+v", g)
	}
}

// takerVanishes: a session that has yielded to nobody frees its names.
func takerVanishes(t *testing.T, w World, a, b *Member) {
	old := Take(t, a, named("one", "agent::x")).Lease
	ctx, cancel := context.WithCancel(t.Context())
	a.OnYield("one", func(context.Context) ([]byte, bool) {
		cancel()
		return []byte("mark"), true
	})
	if g, err := b.Claim(ctx, resuming("one", "two", "agent::x")); !errors.Is(err, presence.ErrUnavailable) {
		t.Fatalf("got %+v, %v", g, err)
	}
	release(t, a, old)
	w.Advance(4 * time.Second)
	Take(t, b, named("three", "agent::x"))
}

func wrongResume(t *testing.T, _ World, a, b *Member) {
	lease := Take(t, a, named("one", "agent::x", "agent::y")).Lease
	other := Take(t, a, named("other", "agent::z")).Lease
	for i, c := range []presence.Claim{
		resuming("nobody", "", "agent::x"),
		resuming(strings.Repeat("one", 1000), "", "agent::x"),
		resuming("other", "", "agent::x"),             // holds another name
		resuming("one", "", "agent::z"),               // holds another name
		resuming("one", "", "agent::y"),               // not its first
		resuming("one", "", "agent::x", "agent::z"),   // a name of a third one
		resuming("other", "", "agent::z", "agent::x"), // a name of a third one
	} {
		c.SessionID = fmt.Sprint("new", i)
		Refused(t, b, c)
	}
	if lease.Lost() || other.Lost() {
		t.Error("a session was lost")
	}
	if asked := a.Asked(); len(asked) > 0 {
		t.Errorf("%q were asked to stop, in vain", asked)
	}
}

func predecessorUntilConfirmed(t *testing.T, w World, a, b *Member) {
	Take(t, a, named("one", "agent::x"))
	two := Take(t, b, resuming("one", "two", "agent::x")).Lease
	// The client has not seen the answer, and comes again with what it knows.
	three := Take(t, a, resuming("one", "three", "agent::x")).Lease
	// One that has seen two's answer.
	four := Take(t, b, resuming("two", "four", "agent::x")).Lease
	for _, lease := range []presence.Lease{two, three} {
		Eventually(t, "lost", lease.Lost)
	}
	a.Confirm(three) // late: of no effect
	five := Take(t, a, resuming("one", "five", "agent::x")).Lease
	Eventually(t, "lost", four.Lost)
	a.Confirm(five)
	w.Advance(time.Second)
	Eventually(t, "the predecessors count no longer", func() bool {
		_, err := b.Find(t.Context(), "one")
		return errors.Is(err, presence.ErrNotFound)
	})
	for i, id := range []string{"one", "two", "three", "four"} {
		Refused(t, b, resuming(id, fmt.Sprint("late", i), "agent::x"))
	}
	Take(t, b, resuming("five", "six", "agent::x"))
}

// confirmedGoesOn: a predecessor's id comes when the first frame has, and only
// the holder's gateway knows of it. The holder is not stopped for a claim that
// is refused.
func confirmedGoesOn(t *testing.T, w World, a, b *Member) {
	Take(t, a, named("one", "agent::x"))
	two := Take(t, b, resuming("one", "two", "agent::x")).Lease
	b.Confirm(two)
	Refused(t, a, resuming("one", "late", "agent::x"))
	Refused(t, b, resuming("one", "later", "agent::x"))
	if slices.Contains(b.Asked(), "two") || two.Lost() {
		t.Fatal("the holder was stopped in vain")
	}
	w.Advance(time.Second)
	Refused(t, a, resuming("one", "latest", "agent::x"))
	Take(t, a, resuming("two", "three", "agent::x"))
}

// claimBeforeFrame: the first frame comes while the holder stops for a claim
// with its predecessor's id: the claim was first.
func claimBeforeFrame(t *testing.T, w World, a, b *Member) {
	Take(t, a, named("one", "agent::x"))
	two := Take(t, b, resuming("one", "two", "agent::x")).Lease
	b.OnYield("two", func(context.Context) ([]byte, bool) {
		b.Confirm(two)
		w.Advance(time.Second)
		return []byte("mark"), true
	})
	if g := Take(t, a, resuming("one", "three", "agent::x")); !g.Exact || string(g.Watermark) != "mark" {
		t.Fatalf("got %+v", g)
	}
	Eventually(t, "lost", two.Lost)
}

func resumeAfterEnd(t *testing.T, _ World, a, b *Member) {
	lease := Take(t, a, named("one", "ta::w::i::7", "agent::y")).Lease
	if err := a.Mark(lease, []byte("mark")); err != nil {
		t.Fatal(err)
	}
	release(t, a, lease)
	h, err := b.Find(t.Context(), "one")
	if err != nil || !h.Ended || h.SessionID != "one" || !slices.Equal(h.Names, []string{"ta::w::i::7", "agent::y"}) {
		t.Fatalf("got %+v, %v", h, err)
	}
	if g := Take(t, b, resuming("one", "other", "agent::y")); g.Resumed {
		t.Error("resumed under another first name")
	}
	g := Take(t, b, resuming("one", "two", "ta::w::i::7"))
	if !g.Resumed || g.Exact || string(g.Watermark) != "mark" {
		t.Fatalf("got %+v with %q", g, g.Watermark)
	}
	// The client has not seen the answer.
	three := Take(t, a, resuming("one", "three", "ta::w::i::7"))
	if !three.Resumed {
		t.Fatal("not resumed")
	}
	if g := Take(t, a, resuming("unknown", "four", "agent::z")); g.Resumed || g.Watermark != nil {
		t.Errorf("got %+v", g)
	}
	release(t, a, three.Lease)
}

func resumeOtherNames(t *testing.T, _ World, a, b *Member) {
	Take(t, a, named("one", "wf::1", "event::a", "event::b"))
	g := Take(t, b, resuming("one", "two", "wf::1", "event::b", "event::c"))
	if !g.Resumed {
		t.Error("not resumed")
	}
	Take(t, a, named("three", "event::a"))
	Refused(t, a, named("four", "event::b"))
	Refused(t, a, named("five", "event::c"))
	Refused(t, a, resuming("two", "six", "wf::1", "event::a"))
	release(t, b, g.Lease)
	Take(t, a, named("seven", "wf::1", "event::b", "event::c"))
}

func find(t *testing.T, _ World, a, b *Member) {
	one := Take(t, a, named("one", "agent::x", "agent::y")).Lease
	h, err := b.Find(t.Context(), "one")
	if err != nil || h.SessionID != "one" || h.Ended || h.Epoch != one.Epoch || !slices.Equal(h.Names, one.Names) {
		t.Fatalf("got %+v, %v", h, err)
	}
	two := Take(t, b, resuming("one", "two", "agent::x", "agent::y")).Lease
	if h, err := a.Find(t.Context(), "one"); err != nil || h.SessionID != "two" || h.Epoch != two.Epoch {
		t.Fatalf("of the predecessor: got %+v, %v", h, err)
	}
	for _, id := range []string{"", "nobody", strings.Repeat("x", 5000)} {
		if h, err := a.Find(t.Context(), id); !errors.Is(err, presence.ErrNotFound) {
			t.Errorf("%.10q: got %+v, %v", id, h, err)
		}
	}
}

// oneResumes: many resume the same session at once. However many have
// succeeded one after the other, one has the name at the end.
func oneResumes(t *testing.T, w World, a, b *Member) {
	for round := range 5 {
		name, first := fmt.Sprint("agent::", round), fmt.Sprint("first", round)
		leases := []presence.Lease{Take(t, a, named(first, name)).Lease}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for r := range 20 {
			g := []*Member{a, b}[r%2]
			id := fmt.Sprintf("%d/%d", round, r)
			g.OnYield(id, func(context.Context) ([]byte, bool) { return []byte(id), true })
			wg.Go(func() {
				grant, err := g.Claim(t.Context(), resuming(first, id, name))
				if err != nil {
					if !errors.Is(err, presence.ErrHeld) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				leases = append(leases, grant.Lease)
			})
		}
		wg.Wait()
		w.Advance(time.Second)
		Eventually(t, "one is left", func() bool {
			left := slices.DeleteFunc(slices.Clone(leases), presence.Lease.Lost)
			return len(left) == 1
		})
		left := slices.DeleteFunc(slices.Clone(leases), presence.Lease.Lost)[0]
		for _, lease := range leases {
			if lease.Epoch > left.Epoch {
				t.Errorf("epoch %d is lost, %d is left", lease.Epoch, left.Epoch)
			}
		}
		if h, err := a.Find(t.Context(), left.SessionID); err != nil || h.SessionID != left.SessionID {
			t.Errorf("got %+v, %v", h, err)
		}
	}
}
