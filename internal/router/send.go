package router

import (
	"errors"
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// pending is what is remembered of an envelope until its outcome is known.
type pending struct {
	sender    *Sender // nil for the gateway's own
	key       pair
	id        idKey // if byClient
	byClient  bool  // the message id is the client's
	silent    bool  // nothing is answered unless it fails
	tracked   bool  // its outcome is for the poll
	requestID string
	messageID string
	seq       uint64
	span      *tracing.Span // nil: it is not traced
	stored    func()        // called when it is in the log; nil: nobody asks
}

// follows says whose order a failed publish breaks (delivery rule P4).
func follows(failed, later *pending) bool {
	return failed.sender != nil && failed.key == later.key
}

// followsKey is equal for what follows reports.
func followsKey(p *pending) uint64 { return maphash.Comparable(hashSeed, p.key) }

// Send takes a client's message on its way: decide, check, stamp, publish,
// deliver. It returns before the message is stored; the receipt, if one was
// asked for, comes by the mailbox. A refusal is returned, and nothing has
// happened then.
func (s *Sender) Send(msg *aetherv1.SendMessage) *wireerr.Error {
	s.r.stats.Sends.Add(1)
	if s.r.tracer != nil {
		s.span = s.r.tracer.Start("aether.send", msg.GetMetadata())
	}
	err := s.send(msg)
	if s.span != nil {
		s.traced(err)
	}
	if err != nil {
		s.r.stats.Refused.Add(1)
		s.r.refusals.add(s.source, msg, err)
		err = answer{messageID: msg.GetMessageId(), topic: msg.GetTargetTopic()}.name(err)
	}
	return err
}

// traced ends the span of a send.
func (s *Sender) traced(err *wireerr.Error) {
	outcome := ""
	if err != nil {
		outcome = string(err.Code)
	}
	s.span.End(outcome)
	s.span = nil
}

// prefixOf is the first segment of an address.
func prefixOf(topic string) string {
	prefix, _, _ := strings.Cut(topic, "::")
	return prefix
}

func (s *Sender) send(msg *aetherv1.SendMessage) *wireerr.Error {
	to, err := address.Parse(msg.GetTargetTopic())
	if err != nil {
		return wireerr.New(wireerr.InvalidTopic, "%v", err)
	}
	if d := s.r.Decide(s.principal, to); !d.Allowed {
		return wireerr.New(wireerr.PermissionDenied, "%s", d.Message(s.principal, to))
	}
	e := envelope.Envelope{
		Source: s.source, Payload: msg.GetPayload(), Type: int32(msg.GetMessageType()),
		Metadata: msg.GetMetadata(), Subject: msg.GetSubject(), MessageID: msg.GetMessageId(),
		Topic: to.String(), Origin: s.r.origin, TimestampMS: s.r.nowMS(),
	}
	workspace, refused := s.workspace(msg, to)
	if refused != nil {
		return refused
	}
	e.Workspace = workspace
	if err := s.decideMetrics(to, workspace); err != nil {
		return err
	}
	acting, refused := s.authorize(msg, to, &e)
	if refused != nil {
		return refused
	}
	if err := s.check(msg, to, &e); err != nil {
		return err
	}
	era, name, exists := s.r.spaces.stamp(to, e.Workspace)
	if !exists {
		return wireerr.New(wireerr.NotFound, "%s", NoWorkspace(name))
	}
	e.Era = era
	track, refused := s.r.trackingOf(msg, to)
	if refused != nil {
		return refused
	}
	if err := track.take(s); err != nil {
		return err
	}
	return s.publish(msg.GetRequestId(), &e, acting, track)
}

// publish stores the envelope and hands it over live, at once or when it need
// not wait any more. Everything that a client must not choose is set by now, but
// for whom it acts if that has to be looked up.
func (s *Sender) publish(requestID string, e *envelope.Envelope, acting *acting, track *tracking) *wireerr.Error {
	d := draft{envelope: *e, requestID: requestID, byClient: e.MessageID != "", acting: acting, track: track}
	if s.span != nil {
		d.envelope.Metadata, d.span = s.span.Inject(e.Metadata), s.span.Child("aether.publish")
	}
	if d.byClient {
		d.id, d.digest = keyOf(s.source, e.Topic, e.MessageID), digestOf(e)
	} else {
		d.envelope.MessageID, d.envelope.Drawn = newID(), true
	}
	p := s.r.parts[s.r.placement.Of(e.Topic)]
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.submit(s, &d)
	if s.span != nil {
		s.span.Of(d.envelope.MessageID, prefixOf(e.Topic))
	}
	if err != nil {
		d.span.End(string(err.Code))
		d.track.giveBack(s)
	}
	return err
}

// accept numbers a send, appends it to the log and hands it over live. It is
// refused, or it will be answered. The lock is held.
func (p *partition) accept(s *Sender, d *draft) *wireerr.Error {
	if d.acting != nil {
		if err := s.act(d); err != nil {
			return err
		}
	}
	e := &d.envelope
	key := pair{s.source, e.Topic}
	if d.byClient {
		if r := p.known(d); r != nil {
			return p.repeated(s, r, d)
		}
	}
	if s.lease.Lost() {
		return errLost()
	}
	e.Seq = p.seq + 1
	tracked := d.track != nil
	if tracked {
		if err := p.track(s, d); err != nil {
			return err
		}
	}
	p.scratch = e.Append(p.scratch[:0])
	err := p.writer.Append(p.scratch, pending{
		sender: s, key: key, id: d.id, byClient: d.byClient, silent: d.silent || tracked, tracked: tracked,
		requestID: d.requestID, messageID: e.MessageID, seq: e.Seq, span: d.span,
	})
	if err != nil {
		if tracked {
			p.r.polls.abandon(pollKey{p.id, e.Seq})
		}
		return refusal(err)
	}
	if d.byClient {
		p.ids.add(d.id, d.digest, e.TimestampMS).seq = e.Seq
	}
	s.waiting.Add(1)
	p.seq = e.Seq
	if p.ghosts.has(d) {
		p.announce(e.Topic, e.Seq)
	}
	p.handLive(e.Topic, p.scratch, s)
	if cap(p.scratch) > 256<<10 {
		p.scratch = nil
	}
	return nil
}

// known returns what is known of the message id of a send, nil if it is new.
func (p *partition) known(d *draft) *idRecord {
	r := p.ids.find(d.id, p.r.nowMS())
	if r != nil && r.outcome == streams.Unknown && p.seen > r.seq && r.position == none {
		return nil // the tail has passed it over: it was never stored
	}
	return r
}

// repeated answers a message id that the sender has used for this address
// (delivery rule P6). The lock is held.
func (p *partition) repeated(s *Sender, r *idRecord, d *draft) *wireerr.Error {
	if r.digest != d.digest {
		return wireerr.New(wireerr.InvalidArgument, "message_id has been used for another message to this address")
	}
	s.r.stats.Duplicates.Add(1)
	d.span.End("")
	if d.requestID == "" {
		return nil
	}
	a := answer{d.requestID, d.envelope.MessageID, d.envelope.Topic}
	if d.track != nil && r.seq != 0 {
		known, err := s.r.polls.join(pollKey{p.id, r.seq}, s, a)
		if err != nil {
			return err
		}
		if known {
			d.track = nil
			return nil
		}
	}
	d.track.giveBack(s)
	d.track = nil
	if r.outcome != 0 {
		s.settle(a, r.outcome, true, false)
		return nil
	}
	if !p.ids.wait(r, s, a) {
		return wireerr.New(wireerr.RateLimited, "too many repeats of one message_id wait for its outcome")
	}
	s.waiting.Add(1)
	return nil
}

// errLost refuses a send of a session whose lease is lost (delivery rule L2).
func errLost() *wireerr.Error {
	return wireerr.New(wireerr.Unavailable, "the session has lost its identity to another or cannot renew it; the message is not stored")
}

func refusal(err error) *wireerr.Error {
	switch {
	case errors.Is(err, streams.ErrFull):
		return wireerr.New(wireerr.Unavailable, "too much waits to be stored; the message is not stored").Because(err)
	case errors.Is(err, streams.ErrTooLarge):
		return wireerr.New(wireerr.PayloadTooLarge, "the message with its envelope is too large to be stored").Because(err)
	default:
		return wireerr.New(wireerr.Unavailable, "the log is away; the message is not stored").Because(err)
	}
}

// newID returns a time-ordered message id.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		id = uuid.New()
	}
	return id.String()
}

