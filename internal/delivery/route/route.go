package route

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Defaults of [Options].
const (
	DefaultBudget       = 1 << 20
	DefaultQuantum      = 4 << 10
	DefaultPerPrincipal = 16384
	DefaultPrincipals   = 4096

	// Overhead is what a queued message costs beside its bytes.
	Overhead = 128
)

// Cost is what a message counts against the budget of a route.
func Cost(frame, subject int) int { return frame + subject + Overhead }

// Options bounds a route. The zero value has the defaults.
type Options struct {
	// Budget is the cost of all that waits, at most; a message above it is
	// refused. Default 1 MiB.
	Budget int
	// Quantum is what a bucket may spend more each time that it is visited.
	// Default 4 KiB.
	Quantum int
	// PerPrincipal is how many messages of one principal may wait: past it their
	// oldest goes. Default 16,384.
	PerPrincipal int
	// Principals is how many principals have a bucket of their own at a time;
	// others share that of the system. Default 4,096.
	Principals int
	// Scope says whose messages are taken.
	Scope Scope
	// Fattest pushes out the oldest message of the bucket that holds the most
	// bytes, and not that of the route: a flood then costs the one who floods.
	// Finding it takes a walk over the buckets.
	Fattest bool
	// Shut refuses everything until [Route.Open].
	Shut bool
	// Wake is called when there is something for a reader that had read
	// everything, and not again before it has. It may be nil; it is called with
	// the route's lock held and must not call the route.
	Wake func()
	// Counters, if set, are counted in, beside those of other routes.
	Counters *Counters
}

// Counters are what several routes have done together, and hold now. The zero
// value is ready; it must not be copied.
type Counters struct {
	// Evicted and Oversize are by class of the principal.
	Evicted, Oversize [Classes]atomic.Uint64
	// Starved is how many visits did not serve a bucket, because its next message
	// was too large for what it had saved.
	Starved           atomic.Uint64
	Principals, Bytes atomic.Int64
}

func (o Options) withDefaults() Options {
	for option, value := range map[*int]int{
		&o.Budget: DefaultBudget, &o.Quantum: DefaultQuantum, &o.PerPrincipal: DefaultPerPrincipal, &o.Principals: DefaultPrincipals,
	} {
		if *option <= 0 {
			*option = value
		}
	}
	return o
}

// Reject says why a message was not taken.
type Reject uint8

// The reasons.
const (
	Taken    Reject = iota
	Oversize        // it costs more than the whole budget
	Foreign         // it is out of the route's scope
	AtGate          // the route is shut
)

// Result is what became of a message that was pushed.
type Result struct {
	Reject Reject
	// Evicted is how many others went for it.
	Evicted int
	// Woke says that the reader was woken.
	Woke bool
}

// Gap is what the reader has lost and was not told.
type Gap struct {
	// Count and Bytes are messages that were pushed out, or refused because they
	// are above the whole budget, and what they cost.
	Count, Bytes uint64
	// Oversize is how many of them were refused.
	Oversize uint64
}

// Stats is what a route holds and has done.
type Stats struct {
	Messages, Bytes, Principals int
	// Evicted and Oversize are by class of the principal.
	Evicted, Oversize [Classes]uint64
	// Starved is how many visits did not serve a bucket, because its next message
	// was too large for what it had saved.
	Starved uint64
}

// Route is one reader's queue. All methods are safe for concurrent use.
type Route[T any] struct {
	opts    Options
	seed    maphash.Seed
	evicted func(T) // nil: nobody is told

	mu     sync.Mutex
	shut   bool
	asleep bool // the reader has read everything
	nodes  []node[T]
	free   int32 // first unused node
	// The messages of the route by age.
	oldest, newest int32
	messages       int
	bytes          int

	table   []*bucket // by hash, chained; a power of two
	buckets int       // those with messages
	spare   *bucket   // emptied ones, for the next principals; as many as there ever were at a time
	// current is the bucket that is visited; granted says that it had its quantum.
	current *bucket
	granted bool

	gap     Gap
	stats   Stats // what it has done
	counted Stats // what of it and of what is held Counters know
}

const none int32 = -1

// node is a queued message. Nodes are kept in one slice, so that they cost
// nothing to make and little to collect.
type node[T any] struct {
	item         T
	cost         int
	of           *bucket
	behind       int32 // next of its bucket, or of the unused
	older, newer int32
}

// bucket is what waits of one principal. It is in the rotation as long as that
// is anything.
type bucket struct {
	name        []byte
	hash        uint64
	chain       *bucket // of the table, or of the spare
	first, last int32
	messages    int
	bytes       int
	deficit     int
	class       Class
	next, prev  *bucket // the rotation
}

// New returns an empty route. evicted, if set, is told of each message that is
// pushed out or forgotten; it is called with the route's lock held and must not
// call the route.
func New[T any](o Options, evicted func(T)) *Route[T] {
	return &Route[T]{
		opts: o.withDefaults(), seed: maphash.MakeSeed(), evicted: evicted, shut: o.Shut, asleep: true,
		free: none, oldest: none, newest: none,
	}
}

// Open lets messages in. It reports whether it was shut.
func (r *Route[T]) Open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.shut
	r.shut = false
	return was
}

// Shut lets no more messages in; what waits stays.
func (r *Route[T]) Shut() {
	r.mu.Lock()
	r.shut = true
	r.mu.Unlock()
}

