package streams

import "strconv"

// Limits of what a [Writer] puts into one entry. A reader accepts a little
// more: as many envelopes as a [Position] can tell apart.
const (
	// MaxEnvelopes is how many envelopes an entry holds at most.
	MaxEnvelopes = 1000
	// MaxEntryBytes is the size of an encoded entry at most, unless it holds
	// a single envelope.
	MaxEntryBytes = 256 << 10
)

// indexes is how many envelopes of one entry a position tells apart.
const indexes = 1024

// Position names one envelope of a partition: the offset of its entry × 1024
// plus its index in that entry. Positions of one partition rise in the order
// of storing but are not dense: compare them, never subtract them.
type Position uint64

// At returns the position of the envelope with this index in the entry at
// this offset. An index outside 0..1023 is clamped.
func At(offset uint64, index int) Position {
	return Position(offset*indexes + uint64(min(max(index, 0), indexes-1)))
}

// Offset returns the offset of the envelope's entry.
func (p Position) Offset() uint64 { return uint64(p) / indexes }

// Index returns the envelope's place in its entry, from 0.
func (p Position) Index() int { return int(p % indexes) }

// String returns "offset+index", for logs.
func (p Position) String() string {
	return strconv.FormatUint(p.Offset(), 10) + "+" + strconv.Itoa(p.Index())
}
