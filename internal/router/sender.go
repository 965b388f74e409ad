package router

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Sender is a session as far as it sends. Send is called by one goroutine.
type Sender struct {
	r         *Router
	principal *acl.Principal
	source    string
	box       *delivery.Mailbox
	overflow  func()
	lease     presence.Lease
	parts     []senderPart    // by partition, under the partition's lock
	account   *limits.Account // nil: no rate is limited

	heldSends, heldBytes atomic.Int64 // what waits in lines
	dropped              atomic.Bool  // nothing is taken any more

	looking      looking // for grants
	refusedLater func(target string, err *wireerr.Error)
	// told gets outcomes in place of the mailbox, if it is not nil; nil is stored.
	// It must not take locks of the router.
	told func(requestID string, err *wireerr.Error)
	// span is that of the send that is on; nil: it is not traced.
	span *tracing.Span

	permits *tracker.Permits   // for tracked sends
	polls   map[*poll]struct{} // whose outcomes it waits for; under the lock of polls
	owed    owed

	waiting atomic.Int64 // sends that will be answered
	mu      sync.Mutex
	settled chan struct{} // closed when none waits; nil if nobody asked
}

// senderPart is a sender's standing in a partition (delivery rule M2).
type senderPart struct {
	base     uint64 // the last origin_seq given when the session began
	eligible bool
	fence    uint64 // the last origin_seq given when it became eligible
}

// NewSender returns the sending half of a session. source is its identity
// string; its lease must be held, and what it sent by an earlier session must
// be stored by now or never be. What it sends when the lease is lost is refused
// (delivery rule L2). overflow is called when the mailbox does not take an
// answer any more, because the client reads none; it must not block.
func (r *Router) NewSender(p *acl.Principal, source string, lease presence.Lease, box *delivery.Mailbox, overflow func()) *Sender {
	s := &Sender{
		r: r, principal: p, source: source, lease: lease, box: box, overflow: overflow,
		parts: make([]senderPart, len(r.parts)), permits: tracker.NewPermits(r.maxInFlight),
	}
	for i, part := range r.parts {
		part.mu.Lock()
		s.parts[i].base = part.seq
		part.mu.Unlock()
	}
	return s
}

// eligible reports whether what this sender sends may be handed over live,
// and from which fence on (delivery rule M2). It becomes so once something
// that this gateway accepted after the session began has come back on the
// tail: then nothing of an earlier life on another gateway is still on its
// way. The partition's lock is held; the present envelope is numbered.
func (s *Sender) eligible(p *partition) (fence uint64, ok bool) {
	part := &s.parts[p.id]
	if !part.eligible {
		if p.seen <= part.base {
			return 0, false
		}
		part.eligible, part.fence = true, p.seq-1
	}
	return part.fence, true
}

// Settled returns a channel that is closed when no send waits for its answer.
// It is for a session that sends nothing more.
func (s *Sender) Settled() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled == nil {
		s.settled = make(chan struct{})
		s.announce()
	}
	return s.settled
}

// announce closes settled if it is time. The lock is held.
func (s *Sender) announce() {
	if s.settled == nil || s.waiting.Load() > 0 {
		return
	}
	select {
	case <-s.settled:
	default:
		close(s.settled)
	}
}

// answered counts a send that was answered.
func (s *Sender) answered() {
	if s.waiting.Add(-1) == 0 {
		s.mu.Lock()
		s.announce()
		s.mu.Unlock()
	}
}

// answer says what an answer belongs to.
type answer struct{ requestID, messageID, topic string }

func (a answer) name(e *wireerr.Error) *wireerr.Error {
	if a.messageID != "" {
		e = e.With("message_id", a.messageID)
	}
	return e.With("topic", a.topic)
}

// settle answers a send whose outcome is known.
func (s *Sender) settle(a answer, outcome streams.Outcome, duplicate, silent bool) {
	switch outcome {
	case streams.Stored:
		s.r.stats.Stored.Add(1)
		if s.told != nil {
			s.told(a.requestID, nil)
			return
		}
		if a.requestID != "" && !silent {
			var frame [receiptSize]byte // of most
			s.reply(appendReceipt(frame[:0], a.requestID, a.messageID, duplicate))
		}
	case streams.NotStored:
		s.r.stats.Failed.Add(1)
		s.refuse(a.requestID, a.name(wireerr.New(wireerr.Unavailable, "the log was away; the message is not stored")))
	case streams.Unknown:
		s.r.stats.Failed.Add(1)
		s.refuse(a.requestID, a.name(wireerr.New(wireerr.PublishFailed,
			"the log did not confirm the message in time; retry with the same message_id")))
	}
}

func (s *Sender) reply(frame []byte) {
	if !s.box.Reply(frame) {
		s.overflow()
	}
}

func (s *Sender) refuse(requestID string, e *wireerr.Error) {
	if s.told != nil {
		s.told(requestID, e)
		return
	}
	s.reply(ErrorFrame(requestID, e))
}

// ErrorFrame encodes the frame that tells a client of an error.
func ErrorFrame(requestID string, e *wireerr.Error) []byte {
	frame, err := proto.Marshal(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{
		Code: string(e.Code), Message: e.Message, Retryable: e.Retryable, RetryAfterMs: e.RetryAfterMillis(),
		RequestId: requestID, Details: e.Details,
	}}})
	if err != nil {
		// Only invalid UTF-8 can fail, and every text in it has been checked.
		return nil
	}
	return frame
}

// Field numbers of a receipt frame.
const (
	fieldReceipt   = 100 // DownstreamMessage.receipt
	fieldRequestID = 1
	fieldMessageID = 2
	fieldStatus    = 3
	fieldDuplicate = 5
)

const receiptSize = 192

// appendReceipt encodes a DownstreamMessage with a STORED receipt; there is
// one for nearly every message.
func appendReceipt(dst []byte, requestID, messageID string, duplicate bool) []byte {
	size := 2 + protowire.SizeBytes(len(requestID)) + protowire.SizeBytes(len(messageID)) + 2
	if duplicate {
		size += 2
	}
	dst = protowire.AppendTag(dst, fieldReceipt, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = protowire.AppendTag(dst, fieldRequestID, protowire.BytesType)
	dst = protowire.AppendString(dst, requestID)
	dst = protowire.AppendTag(dst, fieldMessageID, protowire.BytesType)
	dst = protowire.AppendString(dst, messageID)
	dst = protowire.AppendTag(dst, fieldStatus, protowire.VarintType)
	dst = protowire.AppendVarint(dst, uint64(aetherv1.SendReceipt_STATUS_STORED))
	if duplicate {
		dst = protowire.AppendTag(dst, fieldDuplicate, protowire.VarintType)
		dst = protowire.AppendVarint(dst, 1)
	}
	return dst
}
