package tracker

import "sync/atomic"

// Permits are how many sends somebody may have open. Safe for concurrent use;
// the zero value has none.
type Permits struct{ free atomic.Int64 }

// NewPermits returns n permits.
func NewPermits(n int) *Permits {
	p := &Permits{}
	p.free.Store(int64(n))
	return p
}

// Take takes a permit, and reports false if none is left.
func (p *Permits) Take() bool {
	for {
		n := p.free.Load()
		if n <= 0 {
			return false
		}
		if p.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Return gives a permit back: at the outcome of its send, or when that was
// refused.
func (p *Permits) Return() { p.free.Add(1) }

// Available returns how many are left.
func (p *Permits) Available() int { return int(p.free.Load()) }
