package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"

	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// maxInFlight bounds the entries of a producer that are not confirmed; Send
	// waits when it is reached. It is below libraryQueue: what is not sent yet
	// must never fill the library's queue, where a sender could not be woken.
	maxInFlight  = 256
	libraryQueue = 500
)

// producer is a [streams.Producer].
type producer struct {
	d         *Driver
	part      *partition
	env       *environment
	lib       *stream.Producer
	confirms  stream.ChannelPublishConfirm
	closes    stream.ChannelClose
	lastID    uint64
	confirmed func(uint64)

	done     chan struct{}
	once     sync.Once
	released chan struct{} // the library's part has ended

	mu       sync.Mutex
	pending  []sent    // in the order of their ids; bounded by maxInFlight
	sentID   uint64    // the last id that was sent
	progress time.Time // the last confirm, or the first Send after a pause
	watch    *time.Timer
	room     chan struct{} // signals that pending has shrunk; holds one signal

	gate  sync.Mutex // held while confirmed runs
	quiet bool       // under gate: Close was called
}

type sent struct {
	id     uint64
	stored bool
}

// OpenProducer implements [streams.Driver]. Its errors are of type [Error]
// unless the driver is closed.
func (d *Driver) OpenProducer(ctx context.Context, n int, name string, confirmed func(id uint64)) (streams.Producer, error) {
	part, err := d.partition(n)
	if err != nil {
		return nil, err
	}
	if name == "" || len(name) > 255 {
		return nil, fmt.Errorf("rabbitmq: a producer's name has 1 to 255 bytes, not %d", len(name))
	}
	p, err := patiently(ctx, d, "open producer on stream "+part.name, func() (*producer, error) {
		return anywhere(ctx, d, func(env *environment) (*producer, error) {
			return d.producerOn(env, part, name)
		})
	}, func(p *producer) { p.env.release() })
	if err != nil {
		return nil, err
	}
	p.confirmed = confirmed
	if !d.begin() {
		go p.env.release()
		return nil, streams.ErrClosed
	}
	go p.run()
	if !d.keep(p) {
		p.Close()
		return nil, streams.ErrClosed
	}
	return p, nil
}

// producerOn opens a producer. In a cluster it does so by the leader's address,
// so that an address that cannot be reached is told by its name.
func (d *Driver) producerOn(env *environment, part *partition, name string) (*producer, error) {
	if len(d.endpoints) > 1 {
		leader, err := d.leader(env, part)
		if err != nil {
			return nil, err
		}
		if leader.address() != env.endpoint.address() {
			there, err := d.connect(leader)
			if err != nil {
				return nil, advertised(err)
			}
			p, err := d.producerAt(there, part, name)
			if err != nil {
				there.release()
				return nil, err
			}
			env.release()
			return p, nil
		}
	}
	return d.producerAt(env, part, name)
}

func (d *Driver) producerAt(env *environment, part *partition, name string) (*producer, error) {
	o := stream.NewProducerOptions().
		SetProducerName(name).
		SetClientProvidedName("aether-producer").
		SetQueueSize(libraryQueue).
		SetBatchSize(libraryQueue). // also the size of its queue
		SetSubEntrySize(1).
		// The library forgets an entry after this time, and then its confirm;
		// the driver watches by itself.
		SetConfirmationTimeOut(24 * time.Hour)
	op, host := "open producer on stream "+part.name, env.endpoint.address()
	lib, err := env.NewProducer(part.name, o)
	if err != nil {
		return nil, explain(op, host, err)
	}
	p := &producer{
		d: d, part: part, env: env, lib: lib,
		// In this order: the second is guarded by a lock, and so publishes the first.
		confirms: lib.NotifyPublishConfirmation(),
		closes:   lib.NotifyClose(),
		done:     make(chan struct{}),
		released: make(chan struct{}),
		room:     make(chan struct{}, 1),
	}
	// Asked on the producer's own connection, after NotifyClose: had the
	// connection ended before that, its end would not have been told.
	last, err := lib.GetLastPublishingId()
	if err != nil {
		return nil, explain(op, host, err)
	}
	p.lastID = uint64(max(last, 0))
	return p, nil
}

// LastID implements [streams.Producer].
func (p *producer) LastID() uint64 { return p.lastID }

// Done implements [streams.Producer].
func (p *producer) Done() <-chan struct{} { return p.done }

// Send implements [streams.Producer]. An entry above [MaxEntry] is refused with
// [ErrTooLarge] and changes nothing.
func (p *producer) Send(id uint64, entry []byte) error {
	if len(entry) > MaxEntry {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(entry), MaxEntry)
	}
	if err := p.enter(id); err != nil {
		return err
	}
	// The library's queue is closed some time after the producer: sending panics.
	err := protect(func() (struct{}, error) { return struct{}{}, p.lib.Send(newOutgoing(id, entry)) }).err
	if err != nil {
		p.fail(err)
		return streams.ErrClosed
	}
	return nil
}