// check applies the limits and the payload rules, and completes the envelope.
func (s *Sender) check(msg *aetherv1.SendMessage, to address.Address, e *envelope.Envelope) *wireerr.Error {
	if err := s.checkLimits(msg); err != nil {
		return err
	}
	if err := s.r.checkQuota(e.Workspace); err != nil {
		return err
	}
	if err := s.checkRates(e); err != nil {
		return err
	}
	if e.Type == int32(aetherv1.MessageType_MESSAGE_TYPE_UNSPECIFIED) {
		e.Type = int32(aetherv1.MessageType_MESSAGE_TYPE_OPAQUE)
	}
	if _, known := aetherv1.MessageType_name[e.Type]; !known {
		return wireerr.New(wireerr.InvalidArgument, "message_type %d is unknown", e.Type)
	}
	if ttl := msg.GetTtlMs(); ttl < 0 {
		return wireerr.New(wireerr.InvalidArgument, "ttl_ms is negative")
	} else if ttl > 0 {
		e.ExpiresAtMS = e.TimestampMS + min(ttl, maxTTLMillis)
	}
	return s.checkKind(to, e)
}

// maxTTLMillis keeps times of expiry from overflowing: a hundred years.
const maxTTLMillis = 100 * 365 * 24 * 3600 * 1000

