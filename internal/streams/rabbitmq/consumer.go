package rabbitmq

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"

	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// credits is how many chunks the broker sends ahead of the handler; a chunk
	// holds what was stored together, at most about a frame.
	credits = 10
	// consumerName is only used to ask a question on a consumer's connection;
	// no position is ever stored under it.
	consumerName = "aether"
	// emptyWait is how long a log that shows no last entry is taken for slow
	// rather than empty.
	emptyWait = 250 * time.Millisecond
)

// consumer is a [streams.Consumer].
type consumer struct {
	d      *Driver
	part   *partition
	era    uint64
	env    *environment
	lib    *stream.Consumer
	closes stream.ChannelClose
	handle func(streams.Entry)

	done     chan struct{} // closed when no handle runs any more
	stop     chan struct{} // closed when the end has begun
	once     sync.Once
	released chan struct{}

	quiet atomic.Bool // nothing more is handed on
	gate  sync.Mutex  // held while handle runs
	next  uint64      // under gate: the lowest offset to hand on
}

// OpenConsumer implements [streams.Driver]. Its errors are of type [Error]
// unless the driver is closed.
func (d *Driver) OpenConsumer(ctx context.Context, n int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	part, err := d.partition(n)
	if err != nil {
		return nil, err
	}
	op := "open consumer on stream " + part.name
	begin, err := d.begins(ctx, part, from)
	if err != nil {
		return nil, err
	}
	c, err := patiently(ctx, d, op, func() (*consumer, error) {
		return anywhere(ctx, d, func(env *environment) (*consumer, error) {
			c := &consumer{
				d: d, part: part, env: env, handle: handle,
				done:     make(chan struct{}),
				stop:     make(chan struct{}),
				released: make(chan struct{}),
			}
			c.next, _ = from.Offset()
			c.gate.Lock() // until it is known that the caller has not left
			var err error
			c.lib, c.closes, err = subscribe(env, part, begin, c.take)
			if err != nil {
				c.abandon()
			}
			return c, err
		})
	}, func(c *consumer) {
		c.abandon()
		c.env.release()
	})
	if err != nil {
		return nil, err
	}
	if !d.begin() {
		c.abandon()
		go c.env.release()
		return nil, streams.ErrClosed
	}
	c.era = part.join()
	go c.run()
	if !d.keep(c) {
		c.abandon()
		c.Close()
		return nil, streams.ErrClosed
	}
	c.gate.Unlock()
	return c, nil
}

// subscribe starts reading at a position. Entries go to handle from then on.
func subscribe(env *environment, part *partition, begin stream.OffsetSpecification, handle stream.MessagesHandler) (*stream.Consumer, stream.ChannelClose, error) {
	o := stream.NewConsumerOptions().
		SetConsumerName(consumerName).
		SetClientProvidedName("aether-consumer").
		SetManualCommit().
		SetCRCCheck(true). // the library reads zeros on after a cut connection; this finds them out
		SetInitialCredits(credits).
		SetOffset(begin)
	op, host := "open consumer on stream "+part.name, env.endpoint.address()
	lib, err := env.NewConsumer(part.name, handle, o)
	if err != nil {
		return nil, nil, explain(op, host, err)
	}
	closes := lib.NotifyClose()
	// A question on the consumer's own connection, after NotifyClose: had the
	// connection ended before that, its end would not have been told. The
	// answer also comes after a chunk that was there already.
	if _, err := lib.QueryOffset(); err != nil && !errors.Is(err, stream.OffsetNotFoundError) {
		return nil, nil, explain(op, host, err)
	}
	return lib, closes, nil
}

// begins says where the broker is to start for a Start.
//
// An offset beyond the log's end is a trap: the broker starts at the end, the
// library drops what is below the offset, and for a chunk that it drops as a
// whole it gives the broker no credit, so that ten of them stop the consumer
// for ever. So such an offset must not reach the library: reading begins at the
// end, and the driver drops what is below.
func (d *Driver) begins(ctx context.Context, part *partition, from streams.Start) (stream.OffsetSpecification, error) {
	var spec stream.OffsetSpecification
	if since, ok := from.Time(); ok {
		return spec.Timestamp(since.UnixMilli()), nil
	}
	offset, ok := from.Offset()
	switch {
	case from.IsNext():
		return spec.Next(), nil
	case !ok, offset == 0:
		return spec.First(), nil
	case offset <= math.MaxInt64 && part.reaches(offset):
		return spec.Offset(int64(offset)), nil
	}
	end, err := d.logEnd(ctx, part)
	if err != nil {
		return spec, err
	}
	if end == 0 {
		return spec.First(), nil
	}
	return spec.Offset(int64(min(offset, end))), nil
}

