package presence

import (
	"sync"
	"sync/atomic"
	"time"
)

// Fence tells whether a gateway may still act under leases that it renewed a
// while ago (delivery rule L2). It falls once and for good: a gateway that
// recovers raises a new fence, and leases of the old one stay lost, however
// soon a stopped process finds its way back to the network.
//
// All methods may be called concurrently, and on a nil Fence, which never
// falls.
type Fence struct {
	now   func() time.Time
	limit time.Duration

	renewed atomic.Pointer[time.Time] // when the last confirmed renewal was sent
	fallen  atomic.Bool
	mu      sync.Mutex // serialises Renew and the fall
	done    chan struct{}
}

// NewFence returns a fence that falls when limit has passed since renewed, the
// time at which a renewal was sent that has been confirmed since. now is
// [time.Now] but in tests.
func NewFence(now func() time.Time, limit time.Duration, renewed time.Time) *Fence {
	f := &Fence{now: now, limit: limit, done: make(chan struct{})}
	f.renewed.Store(&renewed)
	return f
}

// Age returns the time since the last renewal that was confirmed, by the
// larger of the monotonic and the wall clock: the one does not see a suspended
// machine, the other may be set back.
func (f *Fence) Age() time.Duration {
	if f == nil {
		return 0
	}
	return Elapsed(*f.renewed.Load(), f.now())
}

// Elapsed returns the time from earlier to later by the larger of the two
// clocks, never less than 0.
func Elapsed(earlier, later time.Time) time.Duration {
	return max(0, later.Sub(earlier), later.Round(0).Sub(earlier.Round(0)))
}

// Fenced reports whether the fence has fallen.
func (f *Fence) Fenced() bool {
	if f == nil {
		return false
	}
	if f.fallen.Load() {
		return true
	}
	if f.Age() < f.limit {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check()
}

// check lets the fence fall if it is time. The mutex is held.
func (f *Fence) check() bool {
	if !f.fallen.Load() && f.Age() >= f.limit {
		f.fallen.Store(true)
		close(f.done)
	}
	return f.fallen.Load()
}

// Renew tells of a confirmed renewal that was sent at sent. It returns false
// if the confirmation came too late: the fence has fallen.
func (f *Fence) Renew(sent time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check() {
		return false
	}
	f.renewed.Store(&sent)
	return !f.check()
}

// Fall lets the fence fall now.
func (f *Fence) Fall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fallen.Load() {
		f.fallen.Store(true)
		close(f.done)
	}
}

// Done is closed when somebody has noticed that the fence has fallen; the
// gateway that raised it looks several times per second.
func (f *Fence) Done() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.done
}

// Hold is one lease's part in a [Fence].
type Hold struct {
	fence *Fence
	lost  atomic.Bool
}

// NewHold returns a hold that is lost with the fence, or by Drop.
func NewHold(f *Fence) *Hold { return &Hold{fence: f} }

// Lost reports whether the lease has no effect any more.
func (h *Hold) Lost() bool { return h.lost.Load() || h.fence.Fenced() }

// Drop makes the lease lost.
func (h *Hold) Drop() { h.lost.Store(true) }

// Fence returns the fence behind the hold, which may be nil.
func (h *Hold) Fence() *Fence { return h.fence }
