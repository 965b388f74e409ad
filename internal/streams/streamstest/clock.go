package streamstest

import (
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
	set    chan struct{}       // closed and replaced when one is set
}

// NewClock returns a clock that stands at some moment.
func NewClock() *Clock {
	return &Clock{
		now:    time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		timers: make(map[*timer]struct{}),
		set:    make(chan struct{}),
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

// AwaitTimer waits until somebody waits for a timer that is due within d. It
// fails the test if nobody does.
func (c *Clock) AwaitTimer(t testing.TB, d time.Duration) {
	t.Helper()
	giveUp := time.After(patience)
	for {
		c.mu.Lock()
		set := c.set
		limit := c.now.Add(d)
		for timer := range c.timers {
			if !timer.due.After(limit) {
				c.mu.Unlock()
				return
			}
		}
		c.mu.Unlock()
		select {
		case <-set:
		case <-giveUp:
			t.Fatalf("nobody waits for a timer within %v", d)
		}
	}
}

// AdvanceUntil moves the clock on, again and again, to the next timer that is
// due within d, until cond holds. It fails the test if that does not happen.
func (c *Clock) AdvanceUntil(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	// A moment for those who work without a clock, before time goes on.
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	giveUp := time.After(patience)
	for !cond() {
		select {
		case <-ticker.C:
			if !cond() {
				c.step(d)
			}
		case <-giveUp:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// step moves the clock on to the next timer that is due within d.
func (c *Clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.now.Add(d)
	found := false
	for t := range c.timers {
		if !t.due.After(next) {
			next, found = t.due, true
		}
	}
	if !found {
		return
	}
	c.now = next
	for t := range c.timers {
		t.fireIfDue()
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
	close(t.clock.set)
	t.clock.set = make(chan struct{})
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
