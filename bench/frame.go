package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that codec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// frame is an encoded message on its way to the server. It may be reused when
// SendMsg has returned.
type frame struct{ b []byte }

// codec is what keeps the clients from being what is measured: they send bytes
// that are encoded already, and read only what they need. To servers it is
// protobuf.
type codec struct{ small *pool }

var _ encoding.CodecV2 = codec{}

func newCodec() codec { return codec{newPool()} }

func (codec) Name() string { return "proto" }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("bench: cannot send a %T", v)
	}
	var from mem.BufferPool = c.small
	if len(f.b) > poolBuffer {
		from = mem.DefaultBufferPool()
	}
	buf := from.Get(len(f.b))
	copy(*buf, f.b)
	return mem.BufferSlice{mem.NewBuffer(buf, from)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	n, ok := v.(*notice)
	if !ok {
		return fmt.Errorf("bench: cannot receive a %T", v)
	}
	if len(data) == 1 {
		return n.parse(data[0].ReadOnlyData())
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return n.parse(buf.ReadOnlyData())
}

// poolBuffer holds the frames of small messages; the default pool clears 4 KiB
// for each of them.
const poolBuffer = 1280

type pool struct{ p sync.Pool }

func newPool() *pool {
	return &pool{sync.Pool{New: func() any {
		b := make([]byte, poolBuffer)
		return &b
	}}}
}

func (p *pool) Get(length int) *[]byte {
	b := p.p.Get().(*[]byte)
	*b = (*b)[:length]
	return b
}

func (p *pool) Put(b *[]byte) {
	*b = (*b)[:cap(*b)]
	p.p.Put(b)
}

type noticeKind uint8

const (
	noticeOther noticeKind = iota
	noticeMessage
	noticeReceipt
	noticeAck
	noticeError
)

// notice is what a client reads of a frame from the server.
type notice struct {
	kind noticeKind
	// Of a message.
	load       stamp
	deliveryID uint64
	// Of a receipt.
	number uint64
	stored bool
	// Of an error.
	text string
}

// Field numbers of aether.v1.DownstreamMessage and of what is in it.
const (
	downMessage = 1
	downError   = 4
	downAck     = 7
	downReceipt = 100

	messagePayload    = 2
	messageDeliveryID = 103
	receiptRequestID  = 1
	receiptStatus     = 3
)

var errFrame = errors.New("bench: a frame of the server cannot be read")

func (n *notice) parse(b []byte) error {
	*n = notice{}
	num, typ, size := protowire.ConsumeTag(b)
	if size < 0 || typ != protowire.BytesType {
		return errFrame
	}
	body, m := protowire.ConsumeBytes(b[size:])
	if m < 0 {
		return errFrame
	}
	switch num {
	case downMessage:
		n.kind = noticeMessage
		return fields(body, func(num protowire.Number, val []byte, v uint64) error {
			switch num {
			case messagePayload:
				return n.load.read(val)
			case messageDeliveryID:
				n.deliveryID = v
			}
			return nil
		})
	case downReceipt:
		n.kind = noticeReceipt
		return fields(body, func(num protowire.Number, val []byte, v uint64) (err error) {
			switch num {
			case receiptRequestID:
				n.number, err = readID(val)
			case receiptStatus:
				n.stored = v == uint64(aetherv1.SendReceipt_STATUS_STORED)
			}
			return err
		})
	case downAck:
		n.kind = noticeAck
	case downError:
		n.kind = noticeError
		var e aetherv1.ErrorResponse
		if err := proto.Unmarshal(body, &e); err != nil {
			return err
		}
		n.text = e.GetCode() + ": " + e.GetMessage()
	}
	return nil
}

// fields calls f for each field of a message, with its bytes or its number.
func fields(b []byte, f func(num protowire.Number, val []byte, v uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errFrame
		}
		b = b[n:]
		var val []byte
		var v uint64
		switch typ {
		case protowire.BytesType:
			val, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errFrame
		}
		b = b[n:]
		if err := f(num, val, v); err != nil {
			return err
		}
	}
	return nil
}

// stamp is the head of every payload.
type stamp struct {
	run    uint64 // tells the runs of one program apart
	number uint64 // counts the messages of a pair in a run, from 1
	sentAt int64  // monotonic, see now
}

const stampSize = 24

func (s stamp) write(b []byte) {
	binary.BigEndian.PutUint64(b, s.run)
	binary.BigEndian.PutUint64(b[8:], s.number)
	binary.BigEndian.PutUint64(b[16:], uint64(s.sentAt))
}

func (s *stamp) read(b []byte) error {
	if len(b) < stampSize {
		return fmt.Errorf("bench: a payload of %d bytes is none of ours", len(b))
	}
	s.run = binary.BigEndian.Uint64(b)
	s.number = binary.BigEndian.Uint64(b[8:])
	s.sentAt = int64(binary.BigEndian.Uint64(b[16:]))
	return nil
}

// Ids are numbers in fixed width, so that they can be written in place.
const idSize = 16

func writeID(b []byte, n uint64) {
	for i := idSize - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

func readID(b []byte) (n uint64, err error) {
	if len(b) != idSize {
		return 0, fmt.Errorf("bench: id %q is none of ours", b)
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, fmt.Errorf("bench: id %q is none of ours", b)
		}
	}
	return n, nil
}

// template is an encoded send in which the parts that change are written in
// place.
type template struct {
	frame
	payload, request, message int // where they are; message is 0 without ids
	run                       uint64
}

// newTemplate encodes a send of size bytes to an address. With ids, each
// message carries an idempotency key of its own.
func newTemplate(to string, size int, run uint64, ids bool) (*template, error) {
	payload := make([]byte, max(size, stampSize))
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	// Marks that occur once in the encoded form.
	const request, message = "RRRRRRRRRRRRRRRR", "MMMMMMMMMMMMMMMM"
	send := &aetherv1.SendMessage{
		TargetTopic: to, Payload: payload, MessageType: aetherv1.MessageType_MESSAGE_TYPE_CHAT, RequestId: request,
	}
	if ids {
		send.MessageId = message
	}
	b, err := proto.Marshal(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: send}})
	if err != nil {
		return nil, err
	}
	t := &template{frame: frame{b}, run: run, payload: index(b, payload), request: index(b, []byte(request))}
	if ids {
		t.message = index(b, []byte(message))
	}
	return t, nil
}

// fill makes the frame that of message number.
func (t *template) fill(number uint64, at int64) { t.fillAs(number, number, at) }

// fillAs is fill for a sender with several receivers, who count on their own.
func (t *template) fillAs(request, number uint64, at int64) {
	stamp{t.run, number, at}.write(t.b[t.payload:])
	writeID(t.b[t.request:], request)
	if t.message != 0 {
		writeID(t.b[t.message:], t.run<<40|number)
	}
}

// appendAck encodes a cumulative acknowledgement.
func appendAck(dst []byte, upTo uint64) []byte {
	const upAck, ackUpTo = 100, 1
	dst = protowire.AppendTag(dst, upAck, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(1+protowire.SizeVarint(upTo)))
	dst = protowire.AppendTag(dst, ackUpTo, protowire.VarintType)
	return protowire.AppendVarint(dst, upTo)
}
