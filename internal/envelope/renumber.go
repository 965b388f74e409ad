package envelope

import "google.golang.org/protobuf/encoding/protowire"

// Renumber appends a frame that [View.AppendFrame] made, with another delivery
// id: one that is given when the frame goes out. Anything else is appended as it
// is.
func Renumber(dst, frame []byte, id uint64) []byte {
	body, ok := message(frame)
	if !ok {
		return append(dst, frame...)
	}
	from, to := len(body), len(body) // where the id stands
	for at := 0; at < len(body); {
		num, typ, n := protowire.ConsumeTag(body[at:])
		if n < 0 {
			return append(dst, frame...)
		}
		m := protowire.ConsumeFieldValue(num, typ, body[at+n:])
		if m < 0 {
			return append(dst, frame...)
		}
		if num == frameDeliveryID {
			from, to = at, at+n+m
			break
		}
		at += n + m
	}
	dst = appendTag(dst, frameMessage, bytesType)
	dst = appendLength(dst, len(body)-(to-from)+sizeVarint(frameDeliveryID, id))
	dst = append(dst, body[:from]...)
	dst = appendVarint(dst, frameDeliveryID, id)
	return append(dst, body[to:]...)
}

// message returns the message in a frame that has nothing else.
func message(frame []byte) ([]byte, bool) {
	num, typ, n := protowire.ConsumeTag(frame)
	if n < 0 || num != frameMessage || typ != protowire.BytesType {
		return nil, false
	}
	body, m := protowire.ConsumeBytes(frame[n:])
	return body, m >= 0 && n+m == len(frame)
}
