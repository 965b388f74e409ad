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

func directory(t *testing.T, w World, a, b *Member) {
	sees := func(g *Member, name, session string) {
		t.Helper()
		Eventually(t, fmt.Sprintf("%s is held by %q", name, session), func() bool {
			held, certain := g.Held(name)
			e, ok := g.Lookup(name)
			id, held2 := g.Holder(name)
			if ok != held || held2 != held || id != e.SessionID {
				return false // between two questions something has changed
			}
			return certain && held == (session != "") && e.SessionID == session
		})
	}
	w.Advance(time.Second)
	sees(b, "agent::x", "")
	one := Take(t, a, named("one", "agent::x", "event::*")).Lease
	for _, g := range []*Member{a, b} {
		sees(g, "agent::x", "one")
		sees(g, "event::ws", "one")
		sees(g, "event::*", "one")
		sees(g, "agent::y", "")
		if e, _ := g.Lookup("agent::x"); e.Instance != a.Self().ID || e.Epoch != one.Epoch {
			t.Errorf("got %+v, want %s, %d", e, a.Self().ID, one.Epoch)
		}
	}
	two := Take(t, b, resuming("one", "two", "agent::x")).Lease
	for _, g := range []*Member{a, b} {
		sees(g, "agent::x", "two")
		sees(g, "event::ws", "")
	}
	release(t, b, two)
	for _, g := range []*Member{a, b} {
		sees(g, "agent::x", "")
	}
	for _, g := range []*Member{a, b} {
		list, certain := g.Instances()
		if !certain || !slices.ContainsFunc(list, func(i presence.Instance) bool { return i == g.Self() }) {
			t.Errorf("instances: %+v, %v, without %+v", list, certain, g.Self())
		}
	}
}

func notices(t *testing.T, _ World, a, b *Member) {
	const n = 500
	got := make(chan presence.Notice, 4*n)
	stop := b.Listen("test", func(n presence.Notice) { got <- n })
	defer stop()
	send := func(to, payload string) {
		t.Helper()
		Eventually(t, "the notice is taken", func() bool {
			err := a.Send(to, "test", []byte(payload))
			if err != nil && !errors.Is(err, presence.ErrOverflow) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	// Nobody says when the other side listens; the first to arrive does.
	Eventually(t, "a notice comes", func() bool {
		send(b.Self().ID, "hello")
		return len(got) > 0
	})
	send(b.Self().ID, "begin")
	for i := range n {
		send(b.Self().ID, fmt.Sprint(i))
	}
	begun := false
	for i := 0; i < n; {
		select {
		case notice := <-got:
			switch text := string(notice.Payload); {
			case !begun:
				begun = text == "begin"
			case text != fmt.Sprint(i) || notice.From != a.Self().ID || notice.Kind != "test":
				t.Fatalf("got %q from %s, want %d", text, notice.From, i)
			default:
				i++
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("notice %d is missing", i)
		}
	}
	for _, bad := range []struct {
		kind string
		size int
	}{{"", 1}, {"presence.yield", 1}, {strings.Repeat("k", presence.MaxKind+1), 1}, {"test", presence.MaxNotice + 1}} {
		if err := a.Send("", bad.kind, make([]byte, bad.size)); !errors.Is(err, presence.ErrInvalid) {
			t.Errorf("%.20q with %d bytes: %v", bad.kind, bad.size, err)
		}
	}
	if err := a.Send("nobody", "test", nil); err != nil {
		t.Errorf("to nobody: %v", err)
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
