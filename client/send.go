package client

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// maxFrame is the largest frame that a gateway takes; a larger one would end
	// the stream, again after each reconnect.
	maxFrame = 4 << 20
	// frameRoom is kept for what stands beside the payload.
	frameRoom = 64 << 10

	maxMessageID     = 64
	maxAddress       = 1024 // bytes: 256 characters of any script
	maxSubject       = 256
	maxMetadataKeys  = 64
	maxMetadataBytes = 16 << 10
	reservedPrefix   = "aether-"

	maxTracking = time.Hour
)

// Receipt says what became of a send.
type Receipt struct {
	// MessageID is the message's id, the client's or the one given by WithMessageID.
	MessageID string
	// To is the address.
	To string
	// Confirmed: the gateway has stored the message. It is false only from a
	// gateway that gives no receipts; then the message was written to it.
	Confirmed bool
	// Duplicate: the gateway had stored this message id from an earlier send, for
	// example before the connection broke; it is still stored once.
	Duplicate bool
	// Outcome is what became of it. With WithFirst and WithAll it is OutcomeStored
	// only for a Duplicate whose outcome this gateway does not know.
	Outcome Outcome
	// Reason is why it is OutcomeNacked: what a receiver gave, or the gateway's, such
	// as NoEligible.
	Reason string
	// Acked of Eligible receivers acknowledged, as far as it was known then; both 0
	// without WithFirst or WithAll.
	Acked, Eligible int
}

// A SendOption changes one send.
type SendOption func(*aetherv1.SendMessage)

// WithType says what the payload is. Without it the type is Event for `event`
// addresses, Metric for `metric` addresses and Opaque for all others.
func WithType(t Type) SendOption {
	return func(s *aetherv1.SendMessage) { s.MessageType = aetherv1.MessageType(t) }
}

// WithMessageID gives the message its id, 1 to 64 bytes; "" is refused. The
// gateway stores an id once per sender and address, for minutes; use it to
// repeat a send.
func WithMessageID(id string) SendOption {
	if id == "" {
		id = noMessageID
	}
	return func(s *aetherv1.SendMessage) { s.MessageId = id }
}

// noMessageID stands for an id that was given and is empty: it is no UTF-8, so
// nobody can mean it.
const noMessageID = "\xff none"

// WithSubject gives the message a dotted subject, which the receiver finds in
// [Message.Subject], and by which it may filter.
func WithSubject(subject string) SendOption {
	return func(s *aetherv1.SendMessage) { s.Subject = subject }
}

// WithMetadata adds keys and values: at most 64 and 16 KiB in all, none of which
// begins with "aether-". The map is copied.
func WithMetadata(metadata map[string]string) SendOption {
	return func(s *aetherv1.SendMessage) {
		if s.Metadata == nil {
			s.Metadata = make(map[string]string, len(metadata))
		}
		maps.Copy(s.Metadata, metadata)
	}
}

// WithTTL says that the message is not to be delivered later than this, counted
// from when the gateway accepts it, to the millisecond.
func WithTTL(d time.Duration) SendOption {
	return func(s *aetherv1.SendMessage) {
		s.TtlMs = int64((d + time.Millisecond - 1) / time.Millisecond)
		if d <= 0 {
			s.TtlMs = -1 // refused below: 0 would mean no limit
		}
	}
}

// WithFirst asks for the outcome: the first receiver's Ack, Nack or Drop decides.
// Of an address that belongs to one receiver that is its receiver, also one that
// comes later; of a shared one whoever has it when the gateways see the message;
// of workers the one that does it, and a Nack, which leaves it to others, only at
// the last attempt. After timeout it is OutcomeTimedOut; 0 is the gateway's
// default, 30 s, the most an hour. The message stays stored whatever the outcome
// is. It is not for Post.
func WithFirst(timeout time.Duration) SendOption {
	return withTracking(aetherv1.TrackingMode_TRACKING_MODE_FIRST, timeout)
}

