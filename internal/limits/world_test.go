package limits

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/local"
)

// world is gateways that share counters, under one clock.
type world struct {
	t        *testing.T
	mu       sync.Mutex
	at       time.Time
	counters *local.Counters
	gateways []*Limiter
	away     atomic.Bool // the counters cannot be reached
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

type faulty struct {
	presence.Counters
	w *world
}

func (f faulty) Exchange(ctx context.Context, usages []*presence.Usage) error {
	if f.w.away.Load() {
		return presence.ErrCounters
	}
	return f.Counters.Exchange(ctx, usages)
}

// setup starts n gateways; one alone has no counters.
func setup(t *testing.T, n int, o Options) *world {
	t.Helper()
	w := &world{t: t, at: time.Unix(1_800_000_000, 0)}
	w.counters = local.NewCounters(w.now)
	o.Now, o.manual, o.Gateways = w.now, true, func() int { return n }
	for i := range n {
		if n > 1 {
			o.Counters = faulty{w.counters.Of(fmt.Sprint("gw", i)), w}
		}
		l := New(o)
		t.Cleanup(l.Close)
		w.gateways = append(w.gateways, l)
	}
	return w
}

// advance moves the clock; gateways make the rounds that are due, not at the
// same moment, as they would.
func (w *world) advance(d time.Duration) {
	const step = 10 * time.Millisecond
	for ; d > 0; d -= step {
		w.mu.Lock()
		w.at = w.at.Add(step)
		ms := w.at.UnixMilli()
		w.mu.Unlock()
		for i, l := range w.gateways {
			if l.o.Counters == nil {
				continue
			}
			hurried := false
			select {
			case <-l.wake:
				hurried = true
			default:
			}
			if hurried || (ms/10+int64(3*i))%10 == 0 {
				l.round(w.now())
			}
			if ms%1000 == 0 {
				l.sweep(w.now())
			}
		}
		if len(w.gateways) == 1 && ms%1000 == 0 {
			w.gateways[0].sweep(w.now())
		}
	}
}

func (w *world) open(gateway int, p Party) *Account {
	w.t.Helper()
	a, err := w.gateways[gateway].Open(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// flow is somebody who tries to send so many messages a second.
type flow struct {
	a     *Account
	in    string
	rate  float64
	size  int
	due   float64
	ok    int
	bytes int
	last  Verdict
}

// run lets flows send for a while.
func (w *world) run(d time.Duration, flows ...*flow) {
	const step = 10 * time.Millisecond
	for ; d > 0; d -= step {
		for _, f := range flows {
			for f.due += f.rate * step.Seconds(); f.due >= 1; f.due-- {
				if v := f.a.Take(f.in, f.size); v.Refused {
					f.last = v
				} else {
					f.ok++
					f.bytes += f.size
				}
			}
		}
		w.advance(step)
	}
}

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if got < want*(1-part) || got > want*(1+part) {
		t.Errorf("%s: got %.0f, want %.0f ± %.0f %%", what, got, want, part*100)
	}
}
