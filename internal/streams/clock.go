package streams

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Clock is where time comes from, so that tests can hold it in their hands.
// It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// NewTimer returns a timer that fires once, d from now.
	NewTimer(d time.Duration) Timer
}

// Timer is a timer as of package time: after Stop or Reset no earlier firing
// is received any more. It is safe for concurrent use.
type Timer interface {
	C() <-chan time.Time
	Reset(d time.Duration)
	Stop()
}

// RealClock is the clock of package time.
func RealClock() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) NewTimer(d time.Duration) Timer { return realTimer{time.NewTimer(d)} }

type realTimer struct{ t *time.Timer }

func (t realTimer) C() <-chan time.Time   { return t.t.C }
func (t realTimer) Reset(d time.Duration) { t.t.Reset(d) }
func (t realTimer) Stop()                 { t.t.Stop() }

// newBackoff returns the waits between attempts to connect. The first ones
// are short, because most losses of a connection are over at once; the jitter
// keeps gateways from coming back all together.
func newBackoff() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{
		InitialInterval:     50 * time.Millisecond,
		RandomizationFactor: 0.5,
		Multiplier:          1.6,
		MaxInterval:         2 * time.Second,
	}
	b.Reset()
	return b
}

// pause waits for d and reports false if stop was closed first.
func pause(clock Clock, d time.Duration, stop <-chan struct{}) bool {
	t := clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-stop:
		return false
	}
}
