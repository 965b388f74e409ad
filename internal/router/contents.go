package router

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// contents says of most addresses that an entry has nothing for them, so that of
// many who look for their few messages each need not read those of all others.
// It is a Bloom filter with two bits for an address and one bit for
// contentsShare bytes of the entry.
type contents struct {
	bits []uint64 // a power of two; nil: the entry must be read
}

const contentsShare = 8

func contentsOf(e streams.Entry) *contents {
	words := 1
	for words*64*contentsShare < len(e.Data) {
		words *= 2
	}
	c := &contents{make([]uint64, words)}
	it := streams.Open(e.Data)
	var v envelope.View
	for it.Next() {
		if v.Parse(it.Bytes()) != nil {
			return &contents{} // readers are told
		}
		if v.Kind <= envelope.Progress {
			a, b := c.places(maphash.Bytes(hashSeed, v.Topic))
			c.bits[a/64] |= 1 << (a % 64)
			c.bits[b/64] |= 1 << (b % 64)
		}
	}
	if it.Damaged() || it.Skipped() > 0 {
		return &contents{}
	}
	return c
}

func (c *contents) places(address uint64) (a, b uint64) {
	mask := uint64(len(c.bits)*64 - 1)
	return address & mask, address >> 32 & mask
}

// lack reports whether the entry has nothing for the address with a hash.
func (c *contents) lack(address uint64) bool {
	if c.bits == nil {
		return false
	}
	a, b := c.places(address)
	return c.bits[a/64]&(1<<(a%64)) == 0 || c.bits[b/64]&(1<<(b%64)) == 0
}

// glance is what is known of the contents of an entry of the ring. The first who
// reads it only reads it: most entries have no other reader.
type glance struct {
	reads atomic.Int32
	known atomic.Pointer[contents]
}

// read is told that somebody is about to read the entry.
func (g *glance) read(e streams.Entry) {
	if g.reads.Add(1) == 2 {
		g.known.Store(contentsOf(e))
	}
}

// maxSkipped bounds how many entries are passed over under one lock.
const maxSkipped = 1024

// skip returns up to where the ring is known to have nothing for an address
// after a position; the position itself if that is not known.
func (r *past) skip(at int64, address uint64) (upTo int64) {
	first := r.index(at)
	for i := first; i < len(r.entries) && i < first+maxSkipped; i++ {
		g := r.glances[i]
		if g == nil {
			break
		}
		if c := g.known.Load(); c == nil || !c.lack(address) {
			break
		}
		at = endOf(r.entries[i].Offset)
	}
	return at
}

// skims returns the hash of the one address that a reading is of; ok is false if
// there are several, or if it has to look at every entry.
func (in *inbox) skims() (address uint64, ok bool) {
	return in.hash, in.topic != anyEvent && in.leap.after == 0
}

func (g *group) skims() (address uint64, ok bool) { return maphash.String(hashSeed, g.topic), true }
