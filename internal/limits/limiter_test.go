package limits

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/local"
)

func TestBurstThenRate(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{Identity: Rate{Messages: 1000}})
	f := &flow{a: w.open(0, Party{Identity: "a"}), rate: 50_000}
	w.run(10*time.Millisecond, f)
	if f.ok != 500 {
		t.Fatalf("of 500 at once %d pass", f.ok)
	}
	w.run(990*time.Millisecond, f)
	within(t, "the burst and a second", float64(f.ok), 3000, 0.01)
	f.ok = 0
	w.run(5*time.Second, f)
	within(t, "five seconds", float64(f.ok), 5000, 0.01)
	if v := f.last; v.Scope != Identity || v.Unit != Messages || v.Limit != 1000 || v.After < time.Millisecond || v.After > 2*time.Millisecond {
		t.Errorf("told %+v", v)
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{Identity: Rate{Bytes: 1 << 20}})
	a := w.open(0, Party{Identity: "a"})
	if v := a.Take("", 5<<20); v.Refused {
		t.Fatal("what is larger than all that can be saved up never passes")
	}
	v := a.Take("", 1)
	if !v.Refused || v.Unit != Bytes || v.After < 3*time.Second {
		t.Fatalf("it has not been paid for: %+v", v)
	}
	w.advance(v.After)
	if v := a.Take("", 1); v.Refused {
		t.Errorf("refused after the time that was told: %+v", v)
	}
}

// Row 19 of what others are complained of: only the offender is refused, and
// takes nothing from those with whom it shares a limit.
func TestRow19OnlyTheOffender(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{Identity: Rate{Messages: 100}, Source: Rate{Messages: 300}, Workspace: Rate{Messages: 500}})
	noisy := &flow{a: w.open(0, Party{Identity: "a", Source: "s", Workspace: "w"}), in: "w", rate: 20_000}
	quiet := &flow{a: w.open(0, Party{Identity: "b", Source: "s", Workspace: "w"}), in: "w", rate: 90}
	other := &flow{a: w.open(0, Party{Identity: "c", Source: "z", Workspace: "w"}), in: "w", rate: 90}
	w.run(10*time.Second, noisy, quiet, other)
	within(t, "the noisy one", float64(noisy.ok), 1200, 0.01)
	for _, f := range []*flow{quiet, other} {
		if f.last.Refused || f.ok < 890 {
			t.Errorf("a quiet one: %d pass, refused %+v", f.ok, f.last)
		}
	}
	if got := w.gateways[0].Refused(); got[Identity] == 0 || got[Source] != 0 || got[Workspace] != 0 {
		t.Errorf("refused %v", got)
	}
}

// One token with a thousand windows is one source.
func TestOneSource(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{Identity: Rate{Messages: 1000}, Source: Rate{Messages: 1000}})
	var flows []*flow
	for i := range 1000 {
		flows = append(flows, &flow{a: w.open(0, Party{Identity: fmt.Sprint("us::u::", i), Source: "user u"}), rate: 100})
	}
	w.run(3*time.Second, flows...)
	total := 0
	for _, f := range flows {
		total += f.ok
	}
	within(t, "all windows", float64(total), 5000, 0.01)
	if flows[999].last.Scope != Source && flows[0].last.Scope != Source {
		t.Errorf("told %+v", flows[0].last)
	}
}

func TestReconnectingGainsNothing(t *testing.T) {
	t.Parallel()
	for _, gateways := range []int{1, 2} {
		w := setup(t, gateways, Options{Identity: Rate{Messages: 1000}})
		total := 0
		for i := range 50 {
			f := &flow{a: w.open(i%gateways, Party{Identity: "a"}), rate: 50_000}
			w.run(100*time.Millisecond, f)
			total += f.ok
			f.a.Close()
			w.advance(10 * time.Millisecond)
		}
		within(t, fmt.Sprintf("5.5 s over %d gateways", gateways), float64(total), 2000+5500, 0.1)
	}
}

