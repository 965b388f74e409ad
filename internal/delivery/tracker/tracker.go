package tracker

// Mode says whose votes decide.
type Mode uint8

// The modes.
const (
	// First: the first vote, whosever it is.
	First Mode = iota + 1
	// All: each member must acknowledge.
	All
)

// State is how a send has ended.
type State uint8

// The states.
const (
	Acked State = iota + 1
	Nacked
	TimedOut
)

// NoEligible is the reason of a send that had nobody who could vote.
const NoEligible = "no_eligible_subscribers"

// Outcome is what became of a send.
type Outcome struct {
	State State
	// Reason is why it was refused. Gone says that nobody has: those who could
	// still vote, or had to, are gone.
	Reason string
	Gone   bool
	// Acked of Eligible members have acknowledged. Both are 0 if no set was
	// elected.
	Acked, Eligible uint32
}

// Result says whether a vote counted.
type Result uint8

// The results.
const (
	// OK: it counted, or the member has voted before and the send is open.
	OK Result = iota
	// NotTracked: the send has its outcome, or there was none.
	NotTracked
)

// Ref names a send that is open. The zero value names none; one of a send that
// has ended names none either, for ever.
type Ref uint64

// Vote is one member's say in one send. It is good until the send has ended,
// like a [Ref].
type Vote uint64

// Member is somebody who may be elected. The zero value is nobody.
type Member uint32

// Tracker holds the open sends. It is not safe for concurrent use: whoever owns
// it locks. Memory is reused and never given back; what is open is bounded by
// its limit, more is refused.
type Tracker[T any] struct {
	limit   int
	decided func(tag T, o Outcome)
	open    int
	sends   []send[T]
	freed   []int32 // of sends
	edges   []edge
	spare   int32 // the first free edge, linked by ofSend; none
	members []member
	left    []Member // free members
	wheel   wheel
}

type send[T any] struct {
	tag      T
	gen      uint32
	mode     Mode
	open     bool
	elected  bool
	first    int32 // of its edges
	owed     uint32
	acked    uint32
	eligible uint32
}

// edge joins a send and a member of its set. As long as the member owes its
// vote, it is in the member's list.
type edge struct {
	gen        uint32
	send       int32
	ofSend     int32 // the next of the same send
	member     Member
	next, prev int32 // of the same member
	owed       bool
}

type member struct {
	head int32
	owes int
}

const none = int32(-1)

// New returns a tracker of at most limit open sends. decided is called once for
// each that ends, but not for those that are cancelled; it must not call back.
func New[T any](limit int, decided func(tag T, o Outcome)) *Tracker[T] {
	return &Tracker[T]{limit: limit, decided: decided, spare: none, members: make([]member, 1)}
}

// Len returns how many sends are open.
func (t *Tracker[T]) Len() int { return t.open }

// Owes returns how many votes a member owes.
func (t *Tracker[T]) Owes(m Member) int { return t.members[m].owes }

// Join returns a new member. It is to leave.
func (t *Tracker[T]) Join() Member {
	if n := len(t.left); n > 0 {
		m := t.left[n-1]
		t.left = t.left[:n-1]
		return m
	}
	t.members = append(t.members, member{head: none})
	return Member(len(t.members) - 1)
}

// Leave ends a membership: what the member owes is refused by it (mode All), or
// is left to the others (First). The member must not be used any more.
func (t *Tracker[T]) Leave(m Member, reason string) {
	for t.members[m].head != none {
		t.gone(t.members[m].head, reason)
	}
	t.left = append(t.left, m)
}

// Register opens a send that ends at deadline, in milliseconds of the clock that
// Advance is told. It reports false if too many are open.
func (t *Tracker[T]) Register(tag T, mode Mode, deadline int64) (Ref, bool) {
	if t.open >= t.limit {
		return 0, false
	}
	var i int32
	if n := len(t.freed); n > 0 {
		i, t.freed = t.freed[n-1], t.freed[:n-1]
	} else {
		t.sends = append(t.sends, send[T]{})
		i = int32(len(t.sends) - 1)
	}
	s := &t.sends[i]
	*s = send[T]{tag: tag, gen: s.gen + 1, mode: mode, open: true, first: none}
	t.wheel.add(i, deadline)
	t.open++
	return Ref(name(i, s.gen)), true
}

// Elect gives a send its set, once: its members at this moment, each at most
// once. Their votes are appended to votes, in the same order. A send without
// members is refused at once, in both modes, with [NoEligible].
func (t *Tracker[T]) Elect(r Ref, members []Member, votes []Vote) []Vote {
	i, ok := t.find(r)
	if !ok || t.sends[i].elected {
		return votes
	}
	s := &t.sends[i]
	s.elected = true
	if len(members) == 0 {
		t.end(i, Outcome{State: Nacked, Reason: NoEligible})
		return votes
	}
	for _, m := range members {
		e := t.newEdge()
		at := &t.edges[e]
		at.send, at.ofSend, at.member, at.owed = i, s.first, m, true
		s.first = e
		t.link(e)
		votes = append(votes, Vote(name(e, at.gen)))
	}
	s.owed, s.eligible = uint32(len(members)), uint32(len(members))
	return votes
}