// workspace returns the one that the message is stamped with: the sender's,
// or, for a sender without a single one, the target's.
func (s *Sender) workspace(msg *aetherv1.SendMessage, to address.Address) (string, *wireerr.Error) {
	if s.principal.Workspace != "" {
		if app := msg.GetAppWorkspace(); app != "" && app != s.principal.Workspace {
			return "", wireerr.New(wireerr.PermissionDenied, "app_workspace is not the workspace of the sender")
		}
		return s.principal.Workspace, nil
	}
	if ws := to.Workspace(); ws != "" {
		return ws, nil
	}
	app := msg.GetAppWorkspace()
	if app == "" {
		if to.Prefix() == address.PrefixMetric {
			return "", wireerr.New(wireerr.InvalidArgument, "app_workspace is missing: the sender has no single workspace")
		}
		return "", nil
	}
	if err := address.ValidWorkspace(app); err != nil {
		return "", wireerr.New(wireerr.InvalidArgument, "app_workspace: %v", err)
	}
	if !acl.CoversWorkspace(s.principal, app) {
		return "", wireerr.New(wireerr.PermissionDenied, "app_workspace is not covered by the credential")
	}
	return app, nil
}

const (
	maxMessageID     = 64
	maxRequestID     = 128
	maxMetadataKeys  = 64
	maxMetadataBytes = 16 << 10
	reservedMetadata = "aether-"
)

func (s *Sender) checkLimits(msg *aetherv1.SendMessage) *wireerr.Error {
	if n := len(msg.GetPayload()); n > s.r.maxPayload {
		return wireerr.New(wireerr.PayloadTooLarge, "the payload has %d bytes, %d are allowed", n, s.r.maxPayload).
			With("size", strconv.Itoa(n)).With("limit", strconv.Itoa(s.r.maxPayload))
	}
	if n := len(msg.GetMessageId()); n > maxMessageID {
		return wireerr.New(wireerr.InvalidArgument, "message_id has %d bytes, %d are allowed", n, maxMessageID)
	}
	if n := len(msg.GetRequestId()); n > maxRequestID {
		return wireerr.New(wireerr.InvalidArgument, "request_id has %d bytes, %d are allowed", n, maxRequestID)
	}
	if err := checkSubject(msg.GetSubject()); err != nil {
		return err
	}
	return checkMetadata(msg.GetMetadata())
}

func checkMetadata(m map[string]string) *wireerr.Error {
	if len(m) > maxMetadataKeys {
		return wireerr.New(wireerr.InvalidArgument, "metadata has %d keys, %d are allowed", len(m), maxMetadataKeys)
	}
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if len(k) >= len(reservedMetadata) && k[:len(reservedMetadata)] == reservedMetadata {
			return wireerr.New(wireerr.InvalidArgument, "metadata keys that begin with %q are reserved", reservedMetadata)
		}
	}
	if size > maxMetadataBytes {
		return wireerr.New(wireerr.InvalidArgument, "metadata has %d bytes, %d are allowed", size, maxMetadataBytes)
	}
	return nil
}

const (
	maxSubject         = 256
	maxSubjectSegments = 20
)

// checkSubject checks the dotted subject: 1 to 20 segments, none empty.
func checkSubject(subject string) *wireerr.Error {
	if subject == "" {
		return nil
	}
	if len(subject) > maxSubject {
		return wireerr.New(wireerr.InvalidTopic, "the subject has %d bytes, %d are allowed", len(subject), maxSubject)
	}
	segments, length := 1, 0
	for i := range len(subject) {
		if subject[i] != '.' {
			length++
			continue
		}
		if length == 0 {
			return wireerr.New(wireerr.InvalidTopic, "the subject has an empty segment")
		}
		segments, length = segments+1, 0
	}
	if length == 0 {
		return wireerr.New(wireerr.InvalidTopic, "the subject has an empty segment")
	}
	if segments > maxSubjectSegments {
		return wireerr.New(wireerr.InvalidTopic, "the subject has %d segments, %d are allowed", segments, maxSubjectSegments)
	}
	return nil
}

// onlyType names the prefixes that take messages of one type.
var onlyType = map[address.Prefix]aetherv1.MessageType{
	address.PrefixEvent:  aetherv1.MessageType_MESSAGE_TYPE_EVENT,
	address.PrefixMetric: aetherv1.MessageType_MESSAGE_TYPE_METRIC,
}

// checkKind applies what an address demands of its messages.
func (s *Sender) checkKind(to address.Address, e *envelope.Envelope) *wireerr.Error {
	if want, ok := onlyType[to.Prefix()]; ok && e.Type != int32(want) {
		return wireerr.New(wireerr.InvalidArgument, "an address of kind %s takes messages of type %s only", to.Prefix(), want)
	}
	if to.Prefix() != address.PrefixMetric {
		return nil
	}
	payload, err := stampMetric(e.Payload, e.Workspace)
	if err != nil {
		return err
	}
	if len(payload) > s.r.maxPayload {
		return wireerr.New(wireerr.PayloadTooLarge, "the metric with its workspace has %d bytes, %d are allowed", len(payload), s.r.maxPayload)
	}
	e.Payload, e.Topic = payload, address.MetricReceiver().String()
	return nil
}
