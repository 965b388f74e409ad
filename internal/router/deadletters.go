package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/streams"
)

var (
	// ErrNoDeadLetters says that this gateway's log has no room for dead
	// letters.
	ErrNoDeadLetters = errors.New("router: there is no dead-letter log")
	// ErrNoDeadLetter says that there is no dead letter at a position: it never
	// was, was purged or replayed, or retention has removed it.
	ErrNoDeadLetter = errors.New("router: there is no such dead letter")
)

// DeadLetter is a message that was given up (delivery rule S8).
type DeadLetter struct {
	// Position names it in the dead-letter log.
	Position uint64
	// Reason is one of [DeadRejected], [DeadUnfinished], [DeadUnclaimed];
	// Attempts is how often it was delivered, At when it was given up.
	Reason   string
	Attempts int
	At       time.Time
	// Original is the position that it had in the log of its address.
	Original uint64
	// Message is the message itself, as it was stored.
	Message *aetherv1.MessageEnvelope
}

// DeadLetters returns dead letters in the order of their positions, at most
// limit of them, from the position from on (0: the first), and where to go on.
// next is 0 if there are no more. It reads the dead-letter log from there to its
// end, so it takes as long as that is.
func (r *Router) DeadLetters(ctx context.Context, from uint64, limit int) (list []DeadLetter, next uint64, err error) {
	gone, end, err := r.purged(ctx, from)
	if err != nil {
		return nil, 0, err
	}
	err = r.readDead(ctx, from, end, func(position uint64, e *aetherv1.MessageEnvelope) bool {
		if e.GetKind() != aetherv1.MessageEnvelope_KIND_DEAD_LETTER || gone.has(position) {
			return true
		}
		if len(list) >= limit {
			next = position
			return false
		}
		list = append(list, deadLetterOf(position, e))
		return true
	})
	return list, next, err
}

func deadLetterOf(position uint64, e *aetherv1.MessageEnvelope) DeadLetter {
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(e.GetMetadata()[key], 10, 64)
		return n
	}
	d := DeadLetter{
		Position: position, Reason: e.GetMetadata()[deadReason], Attempts: int(number(deadAttempts)),
		At: time.UnixMilli(number(deadAt)), Original: uint64(number(deadPosition)), Message: e,
	}
	for _, key := range []string{deadReason, deadAttempts, deadAt, deadPosition} {
		delete(e.Metadata, key)
	}
	return d
}

