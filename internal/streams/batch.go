package streams

import (
	"encoding/binary"
	"time"
)

// itemOverhead is what an item counts towards MaxPendingBytes besides its
// envelope.
const itemOverhead = 64

// mark is what happened to one item of a formed entry.
type mark uint8

const (
	told    mark = 1 << iota // its outcome was told before the entry's
	removed                  // its envelope is to be emptied before a resend
	emptied                  // its envelope has been emptied
)

// batch is an entry with the items that belong to its envelopes: growing while
// it is pending, fixed once it has an id.
type batch[T any] struct {
	id     uint64 // publishing id; 0 while pending
	data   []byte // the encoded entry
	items  []T    // one for each envelope
	marks  []mark // one for each item, nil for none
	first  uint64 // number of the first item, counted over the writer's life
	untold int    // items that have no outcome yet

	since  time.Time // when the first item was appended
	sentAt time.Time // when it was handed to the present producer

	sealed    bool // takes no more, because its first item has waited for a while
	timedOut  bool // its items have been told
	confirmed bool
	// shared: a producer that was left behind may still read data.
	shared bool
}

// size is what the batch counts towards MaxPendingBytes.
func (b *batch[T]) size() int { return len(b.data) + itemOverhead*len(b.items) }

func (b *batch[T]) takes(envelope int) bool {
	return !b.sealed && len(b.items) < MaxEnvelopes && len(b.data)+encodedSize(envelope) <= MaxEntryBytes
}

func (b *batch[T]) add(envelope []byte, sum uint32, item T) {
	b.data = appendEnvelope(b.data, envelope, sum)
	b.items = append(b.items, item)
	b.untold++
}

func (b *batch[T]) is(i int, m mark) bool { return b.marks != nil && b.marks[i]&m != 0 }

func (b *batch[T]) set(i int, m mark) {
	if b.marks == nil {
		b.marks = make([]mark, len(b.items))
	}
	b.marks[i] |= m
}

// tell marks the items that choose selects, and that have no outcome yet, as
// told, and appends them to list.
func (b *batch[T]) tell(list []T, choose func(*T) bool) []T {
	for i := range b.items {
		if !b.is(i, told) && choose(&b.items[i]) {
			b.set(i, told)
			b.untold--
			list = append(list, b.items[i])
		}
	}
	return list
}

// envelopeEnd returns where the envelope that begins at data[at] ends.
func envelopeEnd(data []byte, at int) int {
	length, n := binary.Uvarint(data[at:])
	at += n
	if length > 0 {
		at += checksumBytes + int(length)
	}
	return at
}

// drop takes items that choose selects, with their envelopes, out of a pending
// batch.
func (b *batch[T]) drop(choose func(*T) bool) {
	kept, to := 0, 1
	for i, at := 0, 1; i < len(b.items); i++ {
		end := envelopeEnd(b.data, at)
		if !choose(&b.items[i]) {
			b.items[kept] = b.items[i]
			kept++
			to += copy(b.data[to:], b.data[at:end])
		}
		at = end
	}
	clear(b.items[kept:])
	b.items, b.data, b.untold = b.items[:kept], b.data[:to], kept
}

// empty replaces the envelopes of removed items by empty ones, for a resend
// (delivery rule P5). It writes into new memory: a producer that was left
// behind may still read the old one.
func (b *batch[T]) empty() {
	pending := false
	for i := range b.marks {
		pending = pending || b.marks[i]&(removed|emptied) == removed
	}
	if !pending {
		return
	}
	data := BeginEntry(make([]byte, 0, len(b.data)))
	for i, at := 0, 1; i < len(b.items); i++ {
		end := envelopeEnd(b.data, at)
		if b.is(i, removed) {
			b.set(i, emptied)
			data = AppendEnvelope(data, nil)
		} else {
			data = append(data, b.data[at:end]...)
		}
		at = end
	}
	b.data, b.shared = data, false
}
