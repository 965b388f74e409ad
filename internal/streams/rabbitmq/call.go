package rabbitmq

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/aether-gateway/gateway/internal/streams"
)

// maxCalls bounds the calls into the library that run at once, those included
// that hang and whose caller has left. When all are taken, callers wait until
// their context ends.
const maxCalls = 64

// result is what a call returned.
type result[T any] struct {
	value T
	err   error
}

// call runs f, which may call the library, in a goroutine and waits for it until
// ctx ends or the driver closes. A value that comes too late goes to discard. A
// panic becomes an error: the library has type assertions that fail when a
// connection ends at the wrong moment.
func call[T any](ctx context.Context, d *Driver, f func() (T, error), discard func(T)) (T, error) {
	var none T
	select {
	case d.calls <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-d.ctx.Done():
		return none, streams.ErrClosed
	}
	if !d.begin() {
		<-d.calls
		return none, streams.ErrClosed
	}

	ended := make(chan result[T]) // unbuffered: taken by the caller, or late
	left := make(chan struct{})
	go func() {
		defer d.work.Done()
		defer func() { <-d.calls }()
		r := protect(f)
		select {
		case ended <- r:
		case <-left:
			if r.err == nil && discard != nil {
				discard(r.value)
			}
		}
	}()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-ctx.Done():
		close(left)
		return none, context.Cause(ctx)
	case <-d.ctx.Done():
		close(left)
		return none, streams.ErrClosed
	}
}

func protect[T any](f func() (T, error)) (r result[T]) {
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("the stream client panicked: %v\n%s", p, debug.Stack())
		}
	}()
	r.value, r.err = f()
	return r
}