func TestTwoGatewaysHoldOneLimit(t *testing.T) {
	t.Parallel()
	w := setup(t, 2, Options{Source: Rate{Messages: 1000, Bytes: 1 << 20}})
	a := &flow{a: w.open(0, Party{Source: "s"}), size: 100}
	b := &flow{a: w.open(1, Party{Source: "s"}), size: 100}
	phase := func(what string, ra, rb, wantA, wantB float64) {
		t.Helper()
		a.rate, b.rate = ra, rb
		w.run(time.Second, a, b) // what was saved up, and the change
		a.ok, b.ok = 0, 0
		w.run(4*time.Second, a, b)
		within(t, what+", on the first", float64(a.ok), 4*wantA, 0.1)
		within(t, what+", on the second", float64(b.ok), 4*wantB, 0.1)
		within(t, what+", in all", float64(a.ok+b.ok), 4*(wantA+wantB), 0.02)
	}
	w.run(3*time.Second, &flow{a: a.a, rate: 20_000, size: 100})
	phase("both", 10_000, 10_000, 500, 500)
	phase("unequal", 20_000, 2000, 500, 500)
	phase("one wants little", 20_000, 200, 800, 200)
	phase("all on one", 20_000, 0, 1000, 0)
	phase("moved", 0, 20_000, 0, 1000)
	phase("moved back", 20_000, 0, 1000, 0)
}

// Every window of some seconds obeys the limit while the load moves to and fro.
func TestMovingLoad(t *testing.T) {
	t.Parallel()
	w := setup(t, 3, Options{Workspace: Rate{Messages: 2000}})
	var flows []*flow
	for i := range 3 {
		flows = append(flows, &flow{a: w.open(i, Party{Workspace: "w"}), in: "w"})
	}
	flows[0].rate = 50_000
	w.run(4*time.Second, flows...)
	for i := range 10 {
		before := 0
		for j, f := range flows {
			f.rate = 0
			if j == i%3 {
				f.rate = 30_000
			}
			before += f.ok
		}
		w.run(2*time.Second, flows...)
		after := 0
		for _, f := range flows {
			after += f.ok
		}
		within(t, fmt.Sprint("two seconds, turn ", i), float64(after-before), 4000, 0.1)
	}
}

// Without the counters each gateway keeps its part, so the limit holds; what
// was used meanwhile does not come back as a debt of long ago.
func TestCountersAway(t *testing.T) {
	t.Parallel()
	w := setup(t, 2, Options{Source: Rate{Messages: 1000}})
	a := &flow{a: w.open(0, Party{Source: "s"}), rate: 5000}
	b := &flow{a: w.open(1, Party{Source: "s"}), rate: 5000}
	w.run(4*time.Second, a, b)
	w.away.Store(true)
	a.ok, b.ok = 0, 0
	w.run(10*time.Second, a, b)
	within(t, "without counters", float64(a.ok+b.ok), 10_000, 0.1)
	c := &flow{a: w.open(1, Party{Source: "new"}), rate: 5000}
	w.run(10*time.Second, c)
	within(t, "who begins then has an even part", float64(c.ok), 500*(10+burstSeconds), 0.1)
	w.away.Store(false)
	w.run(3*time.Second, a, b)
	a.ok, b.ok = 0, 0
	w.run(4*time.Second, a, b)
	within(t, "with counters again", float64(a.ok+b.ok), 4000, 0.1)
}

// Who sends seldom is not refused, on whatever gateway, and has all that can be
// saved up.
func TestSeldomSendersHaveTheirBurst(t *testing.T) {
	t.Parallel()
	w := setup(t, 2, Options{Identity: Rate{Messages: 100}, Source: Rate{Messages: 100}})
	a := w.open(0, Party{Identity: "a", Source: "s"})
	for i := range 5 {
		for range 200 {
			if v := a.Take("", 1); v.Refused {
				t.Fatalf("burst %d: %+v", i, v)
			}
		}
		w.advance(5 * time.Second)
	}
}

