package router

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aether-gateway/gateway/internal/streams"
)

// jointly is a driver where a question about the first entry is answered when a
// consumer is being opened, and the other way round.
type jointly struct {
	streams.Driver
	on               atomic.Bool
	asked, opened    chan struct{}
	askOnce, opening sync.Once
}

func (d *jointly) wait(ctx context.Context, other <-chan struct{}) error {
	select {
	case <-other:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *jointly) First(ctx context.Context, partition int) (streams.Entry, error) {
	if d.on.Load() {
		d.askOnce.Do(func() { close(d.asked) })
		if err := d.wait(ctx, d.opened); err != nil {
			return streams.Entry{}, err
		}
	}
	return d.Driver.First(ctx, partition)
}

func (d *jointly) OpenConsumer(ctx context.Context, partition int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	if d.on.Load() {
		d.opening.Do(func() { close(d.opened) })
		if err := d.wait(ctx, d.asked); err != nil {
			return nil, err
		}
	}
	return d.Driver.OpenConsumer(ctx, partition, from, handle)
}

// Who comes back waited for a whole question to the broker, what is left of the
// log, before the log was even opened for them.
func TestReaderOpensWhileItLooks(t *testing.T) {
	t.Parallel()
	driver := &jointly{asked: make(chan struct{}), opened: make(chan struct{})}
	w := setup(t, func(o *Options) {
		driver.Driver = o.Driver
		o.Driver, o.RingBytes = driver, 500
	})
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	for i := range 5 {
		a.send(absent, fmt.Sprint(i), "r")
		a.receipts(1)
	}
	w.traffic(a, b, 20)
	driver.on.Store(true)
	w.agent("absent", client(0)).wants("0", "1", "2", "3", "4")
}
