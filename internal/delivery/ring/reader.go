package ring

import "slices"

// The classes that are no bit of [Message.Classes].
const (
	// Every takes all messages.
	Every = -1
	// Own decides by [Join.Match], for filters beyond the 64 classes.
	Own = -2

	maxClass = 63
)

// Join is how a reader joins.
type Join struct {
	// Class is the filter class: 0 to 63, [Every] or [Own].
	Class int
	// Match decides for the class Own by a message's subject. It must always
	// decide alike, and must not call the ring.
	Match func(subject []byte) bool
	// Disconnect ends the reader when it falls off the tail; otherwise it goes on
	// with the oldest message kept.
	Disconnect bool
	// Wake is called when there is something to read for a reader that had read
	// everything, and not again before it has. Lagged is called when it falls off
	// the tail; it may be nil. Both are called with the ring's lock held, must not
	// wait, and must not call the ring.
	Wake, Lagged func()
}

type state uint8

const (
	parked state = iota
	standing
	lagging
	gone
)

// Reader is one cursor in a ring.
type Reader[T any] struct {
	// Data is for whoever joined the reader; the ring leaves it alone.
	Data any

	ring       *Ring[T]
	join       Join
	next, prev *Reader[T]
	state      state
	since, at  uint64 // the first message after it joined; the next to read, while not parked
	passed     tally  // of its class, before at
	lost       tally  // of those for it alone, not told
	own        counts
}

// Lag is what a reader has missed.
type Lag struct {
	// Missed and Bytes are messages that the reader's own filter takes.
	Missed, Bytes uint64
	// Raw is how many left the ring unread, whatever they were.
	Raw uint64
}

