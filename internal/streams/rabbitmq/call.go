package rabbitmq

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// maxCalls bounds the calls into the library that run at once, those included
// that hang and whose caller has left. When all are taken, callers wait until
// their context ends.
const maxCalls = 64

// strayLimit is how long a call whose caller has left counts. The library waits
// for ever for an answer of a connection that ended at a certain moment of the
// login; that costs some memory and nothing else, and must not use up the calls
// in the course of many restarts of a broker. A call that goes round and round
// counts for ever.
const strayLimit = time.Minute

// maxMismatches is how often a call may be answered by another node than the
// one that was dialled, as behind a load balancer, before its caller leaves.
const maxMismatches = 5

// calling is one call into the library.
type calling struct {
	mismatches atomic.Int32
	wrong      chan string // holds one: too many mismatches, and what they were
}

// underway finds the call that a message of the library's log belongs to, by
// the number of its goroutine: the library takes no context and its endless
// loop around a wrong node tells of itself in the log only.
var underway sync.Map // goroutine number (string) → *calling

// goroutine returns the number of the calling goroutine.
func goroutine() string {
	var buf [64]byte
	head := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(head, []byte(" "))
	return string(number)
}

// mismatched is told that another node has answered the current goroutine's
// call. Those after the last allowed one are slowed down by the library itself.
func mismatched(text string) {
	v, ok := underway.Load(goroutine())
	if !ok {
		return
	}
	c := v.(*calling)
	if c.mismatches.Add(1) == maxMismatches {
		c.wrong <- text
	}
}

// result is what a call returned.
type result[T any] struct {
	value T
	err   error
}

// call runs f, which may call the library, in a goroutine and waits for it until
// ctx ends or the driver closes. A value that comes too late goes to discard. A
// panic becomes an error: the library has type assertions that fail when a
// connection ends at the wrong moment. op is for the error of a call that does
// not end.
func call[T any](ctx context.Context, d *Driver, op string, f func() (T, error), discard func(T)) (T, error) {
	var none T
	host := d.endpoints[d.first.Load()].address()
	hung := func(kind, err error) error { return &Error{Op: op, Host: host, Kind: kind, Err: err} }
	if ctx.Err() != nil {
		return none, hung(ErrUnreachable, context.Cause(ctx))
	}
	select {
	case d.calls <- struct{}{}:
	case <-ctx.Done():
		return none, hung(ErrUnreachable, context.Cause(ctx))
	case <-d.ctx.Done():
		return none, streams.ErrClosed
	}
	if !d.begin() {
		<-d.calls
		return none, streams.ErrClosed
	}

	c := &calling{wrong: make(chan string, 1)}
	ended := make(chan result[T]) // unbuffered: taken by the caller, or late
	left := make(chan struct{})
	release := sync.OnceFunc(func() { <-d.calls })
	go func() {
		defer d.finish()
		defer release()
		number := goroutine()
		underway.Store(number, c)
		defer underway.Delete(number)
		r := protect(f)
		select {
		case ended <- r:
		case <-left:
			if r.err == nil && discard != nil {
				discard(r.value)
			}
		}
	}()
	leave := func(err error) (T, error) {
		close(left)
		time.AfterFunc(strayLimit, func() {
			if c.mismatches.Load() < maxMismatches {
				release()
			}
		})
		return none, err
	}
	select {
	case r := <-ended:
		return r.value, r.err
	case text := <-c.wrong:
		return leave(hung(ErrAdvertisedHost, fmt.Errorf("%s", text)))
	case <-ctx.Done():
		return leave(hung(ErrUnreachable, context.Cause(ctx)))
	case <-d.ctx.Done():
		return leave(streams.ErrClosed)
	}
}

// retryPause is between two attempts to open something on a stream that is
// about to come.
const retryPause = 100 * time.Millisecond

// patiently does what call does until it succeeds, as long as the error is one
// that passes by itself: after its start a broker accepts connections before
// its streams have leaders, and forgets to answer questions about them.
func patiently[T any](ctx context.Context, d *Driver, op string, f func() (T, error), discard func(T)) (T, error) {
	for {
		value, err := call(ctx, d, op, f, discard)
		if err == nil || !passing(err) || ctx.Err() != nil {
			return value, err
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-d.ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return value, err
		}
	}
}

func protect[T any](f func() (T, error)) (r result[T]) {
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("the stream client panicked: %v", p)
		}
	}()
	r.value, r.err = f()
	return r
}