func TestVisitedWorkspaces(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{Workspace: Rate{Messages: 10}})
	a := w.open(0, Party{Identity: "sv::i::s"})
	for i := range 200 {
		for range 20 {
			if v := a.Take(fmt.Sprint("w", i), 1); v.Refused {
				t.Fatalf("workspace %d: %+v", i, v)
			}
		}
		if v := a.Take(fmt.Sprint("w", i), 1); !v.Refused || v.Scope != Workspace {
			t.Fatalf("workspace %d: %+v", i, v)
		}
	}
	if v := a.Take("w0", 1); !v.Refused {
		t.Error("what was used is forgotten with the place at hand")
	}
	if v := a.Take("", 1); v.Refused {
		t.Error("no workspace, no limit of one")
	}
	if n := w.gateways[0].Len(); n != 200 {
		t.Errorf("%d buckets", n)
	}
	a.Close()
	a.Close()
	w.advance(3 * time.Second)
	if n := w.gateways[0].Len(); n != 0 {
		t.Errorf("%d buckets are kept", n)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	w := setup(t, 2, Options{SourceSessions: 3, WorkspaceSessions: 4})
	try := func(gateway int, p Party) (*Account, error) {
		return w.gateways[gateway].Open(t.Context(), p)
	}
	var open []*Account
	for i := range 3 {
		open = append(open, w.open(i%2, Party{Identity: fmt.Sprint("i", i), Source: "s", Workspace: "w"}))
	}
	var crowd *SessionsError
	if _, err := try(0, Party{Identity: "x", Source: "s", Workspace: "other"}); !errors.As(err, &crowd) || crowd.Scope != Source || crowd.Limit != 3 {
		t.Errorf("a fourth session of a credential: %v", err)
	}
	open = append(open, w.open(0, Party{Identity: "y", Source: "t", Workspace: "w"}))
	if _, err := try(1, Party{Identity: "z", Source: "u", Workspace: "w"}); !errors.As(err, &crowd) || crowd.Scope != Workspace {
		t.Errorf("a fifth session of a workspace: %v", err)
	}
	resumed, err := try(1, Party{Identity: "y", Source: "t", Workspace: "w", Resumed: true})
	if err != nil {
		t.Errorf("a session that takes the place of another one: %v", err)
	}
	resumed.Close()
	open[0].Close()
	w.advance(200 * time.Millisecond)
	open[0] = w.open(1, Party{Identity: "z", Source: "u", Workspace: "w"})
	for _, a := range open {
		a.Close()
	}
	w.advance(200 * time.Millisecond)
	for i, l := range w.gateways {
		if n := l.Len(); n != 0 {
			t.Errorf("gateway %d keeps %d buckets", i, n)
		}
	}
	if n := w.counters.Len(); n != 0 {
		t.Errorf("%d counters are kept", n)
	}
}

// A hundred thousand identities that come, send and go leave nothing, nor do
// ten thousand on two gateways.
func TestChurnLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, gateways := range []int{1, 2} {
		w := setup(t, gateways, Options{Identity: Rate{Messages: 1000, Bytes: 1 << 20}, Source: Rate{Messages: 1000}, Workspace: Rate{Messages: 1e6}, WorkspaceSessions: 100})
		for i := range 100_000 / (9*gateways - 8) {
			p := Party{Identity: fmt.Sprint("ag::w::i::", i), Source: fmt.Sprint("token ", i), Workspace: "w"}
			a := w.open(i%gateways, p)
			for range 3 {
				if v := a.Take("w", 100); v.Refused {
					t.Fatalf("identity %d: %+v", i, v)
				}
			}
			a.Close()
			if i%100 == 0 {
				w.advance(10 * time.Millisecond)
			}
			if n := w.gateways[i%gateways].Len(); n > 25_000 { // what a second brings
				t.Fatalf("%d buckets after %d identities", n, i)
			}
		}
		w.advance(5 * time.Second)
		for i, l := range w.gateways {
			if n, touched := l.Len(), len(l.touched); n != 0 || touched != 0 || len(l.idle) != 0 || len(l.shared) != 0 {
				t.Errorf("gateway %d of %d keeps %d buckets, %d touched, %d idle, %d shared", i, gateways, n, touched, len(l.idle), len(l.shared))
			}
		}
		if n := w.counters.Len(); n != 0 {
			t.Errorf("%d counters are kept", n)
		}
	}
}

// Past the bound of what is kept of those who have left, what they used is kept
// in coarse buckets: nobody gets rid of a debt by bringing in many others.
func TestFoldedDebtsCount(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{Identity: Rate{Messages: 10}})
	l := w.gateways[0]
	l.maxIdle = 500
	spend := func(name string) {
		a := w.open(0, Party{Identity: name})
		for !a.Take("", 1).Refused {
		}
		a.Close()
	}
	spend("offender")
	for i := range 2 * l.maxIdle {
		spend(fmt.Sprint("other", i))
	}
	if n := l.Len(); n > l.maxIdle {
		t.Errorf("%d buckets", n)
	}
	l.mu.Lock()
	if b := l.buckets[bucketName{Identity, "offender"}]; b != nil {
		l.fold(b)
	}
	l.mu.Unlock()
	if a := w.open(0, Party{Identity: "offender"}); !a.Take("", 1).Refused {
		t.Error("its debt is forgotten")
	}
	w.advance(3 * time.Second)
	if a := w.open(0, Party{Identity: "another"}); a.Take("", 1).Refused {
		t.Error("a debt is kept for longer than it lasts")
	}
}

