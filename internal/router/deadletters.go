package router

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

var (
	// ErrNoDeadLetters says that this gateway's log has no room for dead
	// letters.
	ErrNoDeadLetters = errors.New("router: there is no dead-letter log")
	// ErrNoDeadLetter says that there is no dead letter at a position: it never
	// was, was purged, or retention has removed it.
	ErrNoDeadLetter = errors.New("router: there is no such dead letter")
	// ErrReplayed says that a dead letter was sent to its address again before.
	ErrReplayed = errors.New("router: the dead letter was replayed already")
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

// DeadLetterFilter chooses dead letters; its zero value chooses all.
type DeadLetterFilter struct {
	// Prefix is how their address begins, Reason why they were given up.
	Prefix, Reason string
	// Original, if it is not nil, is the position that it had at its address.
	Original *uint64
}

func (f *DeadLetterFilter) wants(e *aetherv1.MessageEnvelope) bool {
	if f.Original != nil && e.GetMetadata()[deadPosition] != strconv.FormatUint(*f.Original, 10) {
		return false
	}
	return strings.HasPrefix(e.GetTopic(), f.Prefix) && (f.Reason == "" || e.GetMetadata()[deadReason] == f.Reason)
}

// DeadLetters returns dead letters in the order of their positions, at most
// limit of them and some megabytes, from the position from on (0: the first),
// and where to go on. next is 0 if there are no more. It takes nothing. The
// first call reads the log of dead letters from its beginning to its end, later
// ones what is asked for and what is new; when ctx ends before it has come to the
// end it returns what it has found by then.
func (r *Router) DeadLetters(ctx context.Context, from uint64, limit int, f DeadLetterFilter) (list []DeadLetter, next uint64, err error) {
	done, err := r.dead.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	end, err := r.dead.refresh(ctx)
	if err != nil {
		return nil, 0, err
	}
	size, passed := 0, uint64(0)
	err = r.readDead(ctx, from, end, func(position uint64, e *aetherv1.MessageEnvelope) bool {
		if e.GetKind() != aetherv1.MessageEnvelope_KIND_DEAD_LETTER || !f.wants(e) || r.dead.gone.has(position) {
			passed = position
			return true
		}
		if size += proto.Size(e); len(list) >= limit || len(list) > 0 && size > maxObservedBytes {
			next = position
			return false
		}
		list, passed = append(list, deadLetterOf(position, e)), position
		return true
	})
	if err != nil && passed > from {
		return list, passed + 1, nil
	}
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
// included, go, and returns how many there were. A log cannot be written over:
// a record at its end says so, and what they take is freed by retention. What is
// given up after the call stays.
func (r *Router) PurgeDeadLetters(ctx context.Context, from, to uint64) (n int, err error) {
	done, err := r.dead.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	end, err := r.dead.refresh(ctx)
	if err != nil {
		return 0, err
	}
	to = min(to, end)
	err = r.readDead(ctx, from, end, func(position uint64, e *aetherv1.MessageEnvelope) bool {
		if position > to {
			return false
		}
		if e.GetKind() == aetherv1.MessageEnvelope_KIND_DEAD_LETTER && !r.dead.gone.has(position) {
			n++
		}
		return true
	})
	if err != nil || n == 0 {
		return 0, err
	}
	return n, r.purgeDead(ctx, span{first: from, last: to})
}

// purgeDead records that dead letters are gone, and waits until that is stored.
func (r *Router) purgeDead(ctx context.Context, s span) error {
	_, stored, err := r.markDead(s.record())
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

// markDead puts a record on its way into the dead-letter log.
func (r *Router) markDead(metadata map[string]string) (seq uint64, stored <-chan streams.Outcome, err error) {
	if r.dead.partition < 0 {
		return 0, nil, ErrNoDeadLetters
	}
	e := marker(metadata)
	e.TimestampMs = r.nowMS()
	outcome := make(chan streams.Outcome, 2) // as many as there may be
	err = r.dead.append(e, func(o streams.Outcome) { outcome <- o })
	return e.GetOriginSeq(), outcome, err
}

func marker(metadata map[string]string) *aetherv1.MessageEnvelope {
	return &aetherv1.MessageEnvelope{Kind: aetherv1.MessageEnvelope_KIND_MARKER, Metadata: metadata}
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
