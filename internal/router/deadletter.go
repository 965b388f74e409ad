package router

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Why a message is in the dead-letter log.
const (
	// DeadRejected: its receiver wanted it again until the last attempt.
	DeadRejected = "rejected"
	// DeadUnfinished: workers gave it back until the last attempt.
	DeadUnfinished = "unfinished"
	// DeadUnclaimed: no worker came for it in time, or too many waited.
	DeadUnclaimed = "unclaimed"
)

// The metadata of a dead letter that says where it comes from. Clients cannot
// set keys with this beginning.
const (
	deadReason   = reservedMetadata + "dead-reason"
	deadPosition = reservedMetadata + "dead-position"
	deadAttempts = reservedMetadata + "dead-attempts"
	deadAt       = reservedMetadata + "dead-at"
	purgeFrom    = reservedMetadata + "purge-from"
	purgeTo      = reservedMetadata + "purge-to"
	purgeWhy     = reservedMetadata + "purge-why"
	replayOf     = envelope.ReplayOf
)

// replayed is why dead letters are gone that were sent again.
const replayed = "replayed"

// maxDead bounds the messages of workers that wait to be stored as dead
// letters; past it one is only named in the gateway's log.
const maxDead = 10_000

// deadLetters is this gateway's way into the dead-letter log (delivery rule
// S8): a stream of its own behind the partitions, if the driver has one.
type deadLetters struct {
	r         *Router
	partition int // -1: there is none
	later     *backlog
	open      func() *streams.Writer[deadItem]

	turn chan struct{} // held by whom operators let work on dead letters
	deadIndex

	mu     sync.Mutex
	seq    uint64
	writer *streams.Writer[deadItem] // nil until it is needed
	closed bool
}

// deadItem is an envelope on its way to the dead-letter log.
type deadItem struct{ settled func(streams.Outcome) }

func newDeadLetters(r *Router, o Options, name string) *deadLetters {
	d := &deadLetters{r: r, partition: -1, later: newBacklog(r, nil), turn: make(chan struct{}, 1)}
	if n := o.Placement.Count(); o.Driver.Partitions() > n {
		d.partition = n
	}
	d.open = func() *streams.Writer[deadItem] {
		return streams.NewWriter(streams.WriterOptions[deadItem]{
			Driver: o.Driver, Partition: d.partition, Name: name, Logger: r.log, Timeout: o.PublishTimeout, Settled: d.settled,
		})
	}
	return d
}

func (d *deadLetters) settled(items []deadItem, outcome streams.Outcome) {
	for _, it := range items {
		it.settled(outcome)
	}
}

// append numbers an envelope and puts it on its way. settled may be called
// twice: with Stored after Unknown.
func (d *deadLetters) append(e *aetherv1.MessageEnvelope, settled func(streams.Outcome)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.partition < 0 {
		return streams.ErrClosed
	}
	if d.writer == nil {
		d.writer = d.open()
	}
	d.seq++
	e.Origin, e.OriginSeq = d.r.origin, d.seq
	b, err := proto.Marshal(e)
	if err != nil {
		return err
	}
	return d.writer.Append(b, deadItem{settled})
}

func (d *deadLetters) close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	w := d.writer
	d.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Close(ctx)
}

// letter is a message that is given up.
type letter struct {
	p        *partition
	topic    string
	position int64
	attempts uint8
	reason   string
}

// of returns the dead letter of an envelope: the same, with where it comes
// from.
func (l *letter) of(raw []byte, now time.Time) (*aetherv1.MessageEnvelope, error) {
	e := new(aetherv1.MessageEnvelope)
	if err := proto.Unmarshal(raw, e); err != nil {
		return nil, err
	}
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[deadReason] = l.reason
	e.Metadata[deadPosition] = strconv.FormatInt(l.position, 10)
	e.Metadata[deadAttempts] = strconv.Itoa(int(l.attempts))
	e.Metadata[deadAt] = strconv.FormatInt(now.UnixMilli(), 10)
	e.Kind = aetherv1.MessageEnvelope_KIND_DEAD_LETTER
	return e, nil
}