// logEnd returns the offset after the last entry, or less if entries are being
// stored just now, or 0 if it finds none.
func (d *Driver) logEnd(ctx context.Context, part *partition) (uint64, error) {
	return peek(ctx, d, part, "find the end of", stream.OffsetSpecification{}.Last(), func(cc stream.ConsumerContext, _ *amqp.Message) uint64 {
		// The first entry of the last chunk.
		return uint64(cc.Consumer.GetOffset()) + uint64(cc.GetEntriesCount())
	})
}

// First implements [streams.Driver].
func (d *Driver) First(ctx context.Context, n int) (streams.Entry, error) {
	part, err := d.partition(n)
	if err != nil {
		return streams.Entry{}, err
	}
	return peek(ctx, d, part, "find the first entry of", stream.OffsetSpecification{}.First(), func(cc stream.ConsumerContext, m *amqp.Message) streams.Entry {
		return streams.Entry{Offset: uint64(cc.Consumer.GetOffset()), Data: m.GetData()}
	})
}

// peek reads a single entry and returns what look makes of it, or zero if none
// comes soon.
func peek[T any](ctx context.Context, d *Driver, part *partition, what string, begin stream.OffsetSpecification, look func(stream.ConsumerContext, *amqp.Message) T) (T, error) {
	return patiently(ctx, d, what+" stream "+part.name, func() (T, error) {
		return anywhere(ctx, d, func(env *environment) (T, error) {
			found := make(chan T, 1) // only the first is of interest
			take := func(cc stream.ConsumerContext, m *amqp.Message) {
				select {
				case found <- look(cc, m):
				default:
				}
			}
			var value T
			if _, _, err := subscribe(env, part, begin, take); err != nil {
				return value, err
			}
			timer := time.NewTimer(emptyWait)
			defer timer.Stop()
			select {
			case value = <-found:
			case <-timer.C:
			}
			env.release()
			return value, nil
		})
	}, nil)
}

// take is called by the library for each entry.
func (c *consumer) take(cc stream.ConsumerContext, m *amqp.Message) {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.quiet.Load() {
		return
	}
	offset := uint64(cc.Consumer.GetOffset())
	if offset < c.next {
		return
	}
	c.next = offset + 1
	c.part.saw(c.era, offset)
	c.handle(streams.Entry{Offset: offset, Data: m.GetData()})
}

// abandon gives up a consumer whose gate is still locked: nothing is handed on.
func (c *consumer) abandon() {
	c.quiet.Store(true)
	c.gate.Unlock()
}

// silence returns when no handle runs and none will.
func (c *consumer) silence() {
	c.quiet.Store(true)
	c.gate.Lock()
	//lint:ignore SA2001 waits for a running handle
	c.gate.Unlock()
}

// run waits for the end and releases the library's part.
func (c *consumer) run() {
	defer c.d.finish()
	defer close(c.released)
	select {
	case <-c.stop:
	case event := <-c.closes:
		c.part.lost()
		c.d.log.Warn("a consumer has lost its connection", "stream", c.part.name, "reason", event.Reason)
		c.silence()
		c.end()
	}
	c.env.release()
}

func (c *consumer) end() {
	c.once.Do(func() {
		close(c.stop)
		close(c.done)
		c.part.leave()
		c.d.forget(c)
	})
}

// Done implements [streams.Consumer].
func (c *consumer) Done() <-chan struct{} { return c.done }

// Close implements [streams.Consumer]. It waits for a running handle; beyond
// that it returns within a second, also when the broker hangs.
func (c *consumer) Close() error {
	c.silence()
	c.end()
	waitFor(c.released, closeLimit)
	return nil
}
