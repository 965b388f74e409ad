package subject

import "math/bits"

// maxClasses is how many distinct patterns of an address have a bit in the mask.
// Those beyond are matched for each reader that has them.
const maxClasses = 64

// Classes are the distinct patterns of the readers of one address, so that each
// is matched once for a message, however many readers have it. The zero value is
// ready. It is not safe for concurrent use: whoever orders the messages of the
// address locks it. What it holds is bounded by the filters of its readers.
type Classes struct {
	used  uint64 // which bits are taken
	slots []class
	bits  map[string]int // by the pattern's text
}

type class struct {
	pattern *Pattern
	readers int
}

// Interest is a reader's filter among the classes of an address. The zero value
// takes nothing.
type Interest struct {
	everything bool
	mask       uint64
	rest       []*Pattern // those without a bit
}

// Matched is what the classes say of one message. It is valid as long as the
// message's subject is, and until the classes change.
type Matched struct {
	mask    uint64
	subject []byte
}

// Mask returns the bits of the reader's patterns, or that it takes everything.
func (i *Interest) Mask() (mask uint64, everything bool) { return i.mask, i.everything }

// Rest returns the reader's patterns that have no bit. The caller must not change
// them.
func (i *Interest) Rest() []*Pattern { return i.rest }

// Mask returns the bits of the patterns that take the message.
func (m Matched) Mask() uint64 { return m.mask }

// Join adds a reader. It is to Leave with the same interest.
func (c *Classes) Join(f *Filter) Interest {
	if f == nil {
		return Interest{everything: true}
	}
	var i Interest
	for _, p := range f.patterns {
		if bit, ok := c.enter(p); ok {
			i.mask |= 1 << bit
		} else {
			i.rest = append(i.rest, p)
		}
	}
	return i
}

// enter counts one more reader of a pattern; false says that no bit is free.
func (c *Classes) enter(p *Pattern) (bit int, ok bool) {
	if bit, ok = c.bits[p.text]; ok {
		c.slots[bit].readers++
		return bit, true
	}
	if bit = bits.TrailingZeros64(^c.used); bit >= maxClasses {
		return 0, false
	}
	if c.bits == nil {
		c.bits = map[string]int{}
	}
	if bit == len(c.slots) {
		c.slots = append(c.slots, class{})
	}
	c.slots[bit] = class{p, 1}
	c.bits[p.text] = bit
	c.used |= 1 << bit
	return bit, true
}

// Leave takes a reader out.
func (c *Classes) Leave(i Interest) {
	for mask := i.mask; mask != 0; mask &= mask - 1 {
		bit := bits.TrailingZeros64(mask)
		s := &c.slots[bit]
		if s.readers--; s.readers == 0 {
			delete(c.bits, s.pattern.text)
			c.used &^= 1 << bit
			s.pattern = nil
		}
	}
}

// Match matches all classes with a message's subject, empty for one without. It
// allocates nothing.
func (c *Classes) Match(s []byte) Matched {
	m := Matched{subject: s}
	for used := c.used; used != 0; used &= used - 1 {
		bit := bits.TrailingZeros64(used)
		if c.slots[bit].pattern.MatchBytes(s) {
			m.mask |= 1 << bit
		}
	}
	return m
}

// Takes reports whether a reader takes the message. It allocates nothing.
func (i *Interest) Takes(m Matched) bool {
	if i.everything || i.mask&m.mask != 0 {
		return true
	}
	for _, p := range i.rest {
		if p.MatchBytes(m.subject) {
			return true
		}
	}
	return false
}