// Ack acknowledges.
func (t *Tracker[T]) Ack(v Vote) Result {
	e, ok := t.edge(v)
	if !ok {
		return NotTracked
	}
	at := &t.edges[e]
	if !at.owed {
		return OK
	}
	s := &t.sends[at.send]
	t.unlink(e)
	s.acked++
	s.owed--
	if s.mode == First || s.owed == 0 {
		t.end(at.send, Outcome{State: Acked})
	}
	return OK
}

// Nack refuses, unless the member has voted.
func (t *Tracker[T]) Nack(v Vote, reason string) Result {
	e, ok := t.edge(v)
	if !ok {
		return NotTracked
	}
	if t.edges[e].owed {
		t.end(t.edges[e].send, Outcome{State: Nacked, Reason: reason})
	}
	return OK
}

// Gone says that a member will not vote on one send: it has fallen behind, say.
func (t *Tracker[T]) Gone(v Vote, reason string) Result {
	e, ok := t.edge(v)
	if !ok {
		return NotTracked
	}
	if t.edges[e].owed {
		t.gone(e, reason)
	}
	return OK
}

// gone is for a vote that is owed.
func (t *Tracker[T]) gone(e int32, reason string) {
	i := t.edges[e].send
	t.unlink(e)
	s := &t.sends[i]
	s.owed--
	if s.mode == All || s.owed == 0 {
		t.end(i, Outcome{State: Nacked, Reason: reason, Gone: true})
	}
}

// Count returns how far the send is in which a vote is, while it is open.
func (t *Tracker[T]) Count(v Vote) (tag T, acked, eligible uint32, ok bool) {
	e, ok := t.edge(v)
	if !ok {
		return tag, 0, 0, false
	}
	s := &t.sends[t.edges[e].send]
	return s.tag, s.acked, s.eligible, true
}

// Decide ends a send by whoever has the right to.
func (t *Tracker[T]) Decide(r Ref, o Outcome) Result {
	i, ok := t.find(r)
	if !ok {
		return NotTracked
	}
	t.sends[i].acked += o.Acked
	t.sends[i].eligible = max(t.sends[i].eligible, o.Eligible)
	t.end(i, o)
	return OK
}

// Cancel forgets a send: it has no outcome.
func (t *Tracker[T]) Cancel(r Ref) {
	if i, ok := t.find(r); ok {
		t.release(i)
	}
}

// Advance tells the time: what has passed its deadline ends.
func (t *Tracker[T]) Advance(now int64) {
	t.wheel.advance(now, func(i int32) { t.end(i, Outcome{State: TimedOut}) })
}

// Next returns when to call Advance at the latest; ok is false if nothing is
// open. It may be earlier than the first deadline.
func (t *Tracker[T]) Next() (at int64, ok bool) {
	_, _, at, ok = t.wheel.next()
	return at, ok
}

func (t *Tracker[T]) end(i int32, o Outcome) {
	s := &t.sends[i]
	tag := s.tag
	o.Acked, o.Eligible = s.acked, s.eligible
	t.release(i)
	t.decided(tag, o)
}

func (t *Tracker[T]) release(i int32) {
	s := &t.sends[i]
	for e := s.first; e != none; {
		next := t.edges[e].ofSend
		if t.edges[e].owed {
			t.unlink(e)
		}
		t.edges[e] = edge{gen: t.edges[e].gen, send: none, ofSend: t.spare}
		t.spare = e
		e = next
	}
	t.wheel.remove(i)
	*s = send[T]{gen: s.gen}
	t.freed = append(t.freed, i)
	t.open--
}

func (t *Tracker[T]) newEdge() int32 {
	e := t.spare
	if e == none {
		t.edges = append(t.edges, edge{})
		e = int32(len(t.edges) - 1)
	} else {
		t.spare = t.edges[e].ofSend
	}
	t.edges[e].gen++
	return e
}

func (t *Tracker[T]) link(e int32) {
	m := &t.members[t.edges[e].member]
	t.edges[e].next, t.edges[e].prev = m.head, none
	if m.head != none {
		t.edges[m.head].prev = e
	}
	m.head = e
	m.owes++
}

func (t *Tracker[T]) unlink(e int32) {
	at := &t.edges[e]
	m := &t.members[at.member]
	if at.next != none {
		t.edges[at.next].prev = at.prev
	}
	if at.prev != none {
		t.edges[at.prev].next = at.next
	} else {
		m.head = at.next
	}
	at.owed = false
	m.owes--
}

// name makes a name that is not zero of an index and its generation.
func name(i int32, gen uint32) uint64 { return uint64(i+1)<<32 | uint64(gen) }

func (t *Tracker[T]) find(r Ref) (int32, bool) {
	i := int(r>>32) - 1
	if i < 0 || i >= len(t.sends) || !t.sends[i].open || t.sends[i].gen != uint32(r) {
		return 0, false
	}
	return int32(i), true
}

func (t *Tracker[T]) edge(v Vote) (int32, bool) {
	e := int(v>>32) - 1
	if e < 0 || e >= len(t.edges) || t.edges[e].send == none || t.edges[e].gen != uint32(v) {
		return 0, false
	}
	return int32(e), true
}
