// Package envelope encodes and reads what the log stores of a message,
// aether.v1.MessageEnvelope, and turns it into the frame that a receiver gets.
//
// It does by hand what the generated code does with more allocations, because
// every message passes here several times: a tail reads each envelope of its
// partition, also those that concern nobody on its gateway. Tests compare it
// with the generated code. It decides nothing.
package envelope

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind says what an envelope is.
type Kind uint8

// The kinds of aether.v1.MessageEnvelope.Kind.
const (
	Message    Kind = 0
	Progress   Kind = 1
	Marker     Kind = 2
	DeadLetter Kind = 3
)

// Field numbers of aether.v1.MessageEnvelope.
const (
	fieldSource    = 1
	fieldPayload   = 2
	fieldType      = 3
	fieldTimestamp = 4
	fieldMetadata  = 5
	fieldWorkspace = 6
	fieldOnBehalf  = 7
	fieldMessageID = 100
	fieldSubject   = 101
	fieldTopic     = 102
	fieldOrigin    = 103
	fieldOriginSeq = 104
	fieldExpiresAt = 105
	fieldKind      = 106
	fieldDrawn     = 107
	fieldEra       = 108
	fieldTracking  = 109
	fieldUntil     = 110
)

// ReplayOf is the key of the metadata by which an operator's replay of a message
// is known: its value is the id of the message. Clients cannot set it.
const ReplayOf = "aether-replay-of"

// replayEntry is how an entry of the metadata with the key ReplayOf begins.
const replayEntry = "\x0a\x10" + ReplayOf

// ErrMalformed says that bytes are no envelope.
var ErrMalformed = errors.New("envelope: malformed")

// Envelope is what a gateway writes. Nothing in it that a client must not
// choose comes from a client.
type Envelope struct {
	Source      string
	Payload     []byte
	Type        int32
	TimestampMS int64
	Metadata    map[string]string
	Workspace   string
	// OnBehalf is for whom the source acts, an encoded PrincipalRef; empty: for
	// itself.
	OnBehalf  []byte
	MessageID string
	Subject   string
	Topic     string
	// Era is that of the workspace whose mail it is.
	Era uint32
	// Origin and Seq recognise a stored copy (delivery rule P3).
	Origin, Seq uint64
	// ExpiresAtMS is 0 for never.
	ExpiresAtMS int64
	Kind        Kind
	// Drawn says that the message id is the gateway's own, which nobody
	// repeats.
	Drawn bool
	// Tracking is whose votes the sender waits for, aether.v1.TrackingMode; 0: for
	// none. UntilMS is for how long.
	Tracking uint8
	UntilMS  int64
}

// Append appends the encoded envelope to dst.
func (e *Envelope) Append(dst []byte) []byte {
	dst = appendBytes(dst, fieldSource, e.Source)
	dst = appendBytes(dst, fieldPayload, e.Payload)
	dst = appendVarint(dst, fieldType, uint64(int64(e.Type)))
	dst = appendVarint(dst, fieldTimestamp, uint64(e.TimestampMS))
	for k, v := range e.Metadata {
		dst = appendTag(dst, fieldMetadata, bytesType)
		dst = appendLength(dst, 2+sizeLength(len(k))+sizeLength(len(v)))
		dst = append(appendLength(appendTag(dst, 1, bytesType), len(k)), k...)
		dst = append(appendLength(appendTag(dst, 2, bytesType), len(v)), v...)
	}
	dst = appendBytes(dst, fieldWorkspace, e.Workspace)
	dst = appendBytes(dst, fieldOnBehalf, e.OnBehalf)
	dst = appendBytes(dst, fieldMessageID, e.MessageID)
	dst = appendBytes(dst, fieldSubject, e.Subject)
	dst = appendBytes(dst, fieldTopic, e.Topic)
	if e.Origin != 0 {
		dst = appendTag(dst, fieldOrigin, fixed64Type)
		dst = binary.LittleEndian.AppendUint64(dst, e.Origin)
	}
	dst = appendVarint(dst, fieldOriginSeq, e.Seq)
	dst = appendVarint(dst, fieldExpiresAt, uint64(e.ExpiresAtMS))
	dst = appendVarint(dst, fieldKind, uint64(e.Kind))
	if e.Drawn {
		dst = appendVarint(dst, fieldDrawn, 1)
	}
	dst = appendVarint(dst, fieldEra, uint64(e.Era))
	dst = appendVarint(dst, fieldTracking, uint64(e.Tracking))
	dst = appendVarint(dst, fieldUntil, uint64(e.UntilMS))
	return dst
}

