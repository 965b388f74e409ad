package streams

import (
	"encoding/binary"
	"hash/crc32"
)

// entryVersion is the first byte of every encoded entry.
const entryVersion = 1

const checksumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BeginEntry appends the head of an entry to dst. Envelopes follow by
// [AppendEnvelope].
//
// An entry is a version byte, then for each envelope its length as a uvarint
// and, if that is not 0, the CRC-32C of its bytes (4 bytes, big endian) and
// the bytes. All drivers store exactly this.
func BeginEntry(dst []byte) []byte { return append(dst, entryVersion) }

// AppendEnvelope appends one envelope to an entry. An envelope of no bytes
// takes up an index and is never read (delivery rule P5).
func AppendEnvelope(dst, envelope []byte) []byte {
	return appendEnvelope(dst, envelope, checksum(envelope))
}

func checksum(envelope []byte) uint32 { return crc32.Checksum(envelope, castagnoli) }

func appendEnvelope(dst, envelope []byte, sum uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(envelope)))
	if len(envelope) == 0 {
		return dst
	}
	dst = binary.BigEndian.AppendUint32(dst, sum)
	return append(dst, envelope...)
}

// encodedSize bounds what an envelope of n bytes takes up in an entry.
func encodedSize(n int) int { return binary.MaxVarintLen32 + checksumBytes + n }

// Envelopes walks through the envelopes of an entry:
//
//	it := streams.Open(entry.Data)
//	for it.Next() {
//		use(it.Index(), it.Bytes())
//	}
//
// It passes over empty envelopes and over those whose checksum is wrong; their
// indexes count on, so that the others keep their positions. It is used by one
// goroutine and allocates nothing.
type Envelopes struct {
	rest    []byte
	current []byte
	next    int
	skipped int
	damaged bool
}

// Open starts a walk through an encoded entry. It never fails: what cannot be
// read shows in [Envelopes.Skipped] and [Envelopes.Damaged].
func Open(data []byte) Envelopes {
	if len(data) == 0 || data[0] != entryVersion {
		return Envelopes{damaged: true}
	}
	return Envelopes{rest: data[1:]}
}

// Next moves on to the next readable envelope and reports whether there is
// one.
func (e *Envelopes) Next() bool {
	for len(e.rest) > 0 {
		length, n := binary.Uvarint(e.rest)
		if n <= 0 || e.next == indexes {
			return e.stop(true)
		}
		rest := e.rest[n:]
		e.next++
		if length == 0 {
			e.rest = rest
			continue
		}
		if len(rest) < checksumBytes || length > uint64(len(rest)-checksumBytes) {
			return e.stop(true)
		}
		sum := binary.BigEndian.Uint32(rest)
		end := checksumBytes + int(length)
		envelope := rest[checksumBytes:end:end]
		e.rest = rest[end:]
		if checksum(envelope) != sum {
			e.skipped++
			continue
		}
		e.current = envelope
		return true
	}
	return e.stop(false)
}

func (e *Envelopes) stop(damaged bool) bool {
	e.rest, e.current = nil, nil
	e.damaged = e.damaged || damaged
	return false
}

// Index returns the current envelope's place in the entry.
func (e *Envelopes) Index() int { return e.next - 1 }

// Bytes returns the current envelope. It is a part of the entry's data: read
// it only.
func (e *Envelopes) Bytes() []byte { return e.current }

// Skipped returns how many envelopes so far were passed over because their
// checksum is wrong.
func (e *Envelopes) Skipped() int { return e.skipped }

// Damaged reports whether the walk ended early because the framing is broken
// or the version unknown: what follows in this entry cannot be read.
func (e *Envelopes) Damaged() bool { return e.damaged }
