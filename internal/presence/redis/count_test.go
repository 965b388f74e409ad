package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

func (w *world) Counters() (a, b presence.Counters) { return w.members[0].p, w.members[1].p }

func TestCounters(t *testing.T) {
	t.Parallel()
	presencetest.RunCounters(t, func(t *testing.T) presencetest.CountersWorld {
		w, _ := settled(t, 2)
		return w
	})
}

// A gateway that died has no part any more.
func TestCountersOfTheDead(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	u := presence.Usage{Key: "k", Holders: 7}
	u.Measures[0] = presence.Measure{Rate: 10, Burst: 20, Wanted: 10}
	for _, g := range m {
		if err := g.p.Exchange(t.Context(), []*presence.Usage{&u}); err != nil {
			t.Fatal(err)
		}
	}
	if len(u.Others) != 1 || u.Others[0].Holders != 7 {
		t.Fatalf("got %+v", u.Others)
	}
	m[0].frozen.Store(true)
	w.Advance(presence.TTL + time.Second)
	if err := m[1].p.Exchange(t.Context(), []*presence.Usage{&u}); err != nil {
		t.Fatal(err)
	}
	if len(u.Others) != 0 {
		t.Errorf("a dead gateway counts: %+v", u.Others)
	}
	if err := m[0].p.Exchange(t.Context(), []*presence.Usage{&u}); !errors.Is(err, presence.ErrCounters) {
		t.Errorf("a gateway without a heartbeat is answered: %v", err)
	}
}

// What nobody has open goes from Redis when it is full again.
func TestCountersExpire(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	u := presence.Usage{Key: "k", Leaving: true}
	u.Measures[0] = presence.Measure{Rate: 10, Burst: 20, Used: 2}
	if err := m[0].p.Exchange(t.Context(), []*presence.Usage{&u}); err != nil {
		t.Fatal(err)
	}
	if left, err := w.raw.PTTL(t.Context(), "{aether}:0:c:k").Result(); err != nil || left > 250*time.Millisecond {
		t.Errorf("it is kept for %v, %v", left, err)
	}
	presencetest.Eventually(t, "it goes", func() bool {
		n, err := w.raw.Exists(t.Context(), "{aether}:0:c:k").Result()
		return err == nil && n == 0
	})
	u.Leaving = false
	if err := m[0].p.Exchange(t.Context(), []*presence.Usage{&u}); err != nil {
		t.Fatal(err)
	}
	if left, err := w.raw.PTTL(t.Context(), "{aether}:0:c:k").Result(); err != nil || left < presence.CounterKept || left > presence.CounterKept+time.Second {
		t.Errorf("it is kept for %v, %v", left, err)
	}
}

// BenchmarkExchange is one round about a hundred keys of two measures.
func BenchmarkExchange(b *testing.B) {
	p := benchGateway(b)
	var list []*presence.Usage
	for i := range countChunk {
		u := &presence.Usage{Key: string(rune('A' + i)), Holders: 1}
		u.Measures[0] = presence.Measure{Rate: 1000, Burst: 2000}
		u.Measures[1] = presence.Measure{Rate: 1 << 24, Burst: 1 << 25}
		list = append(list, u)
	}
	for b.Loop() {
		if err := p.Exchange(b.Context(), list); err != nil {
			b.Fatal(err)
		}
	}
}

// When Redis loses its state nothing is answered until gateways are known again;
// then what they have told before does not count twice, nor as a debt.
func TestCountersAfterALoss(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	u := presence.Usage{Key: "k", Holders: 1}
	u.Measures[0] = presence.Measure{Rate: 10, Burst: 20, Used: 1000, Told: 0}
	exchange := func() error { return m[0].p.Exchange(t.Context(), []*presence.Usage{&u}) }
	if err := exchange(); err != nil {
		t.Fatal(err)
	}
	u.Measures[0].Told = 1000
	if err := w.raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := exchange(); !errors.Is(err, presence.ErrCounters) {
		t.Errorf("an emptied Redis answers: %v", err)
	}
	w.Advance(2 * time.Second)
	u.Measures[0].Used = 1003
	if err := exchange(); err != nil {
		t.Fatal(err)
	}
	if got := u.Measures[0].Left; got != 17 {
		t.Errorf("%v are left, want 17", got)
	}
}