// View is a decoded envelope. Its slices point into the bytes it was read
// from.
type View struct {
	Source, Payload, Workspace, OnBehalf, MessageID, Subject, Topic []byte

	Type        int32
	TimestampMS int64
	Era         uint32
	Origin, Seq uint64
	ExpiresAtMS int64
	Kind        Kind
	Drawn       bool
	// Replayed says that an operator had it sent again: it was delivered before.
	Replayed bool
	Tracking uint8
	UntilMS  int64

	raw         []byte
	metadata    int // bytes that the metadata takes in a frame
	hasMetadata bool
}

// Raw returns the encoded envelope, which is not to be changed.
func (v *View) Raw() []byte { return v.raw }

// Clone returns a view of a copy of the envelope.
func (v *View) Clone() (c View) {
	_ = c.Parse(bytes.Clone(v.raw)) // it was parsed before
	return c
}

// Parse reads an envelope into v, which it overwrites. It allocates nothing.
func (v *View) Parse(b []byte) error {
	*v = View{raw: b}
	for len(b) > 0 {
		tag, n := uvarint(b)
		if n < 1 || tag < 1<<3 || tag > math.MaxUint32 {
			return ErrMalformed
		}
		b = b[n:]
		field := uint32(tag >> 3)
		switch uint32(tag & 7) {
		case bytesType:
			size, n := uvarint(b)
			if n < 1 || size > uint64(len(b)-n) {
				return ErrMalformed
			}
			end := n + int(size)
			v.setBytes(field, b[n:end])
			b = b[end:]
		case varintType:
			val, n := uvarint(b)
			if n < 1 {
				return ErrMalformed
			}
			v.setVarint(field, val)
			b = b[n:]
		case fixed64Type:
			if len(b) < 8 {
				return ErrMalformed
			}
			if field == fieldOrigin {
				v.Origin = binary.LittleEndian.Uint64(b)
			}
			b = b[8:]
		default:
			n := protowire.ConsumeFieldValue(protowire.Number(field), protowire.Type(tag&7), b)
			if n < 0 {
				return ErrMalformed
			}
			b = b[n:]
		}
	}
	return nil
}

func (v *View) setBytes(field uint32, val []byte) {
	switch field {
	case fieldSource:
		v.Source = val
	case fieldPayload:
		v.Payload = val
	case fieldMetadata:
		v.hasMetadata = true
		v.metadata += sizeTag(frameMetadata) + sizeLength(len(val))
		v.Replayed = v.Replayed || len(val) >= len(replayEntry) && string(val[:len(replayEntry)]) == replayEntry
	case fieldWorkspace:
		v.Workspace = val
	case fieldOnBehalf:
		v.OnBehalf = val
	case fieldMessageID:
		v.MessageID = val
	case fieldSubject:
		v.Subject = val
	case fieldTopic:
		v.Topic = val
	}
}

func (v *View) setVarint(field uint32, val uint64) {
	switch field {
	case fieldType:
		v.Type = int32(val)
	case fieldTimestamp:
		v.TimestampMS = int64(val)
	case fieldOriginSeq:
		v.Seq = val
	case fieldExpiresAt:
		v.ExpiresAtMS = int64(val)
	case fieldKind:
		v.Kind = Kind(val)
	case fieldDrawn:
		v.Drawn = val != 0
	case fieldEra:
		v.Era = uint32(val)
	case fieldTracking:
		v.Tracking = uint8(min(val, math.MaxUint8))
	case fieldUntil:
		v.UntilMS = int64(val)
	}
}

// Expired reports whether the message must not be delivered any more.
func (v *View) Expired(nowMS int64) bool { return v.ExpiresAtMS != 0 && nowMS > v.ExpiresAtMS }
