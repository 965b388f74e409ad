package streams

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

const (
	// openTimeout is how long opening a producer or consumer may take.
	openTimeout = 5 * time.Second
	// grace is how long a driver call may go on after its context has ended,
	// and how long closing may take, before it is left behind.
	grace = time.Second
	// maxHung bounds the calls left behind: while so many hang no new
	// connection is tried.
	maxHung = 4
)

var (
	errHung    = errors.New("streams: a driver call does not end with its context")
	errStopped = errors.New("streams: stopped")
	errReset   = errors.New("streams: connection was reset")
)

// guard makes the calls into a driver. A driver promises to end its calls with
// their context, but what is below it may block on a peer that is silent; the
// guard then leaves the call behind in its goroutine and goes on.
type guard struct {
	clock Clock
	hung  atomic.Int32
}

// guardOpen calls open and waits for it until openTimeout or stop, and grace
// after that. A result that comes later is closed.
func guardOpen[R io.Closer](g *guard, stop <-chan struct{}, open func(context.Context) (R, error)) (R, error) {
	type result struct {
		r   R
		err error
	}
	var none R
	if g.hung.Load() >= maxHung {
		return none, errHung
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var decided atomic.Bool // by whoever is first: the result or the waiter's patience
	done := make(chan result, 1)
	go func() {
		r, err := open(ctx)
		if decided.CompareAndSwap(false, true) {
			done <- result{r, err}
			return
		}
		if err == nil {
			_ = r.Close()
		}
		g.hung.Add(-1)
	}()

	end := context.DeadlineExceeded
	timer := g.clock.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case res := <-done:
		return res.r, res.err
	case <-timer.C():
	case <-stop:
		end = errStopped
	}
	cancel()
	timer.Reset(grace)
	select {
	case res := <-done:
		if res.err == nil {
			g.close(res.r)
		}
		return none, end
	case <-timer.C():
	}
	g.hung.Add(1)
	if decided.CompareAndSwap(false, true) {
		return none, errHung
	}
	g.hung.Add(-1)
	if res := <-done; res.err == nil {
		g.close(res.r)
	}
	return none, end
}

// close closes c and reports whether that ended in time.
func (g *guard) close(c io.Closer) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Close()
	}()
	return g.wait(done)
}

// wait waits for done, but not longer than grace.
func (g *guard) wait(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := g.clock.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C():
		return false
	}
}