// Join adds a reader, which gets what is published from now on. It is closed at
// once if the ring is.
func (r *Ring[T]) Join(j Join) *Reader[T] {
	if j.Class > maxClass || j.Class < Own || j.Class == Own && j.Match == nil || j.Wake == nil {
		panic("ring: a reader of no class, or without a wake-up")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rd := &Reader[T]{ring: r, join: j, since: r.head, at: r.head}
	for j.Class >= len(r.classes) {
		r.classes = append(r.classes, class[T]{})
	}
	r.readers++
	rd.passed = rd.counts().published
	if j.Class == Own {
		r.loose = append(r.loose, rd)
	}
	rd.park()
	return rd
}

// Read appends to dst what the reader takes next: at most n messages, and no
// more bytes than a first message and those that fit beside it. A lag lies before
// them. With more there may be something left; without it the reader is woken
// when there is. A closed reader gets nothing any more.
func (rd *Reader[T]) Read(dst []T, n, bytes int) (_ []T, lag Lag, more, closed bool) {
	r := rd.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if rd.state == gone {
		return dst, lag, false, true
	}
	lagged := rd.state == lagging
	if lagged {
		lag = rd.catchUp()
	} else if rd.state == standing {
		rd.unlink()
	}
	if lagged && rd.join.Disconnect {
		rd.leave()
		return dst, lag, false, true
	}
	full := false
	first := len(dst)
	for size := 0; rd.state != parked && rd.at < r.head; rd.at++ {
		s := r.at(rd.at)
		if !rd.takes(s) {
			rd.pass(s)
			continue
		}
		if n == 0 || len(dst) > first && size+s.Size > bytes {
			full = true
			break
		}
		rd.pass(s)
		dst = append(dst, s.Item)
		n--
		size += s.Size
	}
	switch {
	case full:
		rd.state = standing
		r.at(rd.at).here.push(rd)
	case rd.state != parked:
		rd.park()
	}
	r.release()
	r.report()
	if !full && r.closed {
		rd.leave()
		return dst, lag, false, true
	}
	return dst, lag, full, false
}

// catchUp puts a reader that fell off to the oldest message.
func (rd *Reader[T]) catchUp() Lag {
	below := rd.counts().below
	missed := below.minus(rd.passed)
	lag := Lag{Missed: missed.n + rd.lost.n, Bytes: missed.bytes + rd.lost.bytes, Raw: rd.ring.tail - rd.at}
	rd.unlink()
	rd.state, rd.at, rd.passed, rd.lost = standing, rd.ring.tail, below, tally{}
	return lag
}

// pass moves the count of a reader past a message.
func (rd *Reader[T]) pass(s *slot[T]) {
	if rd.inClass(&s.Message) {
		rd.passed.add(s.Size)
	}
}

// park lets a reader that has read everything wait. It stands in no list.
func (rd *Reader[T]) park() {
	rd.state = parked
	switch c := rd.join.Class; c {
	case Own:
	case Every:
		rd.ring.every.parked.push(rd)
	default:
		rd.ring.classes[c].parked.push(rd)
	}
}

// takes reports whether a message is for the reader.
func (rd *Reader[T]) takes(s *slot[T]) bool {
	if s.Only != nil {
		return slices.Contains(s.Only, rd)
	}
	return s.Except != rd && rd.inClass(&s.Message)
}

// inClass reports whether the reader's class takes a message.
func (rd *Reader[T]) inClass(m *Message[T]) bool {
	if m.Only != nil {
		return false
	}
	switch c := rd.join.Class; c {
	case Every:
		return true
	case Own:
		return rd.join.Match(m.Subject)
	default:
		return m.Classes&(1<<c) != 0
	}
}

type counts struct{ published, below tally }

func (rd *Reader[T]) counts() counts {
	switch c := rd.join.Class; c {
	case Own:
		return rd.own
	case Every:
		return counts{rd.ring.every.published, rd.ring.every.below}
	default:
		return counts{rd.ring.classes[c].published, rd.ring.classes[c].below}
	}
}

// Leave removes the reader. It may be repeated.
func (rd *Reader[T]) Leave() {
	rd.ring.mu.Lock()
	defer rd.ring.mu.Unlock()
	if rd.state == gone {
		return
	}
	rd.unlink()
	rd.leave()
}

// leave ends a reader that stands in no list, but may be parked.
func (rd *Reader[T]) leave() {
	r := rd.ring
	if rd.state == parked {
		rd.unlink()
	}
	rd.state = gone
	if rd.join.Class == Own {
		i := slices.Index(r.loose, rd)
		r.loose = slices.Delete(r.loose, i, i+1)
	}
	r.readers--
	r.release()
	r.report()
	if r.readers == 0 {
		r.slots = nil
	}
}

// unlink takes the reader out of the list that it stands in.
func (rd *Reader[T]) unlink() {
	var l *list[T]
	switch rd.state {
	case standing:
		l = &rd.ring.at(rd.at).here
	case lagging:
		l = &rd.ring.lagging
	case parked:
		switch c := rd.join.Class; c {
		case Own:
			return
		case Every:
			l = &rd.ring.every.parked
		default:
			l = &rd.ring.classes[c].parked
		}
	default:
		return
	}
	l.remove(rd)
}

// list is readers in any order.
type list[T any] struct{ first *Reader[T] }

func (l *list[T]) push(rd *Reader[T]) {
	rd.next, rd.prev = l.first, nil
	if l.first != nil {
		l.first.prev = rd
	}
	l.first = rd
}

func (l *list[T]) remove(rd *Reader[T]) {
	if rd.prev != nil {
		rd.prev.next = rd.next
	} else if l.first == rd {
		l.first = rd.next
	}
	if rd.next != nil {
		rd.next.prev = rd.prev
	}
	rd.next, rd.prev = nil, nil
}

// all goes through the readers; each may be removed meanwhile.
func (l *list[T]) all(yield func(*Reader[T]) bool) {
	for rd := l.first; rd != nil; {
		next := rd.next
		if !yield(rd) {
			return
		}
		rd = next
	}
}
