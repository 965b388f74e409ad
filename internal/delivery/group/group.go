package group

import "slices"

// Group is the workers who compete for messages, and what waits for them.
type Group[T any] struct {
	set     *Set[T]
	name    string
	waiting deque[work[T]]
	bytes   int // of waiting
	workers []*Worker[T]
	next    uint64 // the last id that was given
}

type work[T any] struct {
	item     T
	size     int
	attempts int // how often it was handed out
}

// Worker is one of a group.
type Worker[T any] struct {
	// Data is for whoever joined the worker; the group leaves it alone.
	Data any

	group  *Group[T]
	credit int
	held   []held[T] // by id
	left   bool
}

type held[T any] struct {
	id uint64
	work[T]
}

// Handed is a message in the hands of a worker.
type Handed[T any] struct {
	// ID is the worker's own for it, rising in each group.
	ID   uint64
	Item T
	// Attempts is how often it was handed out before: above 0 it is a repeat.
	Attempts int
}

// Name is what the group is called.
func (g *Group[T]) Name() string { return g.name }

// Stats is what a group holds.
type Stats struct{ Waiting, Bytes, Held, Workers int }

// Stats returns what the group holds now.
func (g *Group[T]) Stats() Stats {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	s := Stats{Waiting: g.waiting.len(), Bytes: g.bytes, Workers: len(g.workers)}
	for _, w := range g.workers {
		s.Held += len(w.held)
	}
	return s
}

func (g *Group[T]) room(size int) bool {
	return g.waiting.len() == 0 || g.waiting.len() < g.set.opts.Capacity && g.bytes+size <= g.set.opts.Bytes
}

// Join adds a worker that takes so many messages at a time.
func (g *Group[T]) Join(credit int) *Worker[T] {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	w := &Worker[T]{group: g, credit: credit}
	g.workers = append(g.workers, w)
	return w
}

// Next hands the oldest message to the worker who holds least of those that have
// credit, to each of equals in turn. ok is false if nothing waits, or nobody has
// credit.
func (g *Group[T]) Next() (w *Worker[T], h Handed[T], ok bool) {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	if g.waiting.len() == 0 {
		return nil, h, false
	}
	for _, other := range g.workers {
		if len(other.held) < other.credit && (w == nil || len(other.held) < len(w.held)) {
			w = other
		}
	}
	if w == nil {
		return nil, h, false
	}
	i := slices.Index(g.workers, w)
	copy(g.workers[i:], g.workers[i+1:])
	g.workers[len(g.workers)-1] = w
	return w, w.take(), true
}

// Take hands the oldest message to this worker, if it has credit.
func (w *Worker[T]) Take() (h Handed[T], ok bool) {
	w.group.set.mu.Lock()
	defer w.group.set.mu.Unlock()
	if w.left || w.group.waiting.len() == 0 || len(w.held) >= w.credit {
		return h, false
	}
	return w.take(), true
}

func (w *Worker[T]) take() Handed[T] {
	g := w.group
	m := g.waiting.popFront()
	g.bytes -= m.size
	g.next++
	h := Handed[T]{ID: g.next, Item: m.item, Attempts: m.attempts}
	m.attempts++
	w.held = append(w.held, held[T]{g.next, m})
	return h
}

// Credit sets how many messages the worker takes at a time.
func (w *Worker[T]) Credit(n int) {
	w.group.set.mu.Lock()
	w.credit = n
	w.group.set.mu.Unlock()
}

// Done ends a message. It reports false if the worker does not hold it (any
// more).
func (w *Worker[T]) Done(id uint64) bool {
	w.group.set.mu.Lock()
	defer w.group.set.mu.Unlock()
	_, ok := w.release(id)
	return ok
}

// Return gives a message back, which then is the first that is handed out. It
// reports false if the worker does not hold it (any more).
func (w *Worker[T]) Return(id uint64) bool {
	w.group.set.mu.Lock()
	defer w.group.set.mu.Unlock()
	m, ok := w.release(id)
	if ok {
		w.group.again(m)
	}
	return ok
}

func (w *Worker[T]) release(id uint64) (m work[T], ok bool) {
	i, ok := slices.BinarySearchFunc(w.held, id, func(h held[T], id uint64) int {
		switch {
		case h.id < id:
			return -1
		case h.id > id:
			return 1
		}
		return 0
	})
	if ok {
		m = w.held[i].work
		w.held = slices.Delete(w.held, i, i+1)
	}
	return m, ok
}

// again puts a message back to the front, or gives it up.
func (g *Group[T]) again(m work[T]) {
	if m.attempts >= g.set.opts.MaxAttempts {
		if g.set.opts.Dead != nil {
			g.set.opts.Dead(g, m.item, m.attempts)
		}
		return
	}
	g.waiting.pushFront(m)
	g.bytes += m.size
}

// Leave removes the worker. What it holds is the first that is handed out, in
// the order in which it was. It may be repeated.
func (w *Worker[T]) Leave() {
	g := w.group
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	if w.left {
		return
	}
	w.left = true
	g.workers = slices.DeleteFunc(g.workers, func(other *Worker[T]) bool { return other == w })
	for _, h := range slices.Backward(w.held) {
		g.again(h.work)
	}
	w.held = nil
}

// deque is a queue with two ends that keeps its memory.
type deque[T any] struct {
	ring  []T // a power of two
	front int
	n     int
}

func (d *deque[T]) len() int { return d.n }

func (d *deque[T]) at(i int) *T { return &d.ring[(d.front+i)&(len(d.ring)-1)] }

func (d *deque[T]) grow() {
	if d.n < len(d.ring) {
		return
	}
	ring := make([]T, max(8, 2*d.n))
	for i := range d.n {
		ring[i] = *d.at(i)
	}
	d.ring, d.front = ring, 0
}

func (d *deque[T]) pushBack(item T) {
	d.grow()
	d.n++
	*d.at(d.n - 1) = item
}

func (d *deque[T]) pushFront(item T) {
	d.grow()
	d.front = (d.front - 1) & (len(d.ring) - 1)
	d.n++
	*d.at(0) = item
}

func (d *deque[T]) popFront() (item T) {
	var zero T
	item, *d.at(0) = *d.at(0), zero
	d.front = (d.front + 1) & (len(d.ring) - 1)
	d.n--
	return item
}