// WithAll asks for the outcome of a broadcast, to ga, gu or uw: every receiver that
// is connected when the message comes by must acknowledge it; one that refuses,
// leaves or falls behind makes it OutcomeNacked. It is no transaction: some may
// have done their part then, and do it again for another send. The timeout is as
// for WithFirst.
func WithAll(timeout time.Duration) SendOption {
	return withTracking(aetherv1.TrackingMode_TRACKING_MODE_ALL, timeout)
}

func withTracking(mode aetherv1.TrackingMode, timeout time.Duration) SendOption {
	return func(s *aetherv1.SendMessage) {
		s.Tracking = &aetherv1.Tracking{Mode: mode, TimeoutMs: int64((timeout + time.Millisecond - 1) / time.Millisecond)}
		if timeout < 0 {
			s.Tracking.TimeoutMs = -1 // refused below
		}
	}
}

// WithWorkspace names the workspace that is meant by a sender without one of its
// own, which it must do for `metric` addresses.
func WithWorkspace(workspace string) SendOption {
	return func(s *aetherv1.SendMessage) { s.AppWorkspace = workspace }
}

// Send sends a message and waits until the gateway has stored it. The payload is
// copied. The error is an *Error: a refusal with the gateway's code and reason,
// or, when ctx ends first, one that says whether the message may have been
// stored. Safe for concurrent use.
//
// While there is no connection Send waits for the next one; ctx bounds that.
func (c *Client) Send(ctx context.Context, to string, payload []byte, opts ...SendOption) (Receipt, error) {
	p, err := c.SendAsync(ctx, to, payload, opts...)
	if err != nil {
		return Receipt{}, err
	}
	<-p.done // ends with ctx
	return p.receipt, p.err
}

// SendAsync sends a message without waiting for the answer, which the Pending
// will have. It waits only while Options.MaxPending or PendingBytes is reached,
// and fails at once for what the gateway would surely refuse. The message is
// given up when ctx ends, also later, so do not cancel ctx before the answer.
// Safe for concurrent use.
func (c *Client) SendAsync(ctx context.Context, to string, payload []byte, opts ...SendOption) (*Pending, error) {
	return c.enqueue(ctx, to, payload, false, opts)
}

// Post sends a message and asks for no answer: it returns the message's id when
// the message is in the client's queue. The gateway's refusal comes as a
// [Refused] notice, and a break of the connection may lose the message. Safe for
// concurrent use.
func (c *Client) Post(ctx context.Context, to string, payload []byte, opts ...SendOption) (messageID string, err error) {
	p, err := c.enqueue(ctx, to, payload, true, opts)
	if err != nil {
		return "", err
	}
	return p.MessageID, nil
}

func (c *Client) enqueue(ctx context.Context, to string, payload []byte, post bool, opts []SendOption) (*Pending, error) {
	msg := &aetherv1.SendMessage{TargetTopic: to}
	for _, opt := range opts {
		opt(msg)
	}
	if msg.MessageType == 0 {
		msg.MessageType = aetherv1.MessageType(defaultType(to))
	}
	if msg.MessageId == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, refused(CodeInternal, "no random numbers for a message id: %v", err).at(msg)
		}
		msg.MessageId = id.String()
	}
	size, err := c.checkSend(msg, payload)
	if err == nil && post && msg.GetTracking() != nil {
		err = refused(CodeInvalidArgument, "Post asks for no answer, and so for no outcome")
	}
	if err != nil {
		if msg.MessageId == noMessageID {
			msg.MessageId = ""
		}
		return nil, err.at(msg)
	}
	msg.Payload = append([]byte(nil), payload...)
	o := &outgoing{
		frame: &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: msg}},
		msg:   msg, size: size, post: post,
		pending: &Pending{MessageID: msg.GetMessageId(), done: make(chan struct{})},
	}
	if !post {
		msg.RequestId = "s" + strconv.FormatUint(c.requestSeq.Add(1), 36)
	}
	if err := c.sends.add(ctx, o); err != nil {
		return nil, err
	}
	return o.pending, nil
}

