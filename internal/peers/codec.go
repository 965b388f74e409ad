package peers

import "encoding/binary"

// A question is its number, the length of its kind in one byte, the kind and
// the payload; an answer is the number, a state and the payload.

const idBytes = 8

func encodeAsk(id uint64, kind string, question []byte) []byte {
	b := make([]byte, 0, idBytes+1+len(kind)+len(question))
	b = binary.BigEndian.AppendUint64(b, id)
	b = append(b, byte(len(kind)))
	return append(append(b, kind...), question...)
}

func decodeAsk(b []byte) (id uint64, kind string, question []byte, ok bool) {
	if len(b) < idBytes+1 {
		return 0, "", nil, false
	}
	id = binary.BigEndian.Uint64(b)
	n, rest := int(b[idBytes]), b[idBytes+1:]
	if len(rest) < n {
		return 0, "", nil, false
	}
	return id, string(rest[:n]), rest[n:], true
}

// state is how an answer came about.
type state byte

const (
	stateAnswered state = iota
	stateUnknown
	stateTooLarge
	stateEnd
)

func (s state) err() error {
	switch s {
	case stateAnswered:
		return nil
	case stateTooLarge:
		return ErrTooLarge
	}
	return ErrUnknown
}

func encodeAnswer(id uint64, s state, payload []byte) []byte {
	b := make([]byte, 0, idBytes+1+len(payload))
	b = binary.BigEndian.AppendUint64(b, id)
	return append(append(b, byte(s)), payload...)
}

func decodeAnswer(b []byte) (id uint64, s state, payload []byte, ok bool) {
	if len(b) < idBytes+1 || b[idBytes] >= byte(stateEnd) {
		return 0, 0, nil, false
	}
	return binary.BigEndian.Uint64(b), state(b[idBytes]), b[idBytes+1:], true
}
