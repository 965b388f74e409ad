package client

import (
	"crypto/sha256"
	"encoding/binary"
)

// messageKey names a message by source, address and id: ids are chosen by
// senders, and one sender may use an id once per address (delivery rule P6). It
// is half a SHA-256 of them, so that remembering many costs little and no sender
// can make a message that passes for another's.
type messageKey [16]byte

func newKey(source, topic, id string) messageKey {
	var room [512]byte
	b := room[:0]
	for _, s := range [...]string{source, topic, id} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return messageKey(sum[:16])
}

// window remembers what is being processed and the last so many that are done.
// What failed is forgotten at once, because it is to be processed again. Not
// safe for concurrent use.
//
// Memory: the done ones are bounded by limit, the oldest go first, some 90 bytes
// each; those in progress are bounded by what may be unacknowledged.
type window struct {
	limit   int
	working map[messageKey]*Message
	done    map[messageKey]verdict
	order   []messageKey // of done; a ring once it is full
	oldest  int
}

func newWindow(limit int) window {
	return window{
		limit: max(limit, 0), working: make(map[messageKey]*Message), done: make(map[messageKey]verdict),
	}
}

// find returns the message in progress, or the verdict on a done one, or open.
func (w *window) find(k messageKey) (*Message, verdict) {
	if m := w.working[k]; m != nil {
		return m, open
	}
	return nil, w.done[k]
}

func (w *window) begin(k messageKey, m *Message) { w.working[k] = m }

func (w *window) forget(k messageKey) { delete(w.working, k) }

func (w *window) finish(k messageKey, v verdict) {
	delete(w.working, k)
	if v == requeued || w.limit == 0 {
		return
	}
	w.done[k] = v
	if len(w.order) < w.limit {
		w.order = append(w.order, k)
		return
	}
	delete(w.done, w.order[w.oldest])
	w.order[w.oldest] = k
	w.oldest = (w.oldest + 1) % w.limit
}