// enter puts an id on the pending list, when there is room.
func (p *producer) enter(id uint64) error {
	for {
		select {
		case <-p.done:
			return streams.ErrClosed
		default:
		}
		p.mu.Lock()
		if id <= p.sentID || id > 1<<63-1 {
			p.mu.Unlock()
			return fmt.Errorf("rabbitmq: id %d after %d: ids rise, up to 2^63-1", id, p.sentID)
		}
		if len(p.pending) < maxInFlight {
			if len(p.pending) == 0 {
				p.progress = time.Now()
				if p.watch == nil {
					p.watch = time.AfterFunc(p.d.stall, p.checkProgress)
				}
			}
			p.pending = append(p.pending, sent{id: id})
			p.sentID = id
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
		select {
		case <-p.room:
		case <-p.done:
		}
	}
}

// checkProgress ends a producer whose entries are not confirmed. The library's
// heartbeat does not see a peer that has stopped reading: it hangs in its own
// write.
func (p *producer) checkProgress() {
	p.mu.Lock()
	idle := time.Since(p.progress)
	switch {
	case p.watch == nil: // ended
	case len(p.pending) == 0:
		p.watch = nil
	case idle < p.d.stall:
		p.watch.Reset(p.d.stall - idle)
	default:
		p.watch = nil
		p.mu.Unlock()
		p.fail(fmt.Errorf("no confirm for %v", p.d.stall))
		return
	}
	p.mu.Unlock()
}

// run takes the library's notices until it has told the last one: it blocks the
// connection's reader on a confirm that nobody takes.
func (p *producer) run() {
	defer p.d.finish()
	defer close(p.released)
	confirms, closes, done := p.confirms, p.closes, p.done
	closed := make(chan struct{})
	for confirms != nil || done != nil {
		select {
		case statuses, ok := <-confirms:
			if !ok {
				confirms = nil
				p.fail(errors.New("the stream client has closed the producer"))
				continue
			}
			p.take(statuses)
		case event, ok := <-closes:
			closes = nil
			if ok {
				p.fail(errors.New(event.Reason))
			}
		case <-done:
			done = nil
			go func() {
				defer close(closed)
				p.env.release()
			}()
		}
	}
	<-closed
}

// take marks what the broker has stored and hands on, in rising order, the ids
// with nothing unconfirmed below them (delivery rule P2). The broker lists them
// in any order.
func (p *producer) take(statuses []*stream.ConfirmationStatus) {
	p.mu.Lock()
	var refused error
	for _, s := range statuses {
		id := uint64(s.GetPublishingId())
		if !s.IsConfirmed() {
			refused = fmt.Errorf("entry %d: %w", id, s.GetError())
			continue
		}
		for i := range p.pending { // a few
			if p.pending[i].id == id {
				p.pending[i].stored = true
				break
			}
		}
	}
	n := 0
	for n < len(p.pending) && p.pending[n].stored {
		n++
	}
	var ids [maxInFlight]uint64
	for i := range n {
		ids[i] = p.pending[i].id
	}
	if n > 0 {
		p.pending = p.pending[:copy(p.pending, p.pending[n:])]
		p.progress = time.Now()
	}
	p.mu.Unlock()
	if n > 0 {
		select {
		case p.room <- struct{}{}:
		default:
		}
		p.gate.Lock()
		for _, id := range ids[:n] {
			if p.quiet {
				break
			}
			p.confirmed(id)
		}
		p.gate.Unlock()
	}
	if refused != nil {
		p.fail(refused)
	}
}

// fail ends the producer because something went wrong.
func (p *producer) fail(reason error) {
	if p.end() {
		p.part.lost()
		p.d.log.Warn("a producer has ended", "stream", p.part.name, "reason", reason)
	}
}

// end closes done, once, and has run release the library's part.
func (p *producer) end() (first bool) {
	p.once.Do(func() {
		first = true
		p.mu.Lock()
		if p.watch != nil {
			p.watch.Stop()
			p.watch = nil
		}
		p.mu.Unlock()
		close(p.done)
		p.d.forget(p)
	})
	return first
}

// Close implements [streams.Producer]. It returns within a second, also
// when the broker hangs. It must not be called from confirmed.
func (p *producer) Close() error {
	p.gate.Lock()
	p.quiet = true
	p.gate.Unlock()
	p.end()
	waitFor(p.released, closeLimit)
	return nil
}