// A limiter with its own clock and goroutine, over two gateways, in real time:
// the answers come, and Close ends it.
func TestRealTime(t *testing.T) {
	t.Parallel()
	c := local.NewCounters(nil)
	o := Options{Source: Rate{Messages: 500}, SourceSessions: 2}
	o.Counters = c.Of("a")
	a := New(o)
	defer a.Close()
	o.Counters = c.Of("b")
	b := New(o)
	defer b.Close()
	var accounts []*Account
	for _, l := range []*Limiter{a, b} {
		account, err := l.Open(t.Context(), Party{Source: "s"})
		if err != nil {
			t.Fatal(err)
		}
		accounts = append(accounts, account)
	}
	if _, err := b.Open(t.Context(), Party{Source: "s"}); err == nil {
		t.Error("a third session")
	}
	var passed atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for _, account := range accounts {
		wg.Go(func() {
			for time.Since(began) < 2*time.Second {
				if !account.Take("", 1).Refused {
					passed.Add(1)
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	// The first may have begun with the whole of what can be saved up, of which
	// the second has got a half.
	if n, most := float64(passed.Load()), 500*(time.Since(began).Seconds()+1.1*burstSeconds)+500; n > most {
		t.Errorf("%.0f have passed, %.0f at most", n, most)
	}
}

// A gateway that ends tells the others what it has used.
func TestCloseTells(t *testing.T) {
	t.Parallel()
	stopped := time.Unix(1_800_000_000, 0)
	c := local.NewCounters(func() time.Time { return stopped })
	o := Options{Identity: Rate{Messages: 1000}, Counters: c.Of("a")}
	a := New(o)
	account, err := a.Open(t.Context(), Party{Identity: "i"})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 { // a part that would be told later
		account.Take("", 1)
	}
	account.Close()
	a.Close()
	u := presence.Usage{Key: key(Identity, "i")}
	u.Measures[Messages] = presence.Measure{Rate: 1000, Burst: 2000}
	if err := c.Of("b").Exchange(t.Context(), []*presence.Usage{&u}); err != nil {
		t.Fatal(err)
	}
	if left := u.Measures[Messages].Left; left != 2000-300 || len(u.Others) != 0 {
		t.Errorf("%v are left, others: %+v", left, u.Others)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l := New(Options{})
	if l != nil {
		t.Fatal("a limiter without limits")
	}
	a, err := l.Open(t.Context(), Party{Identity: "a", Source: "s", Workspace: "w"})
	if err != nil || a.Take("w", 1e9).Refused {
		t.Error("no limiter limits")
	}
	a.Close()
	l.Close()
	if l.Len() != 0 || l.Refused() != [scopes]uint64{} {
		t.Error("no limiter counts")
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	w := setup(t, 2, Options{Identity: Rate{Messages: 1e9, Bytes: 1e12}, Source: Rate{Messages: 1e9}, Workspace: Rate{Messages: 1e9, Bytes: 1e12}})
	a := w.open(0, Party{Identity: "a", Source: "s", Workspace: "w"})
	a.Take("w", 1)
	if n := testing.AllocsPerRun(1000, func() { a.Take("w", 256) }); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
	r := setup(t, 1, Options{Identity: Rate{Messages: 1}})
	b := r.open(0, Party{Identity: "a", Source: "s", Workspace: "w"})
	for !b.Take("w", 1).Refused {
	}
	if n := testing.AllocsPerRun(1000, func() { b.Take("w", 256) }); n != 0 {
		t.Errorf("%v allocations per refusal", n)
	}
}

func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name string
		rate Rate
	}{{"passes", Rate{1e12, 1e15}}, {"refused", Rate{Messages: 1}}} {
		b.Run(c.name, func(b *testing.B) {
			l := New(Options{Identity: c.rate, Source: Rate{1e12, 1e15}, Workspace: Rate{1e12, 1e15}})
			defer l.Close()
			a, err := l.Open(b.Context(), Party{Identity: "a", Source: "s", Workspace: "w"})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				a.Take("w", 256)
			}
		})
	}
}

// A flood that is refused makes nothing grow, and no round about it is due more
// often than about anybody else.
func TestFloodGrowsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, 2, Options{Identity: Rate{Messages: 10}, Source: Rate{Messages: 10}, Workspace: Rate{Messages: 100}})
	a := w.open(0, Party{Identity: "a", Source: "s", Workspace: "w"})
	w.open(1, Party{Identity: "b", Source: "s", Workspace: "w"})
	l := w.gateways[0]
	for range 100 {
		for range 1000 {
			a.Take("w", 100)
		}
		if n := len(l.touched); n > 3 {
			t.Fatalf("%d buckets wait to be told of", n)
		}
		w.advance(10 * time.Millisecond)
	}
	if n := l.Len(); n != 3 {
		t.Errorf("%d buckets", n)
	}
	if got := l.Refused(); got[Identity]+got[Source] < 99_000 || got[Workspace] != 0 {
		t.Errorf("refused: %v", got)
	}
}
