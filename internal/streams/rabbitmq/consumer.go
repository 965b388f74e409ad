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
	// standStill is how long a consumer may show nothing of what others of this
	// driver have read.
	standStill = 4 * time.Second
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

	from  uint64      // the first offset that is wanted; 0 if that was not said
	began atomic.Bool // an entry has come

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
	c, err := patiently(ctx, d, "open consumer on stream "+part.name, func() (*consumer, error) {
		return anywhere(ctx, d, func(env *environment) (*consumer, error) {
			return d.consumerOn(env, part, from, handle)
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

// consumerOn opens a consumer. Its gate is locked until it is known that the
// caller has not left.
func (d *Driver) consumerOn(env *environment, part *partition, from streams.Start, handle func(streams.Entry)) (*consumer, error) {
	begin, look, err := begins(env, part, from)
	if err != nil {
		return nil, err
	}
	c := &consumer{
		d: d, part: part, env: env, handle: handle,
		done:     make(chan struct{}),
		stop:     make(chan struct{}),
		released: make(chan struct{}),
	}
	c.from, _ = from.Offset()
	c.next = c.from
	c.gate.Lock()
	c.lib, c.closes, err = subscribe(env, part, consumerOptions(begin).SetInitialCredits(credits), c.take)
	if err != nil {
		c.abandon()
		return nil, err
	}
	if look != nil { // now: a connection ends with the last one on it
		_ = look.Close()
	}
	return c, nil
}

// subscribe starts reading. Entries go to handle from then on.
func subscribe(env *environment, part *partition, o *stream.ConsumerOptions, handle stream.MessagesHandler) (*stream.Consumer, stream.ChannelClose, error) {
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

func consumerOptions(begin stream.OffsetSpecification) *stream.ConsumerOptions {
	return stream.NewConsumerOptions().
		SetConsumerName(consumerName).
		SetClientProvidedName("aether-consumer").
		SetManualCommit().
		SetCRCCheck(true). // the library reads zeros on after a cut connection; this finds them out
		SetOffset(begin)
}

// begins says where the broker is to start for a Start.
//
// An offset beyond the log's end is a trap: the broker starts at the end, the
// library drops what is below the offset, and for a chunk that it drops as a
// whole it gives the broker no credit, so that ten of them stop the consumer
// for ever. So such an offset must not reach the library: reading begins at the
// end, and the driver drops what is below. In a cluster the consumer may read
// another replica than the one that knows the end, and that one may lag: a
// consumer that shows nothing, although there is something, is ended (run), and
// whoever opened it opens another.
//
// Whoever had to look where the end is did so on the connection that the next
// consumer of env gets as well: a login costs the broker more than all the rest.
// look is what is to be closed when there is that consumer, or nil.
func begins(env *environment, part *partition, from streams.Start) (begin stream.OffsetSpecification, look *stream.Consumer, err error) {
	if since, ok := from.Time(); ok {
		return begin.Timestamp(since.UnixMilli()), nil, nil
	}
	offset, ok := from.Offset()
	switch {
	case from.IsNext():
		return begin.Next(), nil, nil
	case !ok, offset == 0:
		return begin.First(), nil, nil
	case offset <= math.MaxInt64 && part.reaches(offset):
		return begin.Offset(int64(offset)), nil, nil
	}
	// After the last entry, or less if entries are being stored just now, or 0
	// if there is none.
	end, look, err := peek(env, part, begin.Last(), func(cc stream.ConsumerContext, _ *amqp.Message) uint64 {
		// The first entry of the last chunk.
		return uint64(cc.Consumer.GetOffset()) + uint64(cc.GetEntriesCount())
	})
	switch {
	case err != nil:
		return begin, nil, err
	case end == 0:
		return begin.First(), look, nil
	}
	return begin.Offset(int64(min(offset, end))), look, nil
}

// First implements [streams.Driver].
func (d *Driver) First(ctx context.Context, n int) (streams.Entry, error) {
	part, err := d.partition(n)
	if err != nil {
		return streams.Entry{}, err
	}
	return patiently(ctx, d, "find the first entry of stream "+part.name, func() (streams.Entry, error) {
		return anywhere(ctx, d, func(env *environment) (streams.Entry, error) {
			first, _, err := peek(env, part, stream.OffsetSpecification{}.First(), func(cc stream.ConsumerContext, m *amqp.Message) streams.Entry {
				return streams.Entry{Offset: uint64(cc.Consumer.GetOffset()), Data: m.GetData()}
			})
			if err == nil {
				env.release()
			}
			return first, err
		})
	}, nil)
}

// peek reads a single entry and returns what look makes of it, or zero if none
// comes soon. Its consumer gets one chunk and no more.
func peek[T any](env *environment, part *partition, begin stream.OffsetSpecification, look func(stream.ConsumerContext, *amqp.Message) T) (value T, c *stream.Consumer, err error) {
	found := make(chan T, 1) // only the first is of interest
	o := consumerOptions(begin).SetInitialCredits(1).SetCreditStrategy(stream.ManualCreditStrategy)
	c, _, err = subscribe(env, part, o, func(cc stream.ConsumerContext, m *amqp.Message) {
		select {
		case found <- look(cc, m):
		default:
		}
	})
	if err != nil {
		return value, nil, err
	}
	timer := time.NewTimer(emptyWait)
	defer timer.Stop()
	select {
	case value = <-found:
	case <-timer.C:
	}
	return value, c, nil
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
	c.began.Store(true)
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
	look := time.NewTicker(standStill)
	defer look.Stop()
	for going := true; going; {
		select {
		case <-c.stop:
			going = false
		case event := <-c.closes:
			c.part.lost()
			c.d.log.Warn("a consumer has lost its connection", "stream", c.part.name, "reason", event.Reason)
			c.silence()
			c.end()
			going = false
		case <-look.C:
			switch {
			case c.began.Load():
				look.Stop()
			case c.from > 0 && c.part.reaches(c.from+1):
				c.d.log.Warn("a consumer stands still, on a replica that lags perhaps, and is ended", "stream", c.part.name, "offset", c.from)
				c.silence()
				c.end()
				going = false
			}
		}
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
