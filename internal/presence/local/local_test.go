package local

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	member *presencetest.Member
	mu     sync.Mutex
	now    time.Time
}

func (w *world) Gateways() (a, b *presencetest.Member) { return w.member, w.member }

func (w *world) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func TestConformance(t *testing.T) {
	t.Parallel()
	presencetest.Run(t, func(t *testing.T) presencetest.World {
		w := &world{now: time.Unix(1_800_000_000, 0)}
		h := &presencetest.Handler{}
		l := New(w.Now)
		if err := l.Start(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close(t.Context()) })
		w.member = &presencetest.Member{Gateway: l, Handler: h}
		return w
	})
}

type countersWorld struct {
	*world
	c *Counters
}

func (w countersWorld) Counters() (a, b presence.Counters) { return w.c.Of("a"), w.c.Of("b") }

func TestCounters(t *testing.T) {
	t.Parallel()
	presencetest.RunCounters(t, func(t *testing.T) presencetest.CountersWorld {
		w := &world{now: time.Unix(1_800_000_000, 0)}
		return countersWorld{w, NewCounters(w.Now)}
	})
}