// checkSend refuses what the gateway would, as far as that needs no grammar, and
// what would break the stream. It returns the send's size.
func (c *Client) checkSend(msg *aetherv1.SendMessage, payload []byte) (int, *Error) {
	limit := c.Session().MaxPayload
	if limit == 0 {
		limit = maxFrame - frameRoom
	}
	if len(payload) > limit {
		e := refused(CodePayloadTooLarge, "the payload has %d bytes, the most is %d", len(payload), limit)
		e.Details = map[string]string{"size": strconv.Itoa(len(payload)), "limit": strconv.Itoa(limit)}
		return 0, e
	}
	if len(msg.TargetTopic) > maxAddress || !utf8.ValidString(msg.TargetTopic) || msg.TargetTopic == "" {
		return 0, refused(CodeInvalidTopic, "the address is empty, too long or not valid UTF-8")
	}
	if msg.MessageId == noMessageID {
		return 0, refused(CodeInvalidArgument, "the id given by WithMessageID is empty; without that option the client makes one")
	}
	if n := len(msg.MessageId); n > maxMessageID || !utf8.ValidString(msg.MessageId) {
		return 0, refused(CodeInvalidArgument, "a message id has 1 to %d bytes of UTF-8; this one has %d", maxMessageID, n)
	}
	if len(msg.Subject) > maxSubject || !utf8.ValidString(msg.Subject) {
		return 0, refused(CodeInvalidTopic, "the subject is longer than %d bytes or not valid UTF-8", maxSubject)
	}
	if len(msg.AppWorkspace) > maxAddress || !utf8.ValidString(msg.AppWorkspace) {
		return 0, refused(CodeInvalidArgument, "the workspace is too long or not valid UTF-8")
	}
	if own := c.opts.Identity.workspace; own != "" && msg.AppWorkspace != "" && msg.AppWorkspace != own {
		return 0, refused(CodePermissionDenied, "WithWorkspace(%q) is not for this sender: %s sends from its own workspace", msg.AppWorkspace, c.opts.Identity)
	}
	if def := defaultType(msg.TargetTopic); def != Opaque && Type(msg.MessageType) != def {
		return 0, refused(CodeInvalidArgument, "the type is %s, and this address takes only %s", Type(msg.MessageType), def)
	}
	if msg.TtlMs < 0 {
		return 0, refused(CodeInvalidArgument, "the TTL is not positive")
	}
	if ms := msg.GetTracking().GetTimeoutMs(); ms < 0 || ms > maxTracking.Milliseconds() {
		return 0, refused(CodeInvalidArgument, "the time for the outcome is negative or more than %s", maxTracking)
	}
	if len(msg.Metadata) > maxMetadataKeys {
		return 0, refused(CodeInvalidArgument, "the metadata has %d keys, the most is %d", len(msg.Metadata), maxMetadataKeys)
	}
	size := 0
	for k, v := range msg.Metadata {
		if strings.HasPrefix(k, reservedPrefix) {
			return 0, refused(CodeInvalidArgument, "the metadata key %q begins with %q, which is the gateway's", k, reservedPrefix)
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return 0, refused(CodeInvalidArgument, "the metadata is not valid UTF-8")
		}
		size += len(k) + len(v)
	}
	if size > maxMetadataBytes {
		return 0, refused(CodeInvalidArgument, "the metadata has %d bytes, the most is %d", size, maxMetadataBytes)
	}
	return size + len(payload) + len(msg.TargetTopic), nil
}

// at says which send an error is of.
func (e *Error) at(msg *aetherv1.SendMessage) *Error {
	e.To, e.MessageID = msg.GetTargetTopic(), msg.GetMessageId()
	return e
}

func defaultType(to string) Type {
	switch {
	case strings.HasPrefix(to, "event::"):
		return Event
	case strings.HasPrefix(to, "metric::"):
		return Metric
	}
	return Opaque
}