// Push queues a message of a principal, none being the system. It never waits.
func (r *Route[T]) Push(principal []byte, cost int, item T) (res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.shut:
		return Result{Reject: AtGate}
	case !r.opts.Scope.takes(principal):
		return Result{Reject: Foreign}
	case cost > r.opts.Budget:
		r.stats.Oversize[ClassOf(principal)]++
		r.gap.Oversize++
		r.gap.Count++
		r.gap.Bytes += uint64(cost)
		r.report()
		return Result{Reject: Oversize, Woke: r.wake()}
	}
	for r.bytes+cost > r.opts.Budget {
		r.evict(r.victim())
		res.Evicted++
	}
	b := r.bucket(principal)
	if b.messages >= r.opts.PerPrincipal {
		r.evict(b)
		res.Evicted++
		b = r.bucket(principal) // it may have been emptied
	}
	r.append(b, cost, item)
	r.report()
	res.Woke = r.wake()
	return res
}

func (r *Route[T]) wake() bool {
	if !r.asleep {
		return false
	}
	r.asleep = false
	if r.opts.Wake != nil {
		r.opts.Wake()
	}
	return true
}

// victim is the bucket whose oldest message goes.
func (r *Route[T]) victim() *bucket {
	if !r.opts.Fattest {
		return r.nodes[r.oldest].of
	}
	fattest := r.current
	for b := r.current.next; b != r.current; b = b.next {
		if b.bytes > fattest.bytes {
			fattest = b
		}
	}
	return fattest
}

func (r *Route[T]) evict(b *bucket) {
	r.stats.Evicted[b.class]++
	r.gap.Count++
	r.gap.Bytes += uint64(r.nodes[b.first].cost)
	if item := r.remove(b); r.evicted != nil {
		r.evicted(item)
	}
}

// report brings the common counters up to date.
func (r *Route[T]) report() {
	c := r.opts.Counters
	if c == nil {
		return
	}
	for class := range Classes {
		add(&c.Evicted[class], r.stats.Evicted[class], &r.counted.Evicted[class])
		add(&c.Oversize[class], r.stats.Oversize[class], &r.counted.Oversize[class])
	}
	add(&c.Starved, r.stats.Starved, &r.counted.Starved)
	if n := r.buckets - r.counted.Principals; n != 0 {
		c.Principals.Add(int64(n))
		r.counted.Principals = r.buckets
	}
	if n := r.bytes - r.counted.Bytes; n != 0 {
		c.Bytes.Add(int64(n))
		r.counted.Bytes = r.bytes
	}
}

func add(to *atomic.Uint64, is uint64, was *uint64) {
	if is != *was {
		to.Add(is - *was)
		*was = is
	}
}

// Pop takes the message whose turn it is. Without one the reader is woken when
// there is.
func (r *Route[T]) Pop() (item T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.turn(r.opts.Budget)
	if b == nil {
		r.asleep = true
		return item, false
	}
	item = r.serve(b)
	r.report()
	return item, true
}

// Take appends to dst the messages whose turn it is: n at most, and no more once
// they cost so many bytes. Without more the reader is woken when there is.
func (r *Route[T]) Take(dst []T, n, bytes int) (_ []T, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; n > 0 && bytes > 0; n-- {
		b := r.turn(r.opts.Budget)
		if b == nil {
			break
		}
		bytes -= r.nodes[b.first].cost
		dst = append(dst, r.serve(b))
	}
	r.report()
	r.asleep = r.messages == 0
	return dst, !r.asleep
}

// Drain appends to dst what is to be read next, as far as it costs no more than
// budget: heads above what is left of it are passed over, and stay. more says
// that something is left; without it the reader is woken when there is.
func (r *Route[T]) Drain(dst []T, n, budget int) (_ []T, bytes int, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; n > 0; n-- {
		b := r.turn(budget - bytes)
		if b == nil {
			break
		}
		bytes += r.nodes[b.first].cost
		dst = append(dst, r.serve(b))
	}
	r.report()
	r.asleep = r.messages == 0
	return dst, bytes, !r.asleep
}

// turn moves on to the bucket whose head is served next: within its deficit, and
// within limit. It is nil if no head is.
func (r *Route[T]) turn(limit int) *bucket {
	if r.current == nil {
		return nil
	}
	began, granted := r.current, r.granted
	// passed counts buckets in a row that limit passes over.
	for passed := 0; passed < r.buckets; {
		b := r.current
		head := r.nodes[b.first].cost
		switch {
		case head > limit:
			passed++
		default:
			passed = 0
			if !r.granted {
				b.deficit += r.opts.Quantum
				r.granted = true
			}
			if head <= b.deficit {
				return b
			}
			r.stats.Starved++
		}
		r.current, r.granted = b.next, false
	}
	r.current, r.granted = began, granted // nobody had a turn
	return nil
}

func (r *Route[T]) serve(b *bucket) T {
	b.deficit -= r.nodes[b.first].cost
	return r.remove(b)
}

// Gap returns what was lost since the last call.
func (r *Route[T]) Gap() Gap {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gap
	r.gap = Gap{}
	return g
}

// Stats returns what the route holds now, and has done.
func (r *Route[T]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Messages, s.Bytes, s.Principals = r.messages, r.bytes, r.buckets
	return s
}

// Clear forgets what waits, and what was lost.
func (r *Route[T]) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.oldest; i != none && r.evicted != nil; i = r.nodes[i].newer {
		r.evicted(r.nodes[i].item)
	}
	r.nodes, r.free, r.oldest, r.newest = nil, none, none, none
	r.messages, r.bytes, r.buckets = 0, 0, 0
	r.table, r.spare, r.current = nil, nil, nil
	r.gap = Gap{}
	r.report()
}

// Each calls f for what waits, the oldest first. f must not call the route.
func (r *Route[T]) Each(f func(item T)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.oldest; i != none; i = r.nodes[i].newer {
		f(r.nodes[i].item)
	}
}
