package ring

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// DefaultCapacity and DefaultBytes bound what a ring keeps.
	DefaultCapacity = 1024
	DefaultBytes    = 4 << 20

	minSlots = 8
)

// Options bounds a ring. The zero value has the defaults.
type Options[T any] struct {
	// Capacity is how many messages are kept at most, rounded up to a power of
	// two; 0 means [DefaultCapacity], and it is at least 2.
	Capacity int
	// Bytes is how much is kept at most; 0 means [DefaultBytes]. A single larger
	// message passes an empty ring.
	Bytes int
	// Missed, if set, is told of each tracked message that has left the ring
	// before a reader who takes it has read it. It is called with the ring's lock
	// held, and must not call the ring.
	Missed func(rd *Reader[T], item T)
	// Counters, if set, are counted in, beside those of other rings.
	Counters *Counters
}

// Counters are what several rings have done together, and hold now. The zero
// value is ready; it must not be copied.
type Counters struct {
	// Lagged is how often a reader fell off the tail.
	Lagged          atomic.Uint64
	Messages, Bytes atomic.Int64
}

// Message is what is published.
type Message[T any] struct {
	Item T
	Size int // bytes
	// Classes has bit c set if readers of class c take it. Readers of the class
	// [Every] do anyway.
	Classes uint64
	// Subject is for readers of the class [Own]. It is kept as long as the
	// message, and must not be changed.
	Subject []byte
	// Except does not get it: its sender. It may be nil.
	Except *Reader[T]
	// Only, if not nil, are those who get it, whatever their class.
	Only []*Reader[T]
	// Tracked says that [Options.Missed] is to be told of it.
	Tracked bool
}

// tally counts messages, and their bytes.
type tally struct{ n, bytes uint64 }

func (t *tally) add(size int) { t.n++; t.bytes += uint64(size) }

func (t tally) minus(u tally) tally { return tally{t.n - u.n, t.bytes - u.bytes} }

// class is one filter class. How often a bit was set is counted whoever reads:
// a class number may pass from one filter to another.
type class[T any] struct {
	published tally // ever
	below     tally // of those that are no more in the ring
	parked    list[T]
}

type slot[T any] struct {
	Message[T]
	here list[T] // whose next message it is
}

// Ring is the messages of one address that somebody has yet to read. All
// methods, and those of its readers, are safe for concurrent use.
type Ring[T any] struct {
	opts Options[T]

	mu    sync.Mutex
	slots []slot[T] // a power of two, up to the capacity
	// What is kept are the messages tail..head-1, by their number.
	head, tail uint64
	bytes      int
	peak       int // the most messages that were kept since the slots were looked at
	readers    int
	closed     bool

	every   class[T]
	classes []class[T] // up to the highest that was used
	// loose readers have their own match function; each costs a call for each
	// message.
	loose []*Reader[T]
	// lagging readers stand before the tail.
	lagging list[T]
	lagged  uint64
	counted Stats // what Counters know
}

// New returns an empty ring.
func New[T any](o Options[T]) *Ring[T] {
	if o.Capacity <= 0 {
		o.Capacity = DefaultCapacity
	}
	o.Capacity = 1 << bits.Len(uint(max(o.Capacity, 2)-1))
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	return &Ring[T]{opts: o}
}

// Capacity is how many messages are kept at most.
func (r *Ring[T]) Capacity() int { return r.opts.Capacity }

// Stats is what a ring holds, and what it has done.
type Stats struct {
	Messages, Bytes int
	Readers         int
	// Lagged is how often a reader fell off the tail.
	Lagged uint64
}

// Stats returns what the ring holds now.
func (r *Ring[T]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{int(r.head - r.tail), r.bytes, r.readers, r.lagged}
}

// Publish gives a message to all who take it and wakes those of them who are
// parked. It returns the message's number, which rises by one; ok is false if
// the ring is closed. It never waits.
func (r *Ring[T]) Publish(m Message[T]) (number uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, false
	}
	number = r.head
	if r.readers == 0 {
		r.head++
		r.tail = r.head
		return number, true
	}
	for r.tail < r.head && (int(r.head-r.tail) == r.opts.Capacity || r.bytes+m.Size > r.opts.Bytes) {
		r.evict()
	}
	if m.Only == nil {
		m.Classes = r.count(m.Classes, m.Size)
	} else {
		m.Classes = 0
	}
	s := r.write(m)
	r.head++
	r.wake(s, number)
	r.release()
	r.report()
	return number, true
}

// report brings the common counters up to date.
func (r *Ring[T]) report() {
	c := r.opts.Counters
	if c == nil {
		return
	}
	if n := int(r.head-r.tail) - r.counted.Messages; n != 0 {
		c.Messages.Add(int64(n))
		r.counted.Messages += n
	}
	if n := r.bytes - r.counted.Bytes; n != 0 {
		c.Bytes.Add(int64(n))
		r.counted.Bytes += n
	}
	if n := r.lagged - r.counted.Lagged; n != 0 {
		c.Lagged.Add(n)
		r.counted.Lagged += n
	}
}

