package rabbitmq

import (
	"encoding/binary"
	"errors"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
)

const (
	frameMax = 1 << 20 // bytes; RabbitMQ's default, and the library's

	frameHeader = 4 + 2 + 2 + 1 + 4 // length, command, version, publisher, count
	entryHeader = 8 + 4             // publishing id, length
	dataHeader  = 3 + 5             // descriptor, code and length of the data section

	// MaxEntry is the size in bytes of the largest entry: one that fits a frame.
	MaxEntry = frameMax - frameHeader - entryHeader - dataHeader
)

// outgoing is an entry on its way to the broker, encoded already: the library's
// own message type allocates some ten times for the same bytes.
type outgoing struct {
	id      int64
	encoded []byte
}

var _ message.StreamMessage = (*outgoing)(nil)

// newOutgoing encodes a copy of data as an AMQP 1.0 message with one data section.
func newOutgoing(id uint64, data []byte) *outgoing {
	b := make([]byte, 0, dataHeader+len(data))
	b = append(b, 0x00, 0x53, 0x75) // described by the small ulong 0x75: data
	if len(data) < 256 {
		b = append(b, 0xa0, byte(len(data))) // vbin8
	} else {
		b = append(b, 0xb0) // vbin32
		b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	}
	return &outgoing{id: int64(id), encoded: append(b, data...)}
}

func (m *outgoing) MarshalBinary() ([]byte, error) { return m.encoded, nil }
func (m *outgoing) UnmarshalBinary([]byte) error {
	return errors.New("rabbitmq: an outgoing message cannot be decoded")
}
func (m *outgoing) SetPublishingId(id int64) { m.id = id }
func (m *outgoing) GetPublishingId() int64   { return m.id }
func (m *outgoing) HasPublishingId() bool    { return true }

// The library asks for none of these.
func (m *outgoing) GetData() [][]byte                             { return nil }
func (m *outgoing) GetMessageProperties() *amqp.MessageProperties { return nil }
func (m *outgoing) GetMessageAnnotations() amqp.Annotations       { return nil }
func (m *outgoing) GetApplicationProperties() map[string]any      { return nil }
func (m *outgoing) GetMessageHeader() *amqp.MessageHeader         { return nil }
func (m *outgoing) GetAMQPValue() any                             { return nil }
