package client

import (
	"errors"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Type classifies a payload.
type Type int32

// The types. The gateway takes only Event at `event` addresses and only Metric
// at `metric` addresses.
const (
	Chat     = Type(aetherv1.MessageType_MESSAGE_TYPE_CHAT)
	Control  = Type(aetherv1.MessageType_MESSAGE_TYPE_CONTROL)
	ToolCall = Type(aetherv1.MessageType_MESSAGE_TYPE_TOOL_CALL)
	Event    = Type(aetherv1.MessageType_MESSAGE_TYPE_EVENT)
	Metric   = Type(aetherv1.MessageType_MESSAGE_TYPE_METRIC)
	Opaque   = Type(aetherv1.MessageType_MESSAGE_TYPE_OPAQUE)
)

// String is the type's name in lower case.
func (t Type) String() string {
	switch t {
	case Chat:
		return "chat"
	case Control:
		return "control"
	case ToolCall:
		return "tool_call"
	case Event:
		return "event"
	case Metric:
		return "metric"
	}
	return "opaque"
}

// Message is one delivery. Its fields are set once and may be read by many
// goroutines; the methods may be called from any.
type Message struct {
	Source    string // the sender's address, verified by the gateway
	Topic     string // the address that it was sent to
	ID        string // the sender's message id; "" from gateways without the extension
	Type      Type
	Payload   []byte
	Subject   string
	Metadata  map[string]string // what the sender gave; nothing in it is verified
	Workspace string            // verified by the gateway
	Time      time.Time         // when the gateway accepted it; zero if not told
	// OnBehalfOf is for whom the sender acts by a grant, verified by the gateway;
	// zero if only for itself.
	OnBehalfOf Principal
	// Redelivered: the gateway knows that it was delivered before. False proves
	// nothing: after an unclean end of the gateway or of a connection, what comes
	// again may look new. A program that must not do its work twice remembers ID.
	Redelivered bool

	client   *Client
	key      messageKey // zero without an ID
	position uint64
	placed   bool

	tracked bool // it has a delivery id, and so is acknowledged
	voted   bool // it is shared, and its sender asked for the outcome

	// Guarded by receiver.mu.
	prev, next *Message
	link       *link    // the session that the delivery ids below belong to
	deliveries []uint64 // those of all copies that arrived on link
	verdict    verdict
}

// Principal is a kind, such as "user", and an id.
type Principal struct{ Type, ID string }

// verdict is how a delivery ended.
type verdict uint8

const (
	open verdict = iota
	acked
	requeued
	dropped
)

// Position is the message's place in the gateway's log, if the gateway told it.
// Positions of one address rise; nothing else follows from them.
func (m *Message) Position() (position uint64, known bool) { return m.position, m.placed }

// shared reports whether the message came to many, and does not come again.
func (m *Message) shared() bool { return !m.tracked || m.voted }

// Ack says that the message is processed and must not come again. The first
// call of Ack, Nack or Drop counts, later ones do nothing; on messages that are
// not acknowledged, such as broadcasts whose sender does not ask for the outcome,
// all do nothing. It does not wait: the
// acknowledgement travels within milliseconds, together with others.
func (m *Message) Ack() { m.settle(acked, "") }

// Nack asks for the message again, later: within seconds, since the pauses begin
// at a fraction of one and double. After five deliveries in all, three to tasks
// that share a queue, the gateway counts the message as done, logs that, and it
// does not come again. At most 256 bytes of the reason are sent. To keep a message
// through an outage do not nack it; try again yourself, and Ack when it is done.
// A broadcast does not come again: there Nack is like Drop. A sender that asked for
// the outcome is told the reason.
func (m *Message) Nack(reason string) { m.settle(requeued, reason) }

// Drop says that the message will not be processed and must not come again.
func (m *Message) Drop(reason string) { m.settle(dropped, reason) }

func (m *Message) settle(v verdict, reason string) {
	if m.client != nil { // else it was made by a test
		m.client.recv.settle(m, v, reason)
	}
}

// Drop wraps an error that a handler returns to say that the message must not
// come again. Drop(nil) is nil.
func Drop(err error) error {
	if err == nil {
		return nil
	}
	return &dropError{err}
}

type dropError struct{ error }

func (d *dropError) Unwrap() error { return d.error }

func isDrop(err error) bool {
	_, ok := errors.AsType[*dropError](err)
	return ok
}

const maxReason = 256 // bytes of a nack's reason

func reasonOf(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	return strings.ToValidUTF8(s, "")
}

// newMessage makes a Message of a delivery. It shares the frame's memory, which
// is nobody else's.
func newMessage(c *Client, in *aetherv1.IncomingMessage) *Message {
	m := &Message{
		Source: in.GetSourceTopic(), Topic: in.GetTopic(), ID: in.GetMessageId(),
		Type: Type(in.GetMessageType()), Payload: in.GetPayload(), Subject: in.GetSubject(),
		Metadata: in.GetMetadata(), Workspace: in.GetWorkspace(), Redelivered: in.GetRedelivered(),
		client: c, tracked: in.GetDeliveryId() != 0,
	}
	m.voted = m.tracked && toMany(m.Topic)
	if m.ID != "" {
		m.key = newKey(m.Source, m.Topic, m.ID)
	}
	if m.Type == 0 {
		m.Type = Opaque
	}
	if ms := in.GetTimestampMs(); ms != 0 {
		m.Time = time.UnixMilli(ms)
	}
	if p := in.GetOnBehalfSubject(); p != nil {
		m.OnBehalfOf = Principal{Type: p.GetPrincipalType(), ID: p.GetPrincipalId()}
	}
	if in.Position != nil {
		m.position, m.placed = in.GetPosition(), true
	}
	return m
}

// toMany reports whether whoever listens to an address gets what is sent to it.
func toMany(topic string) bool {
	kind, _, _ := strings.Cut(topic, "::")
	switch kind {
	case "ga", "gu", "uw", "pg", "metric":
		return true
	}
	return false
}
