package router

import (
	"encoding/binary"
	"errors"

	"github.com/aether-gateway/gateway/internal/presence"
)

// watermark is what a session was done with, address by address, as one
// gateway leaves it to another in the lease's record (delivery rule L4): by
// the key of its committed position.
//
// Its form is a version, and for each address its length, its bytes, and two
// numbers, each one more than the position that it means, 0 for none.
type watermark map[string]mark

// mark is a session's place in one address.
type mark struct {
	position int64 // everything up to here is done; none: nothing
	handed   int64 // the last that was handed out; none if that was done
}

const watermarkVersion = 1

var errWatermark = errors.New("router: a watermark is malformed")

// encode returns nil if it is larger than a lease may keep: then the store
// alone knows.
func (w watermark) encode() []byte {
	b := []byte{watermarkVersion}
	for key, m := range w {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(m.position+1))
		b = binary.AppendUvarint(b, uint64(m.handed+1))
	}
	if len(b) > presence.MaxWatermark {
		return nil
	}
	return b
}

// parseWatermark reads what encode wrote. Nothing at all is a watermark
// without addresses.
func parseWatermark(b []byte) (watermark, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != watermarkVersion || len(b) > presence.MaxWatermark {
		return nil, errWatermark
	}
	w := watermark{}
	for b = b[1:]; len(b) > 0; {
		size, n := binary.Uvarint(b)
		if n <= 0 || size == 0 || size > uint64(len(b)-n) {
			return nil, errWatermark
		}
		key := string(b[n : n+int(size)])
		b = b[n+int(size):]
		if _, twice := w[key]; twice {
			return nil, errWatermark
		}
		var m mark
		var ok bool
		if m.position, b, ok = cutPosition(b); !ok {
			return nil, errWatermark
		}
		if m.handed, b, ok = cutPosition(b); !ok {
			return nil, errWatermark
		}
		w[key] = m
	}
	return w, nil
}

func cutPosition(b []byte) (position int64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > 1<<63-1 {
		return none, nil, false
	}
	return int64(v) - 1, b[n:], true
}
