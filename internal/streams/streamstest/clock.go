package streamstest

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// Clock is a [streams.Clock] that stands still until it is moved on. It is
// safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[*timer]struct{} // those that run
}

// NewClock returns a clock that stands at some moment.
func NewClock() *Clock {
	return &Clock{
		now:    time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		timers: make(map[*timer]struct{}),
	}
}

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer returns a timer that fires when the clock has been moved on by d.
func (c *Clock) NewTimer(d time.Duration) streams.Timer {
	t := &timer{clock: c, c: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

// Advance moves the clock on and fires what is due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for t := range c.timers {
		t.fireIfDue()
	}
}

// AdvanceUntil moves the clock on by step after step until done is closed or
// receives. It fails the test if that does not happen.
func (c *Clock) AdvanceUntil(t testing.TB, step time.Duration, done <-chan struct{}) {
	t.Helper()
	giveUp := time.After(patience)
	for {
		select {
		case <-done:
			return
		case <-giveUp:
			t.Fatal("moving the clock on leads nowhere")
		default:
		}
		c.Advance(step)
		for range 20 {
			runtime.Gosched()
		}
	}
}

type timer struct {
	clock *Clock
	c     chan time.Time
	due   time.Time
}

func (t *timer) C() <-chan time.Time { return t.c }

func (t *timer) Reset(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.drain()
	t.due = t.clock.now.Add(d)
	t.clock.timers[t] = struct{}{}
	t.fireIfDue()
}

func (t *timer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.drain()
	delete(t.clock.timers, t)
}

func (t *timer) drain() {
	select {
	case <-t.c:
	default:
	}
}

func (t *timer) fireIfDue() {
	if !t.due.After(t.clock.now) {
		t.c <- t.clock.now
		delete(t.clock.timers, t)
	}
}