// bury puts a message into the dead-letter log and calls done when it is there:
// then, and not before, it counts as done (delivery rule S8). It tries as long
// as the backlog is open. Without a dead-letter log, and for a message that the
// log does not have any more, it names it and is done.
func (d *deadLetters) bury(l letter, b *backlog, alive func() bool, done func()) {
	failures := 0
	var try func() time.Duration
	try = func() time.Duration {
		if alive != nil && !alive() {
			return 0
		}
		v, err := d.r.fetch(l.p, streams.Position(l.position))
		if err != nil && !errors.Is(err, errGone) {
			failures++
			return backoffAfter(failures)
		}
		var e *aetherv1.MessageEnvelope
		if err == nil && d.partition >= 0 {
			e, err = l.of(v.Raw(), d.r.now())
		}
		if err != nil || d.partition < 0 {
			d.name(&l, &v)
			done()
			return 0
		}
		err = d.append(e, func(o streams.Outcome) {
			switch o {
			case streams.Stored:
				d.r.stats.DeadLetters.Add(1)
				d.name(&l, &v)
				done()
			case streams.NotStored:
				b.add(backoffAfter(failures), try)
			case streams.Unknown: // it will be stored, or this gateway ends before
			}
		})
		if errors.Is(err, streams.ErrTooLarge) {
			d.name(&l, &v)
			done()
			return 0
		}
		if err != nil {
			failures++
			return backoffAfter(failures)
		}
		return 0
	}
	b.add(0, try)
}

// name logs which message was given up. Whoever tracks it has nobody more to wait
// for.
func (d *deadLetters) name(l *letter, v *envelope.View) {
	l.p.refuseTracked(v, l.reason)
	d.r.log.Warn("a message is given up", "topic", l.topic, "position", l.position, "reason", l.reason,
		"attempts", l.attempts, "source", string(v.Source), "message_id", string(v.MessageID))
}

// giveUp is for a message that workers do not finish; done may be nil.
func (r *Router) giveUp(l letter, done func()) {
	r.stats.GivenUp.Add(1)
	if done == nil {
		done = func() {}
	}
	if l.position == none || r.dead.later.size() >= maxDead {
		r.dead.name(&l, &envelope.View{})
		done()
		return
	}
	r.dead.bury(l, r.dead.later, nil, done)
}

// bury remembers a delivery that is on its way to the dead-letter log.
func (s *Subscription) bury(id uint64) {
	s.dyingMu.Lock()
	defer s.dyingMu.Unlock()
	s.dying = append(s.dying, id)
}

// buried reports whether no delivery is on its way to the dead-letter log.
func (s *Subscription) buried() bool {
	s.dyingMu.Lock()
	defer s.dyingMu.Unlock()
	s.dying = slices.DeleteFunc(s.dying, func(id uint64) bool {
		_, _, open := s.box.PositionOf(id)
		return !open
	})
	return len(s.dying) == 0
}

// giveUpDelivery is for a delivery of an exclusive address that its receiver
// refuses for the last time. It stays open until the dead-letter log has it: if
// the session ends before, it comes again to the next one.
func (r *Router) giveUpDelivery(in *inbox, n delivery.Nacked) {
	r.stats.GivenUp.Add(1)
	box := in.Mailbox()
	if r.dead.partition < 0 {
		position, known, _ := box.PositionOf(n.ID)
		box.Finish(n.ID)
		if known {
			r.dead.bury(letter{in.p, in.Address, int64(position), n.Attempts, DeadRejected}, r.dead.later, nil, func() {})
		}
		return
	}
	in.sub.bury(n.ID)
	in.sub.again.add(0, func() time.Duration {
		position, known, open := box.PositionOf(n.ID)
		switch {
		case !open:
			return 0
		case !known && in.p.neverStored(in, n.ID):
			box.Finish(n.ID)
			return 0
		case !known:
			return redeliverRetry
		}
		alive := func() bool {
			_, _, open := box.PositionOf(n.ID)
			return open
		}
		r.dead.bury(letter{in.p, in.Address, int64(position), n.Attempts, DeadRejected}, in.sub.again, alive, func() { box.Finish(n.ID) })
		return 0
	})
}
