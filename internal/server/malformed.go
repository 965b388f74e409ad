package server

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/session"
)

// inbound receives an upstream frame, also one that protobuf does not take:
// one bad frame must not end a stream on which others are in flight.
type inbound struct {
	frame     *aetherv1.UpstreamMessage
	malformed *session.MalformedError
}

// Field numbers of an upstream frame that carries a SendMessage.
const (
	fieldSend      = 2   // UpstreamMessage.send
	fieldTarget    = 1   // SendMessage.target_topic
	fieldRequestID = 101 // SendMessage.request_id
)

// malformed says what is known of bytes that are no upstream frame. Mostly a
// text in it is no UTF-8, which leaves the rest readable.
func malformed(b []byte) *session.MalformedError {
	e := &session.MalformedError{}
	send, ok := field(b, fieldSend)
	if !ok {
		return e
	}
	if target, ok := field(send, fieldTarget); ok && !utf8.Valid(target) {
		e.Topic = true
	}
	if id, ok := field(send, fieldRequestID); ok && utf8.Valid(id) {
		e.RequestID = string(id)
	}
	return e
}

// field returns the last value of a length-delimited field.
func field(b []byte, want protowire.Number) (value []byte, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return nil, false
		}
		if num == want && typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b)
			ok = true
		}
		b = b[n:]
	}
	return value, ok
}
