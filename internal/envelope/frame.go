package envelope

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of aether.v1.IncomingMessage, and of the frame's oneof.
const (
	frameMessage = 1 // DownstreamMessage.msg

	frameSource      = 1
	framePayload     = 2
	frameType        = 3
	frameWorkspace   = 4
	frameOnBehalf    = 5
	frameMessageID   = 100
	frameTimestamp   = 101
	frameTopic       = 102
	frameDeliveryID  = 103
	frameRedelivered = 104
	frameSubject     = 105
	frameMetadata    = 106
	framePosition    = 107
)

// Delivery is what a frame says beside the message itself.
type Delivery struct {
	// ID is the delivery id, 0 for deliveries that nobody acknowledges.
	ID uint64
	// Position is written only if Known: 0 is a position.
	Position    uint64
	Known       bool
	Redelivered bool // it is written, too, of what was replayed
}

// AppendFrame appends the encoded aether.v1.DownstreamMessage that carries v.
func (v *View) AppendFrame(dst []byte, d Delivery) []byte {
	dst = appendTag(dst, frameMessage, bytesType)
	dst = appendLength(dst, v.messageSize(d))
	dst = appendBytes(dst, frameSource, v.Source)
	dst = appendBytes(dst, framePayload, v.Payload)
	dst = appendVarint(dst, frameType, uint64(int64(v.Type)))
	dst = appendBytes(dst, frameWorkspace, v.Workspace)
	dst = appendBytes(dst, frameOnBehalf, v.OnBehalf)
	dst = appendBytes(dst, frameMessageID, v.MessageID)
	dst = appendVarint(dst, frameTimestamp, uint64(v.TimestampMS))
	dst = appendBytes(dst, frameTopic, v.Topic)
	dst = appendVarint(dst, frameDeliveryID, d.ID)
	if d.Redelivered || v.Replayed {
		dst = appendVarint(dst, frameRedelivered, 1)
	}
	dst = appendBytes(dst, frameSubject, v.Subject)
	if v.hasMetadata {
		dst = v.appendMetadata(dst)
	}
	if d.Known {
		dst = protowire.AppendVarint(appendTag(dst, framePosition, varintType), d.Position)
	}
	return dst
}

// FrameSize returns how many bytes AppendFrame appends.
func (v *View) FrameSize(d Delivery) int {
	return sizeTag(frameMessage) + sizeLength(v.messageSize(d))
}

func (v *View) messageSize(d Delivery) int {
	n := sizeBytes(frameSource, v.Source) +
		sizeBytes(framePayload, v.Payload) +
		sizeVarint(frameType, uint64(int64(v.Type))) +
		sizeBytes(frameWorkspace, v.Workspace) +
		sizeBytes(frameOnBehalf, v.OnBehalf) +
		sizeBytes(frameMessageID, v.MessageID) +
		sizeVarint(frameTimestamp, uint64(v.TimestampMS)) +
		sizeBytes(frameTopic, v.Topic) +
		sizeVarint(frameDeliveryID, d.ID) +
		sizeBytes(frameSubject, v.Subject) +
		v.metadata
	if d.Redelivered || v.Replayed {
		n += sizeVarint(frameRedelivered, 1)
	}
	if d.Known {
		n += sizeTag(framePosition) + protowire.SizeVarint(d.Position)
	}
	return n
}

// appendMetadata copies the map's entries as they are: both messages encode
// them alike, under another field number.
func (v *View) appendMetadata(dst []byte) []byte {
	b := v.raw
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return dst
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return dst
		}
		if num == fieldMetadata && typ == protowire.BytesType {
			entry, _ := protowire.ConsumeBytes(b)
			dst = appendLength(appendTag(dst, frameMetadata, bytesType), len(entry))
			dst = append(dst, entry...)
		}
		b = b[m:]
	}
	return dst
}