// count counts a message for its classes. Classes that nobody was ever in need
// no count; it returns the others.
func (r *Ring[T]) count(classes uint64, size int) uint64 {
	if n := len(r.classes); n < 64 {
		classes &= 1<<n - 1
	}
	r.every.published.add(size)
	for rest := classes; rest != 0; rest &= rest - 1 {
		r.classes[bits.TrailingZeros64(rest)].published.add(size)
	}
	return classes
}

// write puts a message into the next slot.
func (r *Ring[T]) write(m Message[T]) *slot[T] {
	kept := int(r.head - r.tail)
	if kept == len(r.slots) {
		r.resize(max(minSlots, 2*kept))
	}
	s := r.at(r.head)
	s.Message = m
	r.bytes += m.Size
	r.peak = max(r.peak, kept+1)
	return s
}

func (r *Ring[T]) at(number uint64) *slot[T] { return &r.slots[number&uint64(len(r.slots)-1)] }

// resize keeps the messages in another number of slots; 0 is none.
func (r *Ring[T]) resize(n int) {
	n = min(n, r.opts.Capacity)
	slots := make([]slot[T], n)
	for i := r.tail; i < r.head; i++ {
		slots[i&uint64(n-1)] = *r.at(i)
	}
	r.slots, r.peak = slots, int(r.head-r.tail)
}

// wake lets those parked readers stand at a message who take it.
func (r *Ring[T]) wake(s *slot[T], number uint64) {
	if s.Only != nil {
		for _, rd := range s.Only {
			if rd.ring == r && rd.state == parked {
				r.unpark(rd, s, number)
			}
		}
		return
	}
	if e := s.Except; e != nil && (e.ring != r || e.state == gone) {
		s.Except = nil
	}
	r.wakeAll(&r.every.parked, s, number)
	for rest := s.Classes; rest != 0; rest &= rest - 1 {
		r.wakeAll(&r.classes[bits.TrailingZeros64(rest)].parked, s, number)
	}
	for _, rd := range r.loose {
		if rd.join.Match(s.Subject) {
			rd.own.published.add(s.Size)
			if rd.state == parked {
				r.wakeOne(rd, s, number)
			}
		}
	}
}

func (r *Ring[T]) wakeAll(l *list[T], s *slot[T], number uint64) {
	if l.first == nil {
		return
	}
	for rd := range l.all {
		r.wakeOne(rd, s, number)
	}
}

// wakeOne lets a parked reader stand at a message, unless it is its own: then
// it has passed it.
func (r *Ring[T]) wakeOne(rd *Reader[T], s *slot[T], number uint64) {
	if rd == s.Except {
		rd.passed.add(s.Size)
		return
	}
	r.unpark(rd, s, number)
}

func (r *Ring[T]) unpark(rd *Reader[T], s *slot[T], number uint64) {
	rd.unlink()
	rd.state, rd.at = standing, number
	s.here.push(rd)
	rd.join.Wake()
}

// evict drops the oldest message, although some have not read it: those who
// stand there fall off.
func (r *Ring[T]) evict() {
	s := r.at(r.tail)
	for rd := range s.here.all {
		rd.unlink()
		rd.state = lagging
		r.lagging.push(rd)
		r.lagged++
		if rd.join.Lagged != nil {
			rd.join.Lagged()
		}
	}
	if s.Tracked && r.opts.Missed != nil {
		for rd := range r.lagging.all {
			if rd.takes(s) {
				r.opts.Missed(rd, s.Item)
			}
		}
	}
	if e := s.Except; e != nil && e.state == lagging && e.inClass(&s.Message) {
		e.passed.add(s.Size)
	}
	for _, rd := range s.Only {
		if rd.ring == r && rd.state == lagging {
			rd.lost.add(s.Size)
		}
	}
	r.drop(s)
}

// drop forgets the oldest message.
func (r *Ring[T]) drop(s *slot[T]) {
	if s.Only == nil {
		r.every.below.add(s.Size)
		for rest := s.Classes; rest != 0; rest &= rest - 1 {
			r.classes[bits.TrailingZeros64(rest)].below.add(s.Size)
		}
		for _, rd := range r.loose {
			if r.tail >= rd.since && rd.join.Match(s.Subject) {
				rd.own.below.add(s.Size)
			}
		}
	}
	r.bytes -= s.Size
	s.Message = Message[T]{}
	r.tail++
}

// release forgets what every reader has passed.
func (r *Ring[T]) release() {
	if r.lagging.first != nil {
		return
	}
	for r.tail < r.head {
		s := r.at(r.tail)
		if s.here.first != nil {
			return
		}
		r.drop(s)
	}
	if n := len(r.slots); n > minSlots && r.peak <= n/4 {
		r.resize(n / 2)
	}
	r.peak = 0
}

// Close ends the ring: nothing more is published, and readers get what is left.
func (r *Ring[T]) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	for l := range r.parkingLots {
		for rd := range l.all {
			rd.join.Wake()
		}
	}
	for _, rd := range r.loose {
		if rd.state == parked {
			rd.join.Wake()
		}
	}
}

// parkingLots goes through the lists of parked readers.
func (r *Ring[T]) parkingLots(yield func(*list[T]) bool) {
	if !yield(&r.every.parked) {
		return
	}
	for i := range r.classes {
		if !yield(&r.classes[i].parked) {
			return
		}
	}
}