// PurgeDeadLetters makes the dead letters from one position to another, both
// included, go. A log cannot be written over: a record at its end says so, and
// what they take is freed by retention.
func (r *Router) PurgeDeadLetters(ctx context.Context, from, to uint64) error {
	_, stored, err := r.markDead(map[string]string{purgeFrom: strconv.FormatUint(from, 10), purgeTo: strconv.FormatUint(to, 10)})
	if err != nil {
		return err
	}
	for {
		select {
		case o := <-stored:
			switch o {
			case streams.Stored:
				return nil
			case streams.NotStored:
				return ErrUnready
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ReplayDeadLetter sends a dead letter to its address again and purges it when
// it is stored. It is a new message, with an id and a time of its own and
// without the old one's time to live: receivers recognise repeats by their ids.
// After an error of purging it is sent and still there.
func (r *Router) ReplayDeadLetter(ctx context.Context, position uint64) error {
	gone, end, err := r.purged(ctx, position)
	if err != nil {
		return err
	}
	var found *aetherv1.MessageEnvelope
	err = r.readDead(ctx, position, end, func(at uint64, e *aetherv1.MessageEnvelope) bool {
		if at == position && e.GetKind() == aetherv1.MessageEnvelope_KIND_DEAD_LETTER && !gone.has(position) {
			found = e
		}
		return false
	})
	if err != nil {
		return err
	}
	if found == nil {
		return ErrNoDeadLetter
	}
	d := deadLetterOf(position, found)
	if err := r.resend(ctx, d.Message); err != nil {
		return fmt.Errorf("replay the dead letter at %d: %w", position, err)
	}
	return r.PurgeDeadLetters(ctx, position, position)
}

// resend publishes a message again, in the name of who sent it.
func (r *Router) resend(ctx context.Context, m *aetherv1.MessageEnvelope) error {
	e := envelope.Envelope{
		Source: m.GetSource(), Payload: m.GetPayload(), Type: int32(m.GetMessageType()), Metadata: m.GetMetadata(),
		Workspace: m.GetWorkspace(), Subject: m.GetSubject(), Topic: m.GetTopic(), Origin: r.origin, TimestampMS: r.nowMS(),
		Era: m.GetWorkspaceEra(),
	}
	if m.GetOnBehalfSubject() != nil {
		var err error
		if e.OnBehalf, err = proto.Marshal(m.GetOnBehalfSubject()); err != nil {
			return err
		}
	}
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[replayOf] = m.GetMessageId()
	box := delivery.NewMailbox(delivery.Options{})
	defer box.Close()
	s := r.NewSender(&acl.Principal{}, e.Source, presence.Lease{}, box, func() {})
	if err := s.publish("replay", &e, nil); err != nil {
		return err
	}
	var batch delivery.Batch
	for !box.Take(&batch) {
		select {
		case <-box.Wake():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var answer aetherv1.DownstreamMessage
	if err := proto.Unmarshal(batch.Frames[0], &answer); err != nil {
		return err
	}
	if e := answer.GetError(); e != nil {
		return fmt.Errorf("%s: %s", e.GetCode(), e.GetMessage())
	}
	return nil
}

// markDead puts a record on its way into the dead-letter log.
func (r *Router) markDead(metadata map[string]string) (seq uint64, stored <-chan streams.Outcome, err error) {
	if r.dead.partition < 0 {
		return 0, nil, ErrNoDeadLetters
	}
	e := &aetherv1.MessageEnvelope{
		Kind: aetherv1.MessageEnvelope_KIND_MARKER, TimestampMs: r.nowMS(), Metadata: metadata,
	}
	outcome := make(chan streams.Outcome, 2) // as many as there may be
	err = r.dead.append(e, func(o streams.Outcome) { outcome <- o })
	return e.GetOriginSeq(), outcome, err
}

// deadEnd returns the end of the dead-letter log: the position of a record that
// is written now (delivery rule M1).
func (r *Router) deadEnd(ctx context.Context) (end uint64, err error) {
	written := make(chan uint64, 1)
	found := make(chan struct{})
	seq, stopped := uint64(0), false
	c, err := r.driver.OpenConsumer(ctx, r.dead.partition, streams.Next(), func(e streams.Entry) {
		if seq == 0 {
			select {
			case seq = <-written:
			case <-ctx.Done():
				return
			}
		}
		var v envelope.View
		for it := streams.Open(e.Data); !stopped && it.Next(); {
			if v.Parse(it.Bytes()) == nil && v.Origin == r.origin && v.Seq >= seq {
				end, stopped = uint64(streams.At(e.Offset, it.Index())), true
				close(found)
			}
		}
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	n, stored, err := r.markDead(nil)
	if err != nil {
		return 0, err
	}
	written <- n
	for {
		select {
		case <-found:
			return end, nil
		case o := <-stored:
			if o == streams.NotStored {
				return 0, ErrUnready
			}
		case <-c.Done():
			return 0, streams.ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// ranges are positions that were purged, each from and to.
type ranges [][2]uint64

func (g ranges) has(position uint64) bool {
	for _, one := range g {
		if position >= one[0] && position <= one[1] {
			return true
		}
	}
	return false
}

// purged returns what of the dead-letter log from a position on was purged, and
// where the log ends.
func (r *Router) purged(ctx context.Context, from uint64) (gone ranges, end uint64, err error) {
	if r.dead.partition < 0 {
		return nil, 0, ErrNoDeadLetters
	}
	if end, err = r.deadEnd(ctx); err != nil {
		return nil, 0, err
	}
	err = r.readDead(ctx, from, end, func(_ uint64, e *aetherv1.MessageEnvelope) bool {
		first, errFirst := strconv.ParseUint(e.GetMetadata()[purgeFrom], 10, 64)
		last, errLast := strconv.ParseUint(e.GetMetadata()[purgeTo], 10, 64)
		if e.GetKind() == aetherv1.MessageEnvelope_KIND_MARKER && errFirst == nil && errLast == nil {
			gone = append(gone, [2]uint64{first, last})
		}
		return true
	})
	return gone, end, err
}

// readDead reads the dead-letter log from a position to its end, or until each
// returns false.
func (r *Router) readDead(ctx context.Context, from, end uint64, each func(uint64, *aetherv1.MessageEnvelope) bool) error {
	if from >= end {
		return nil
	}
	over, ended := make(chan struct{}), false
	c, err := r.driver.OpenConsumer(ctx, r.dead.partition, streams.From(streams.Position(from).Offset()), func(e streams.Entry) {
		for it := streams.Open(e.Data); !ended && it.Next(); {
			position := uint64(streams.At(e.Offset, it.Index()))
			m := new(aetherv1.MessageEnvelope)
			if position < from || position < end && proto.Unmarshal(it.Bytes(), m) != nil {
				continue
			}
			if position >= end || !each(position, m) {
				ended = true
				close(over)
			}
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	select {
	case <-over:
		return nil
	case <-c.Done():
		return streams.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
