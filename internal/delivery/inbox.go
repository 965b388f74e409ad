package delivery

import (
	"github.com/aether-gateway/gateway/internal/envelope"
)

// Feeder says who hands an inbox its messages. There is one at a time.
type Feeder uint8

const (
	// FedByNobody means that it waits for room; its pump looks after it.
	FedByNobody Feeder = iota
	// FedByPump means that its session reads recent entries for it.
	FedByPump
	// FedByReader means that a reader of the log serves it.
	FedByReader
	// FedByTail means that it has joined the tail.
	FedByTail
)

// Limits of what waits in an inbox for a fence (delivery rule S2); past them
// the inbox falls back to reading the log.
const (
	maxHeld      = 512
	maxHeldBytes = 256 << 10
)

// Inbox is a session's place in the log of one address that it alone reads
// (delivery rules S1 to S5). Its methods are called by its feeder, or under
// the lock of its partition; they lock the mailbox.
type Inbox struct {
	// Identity and Address are the key of its committed position.
	Identity, Address string
	// Skip reports messages that are done already by another key's position.
	// It may be nil.
	Skip func(topic []byte, position uint64) bool
	// Now returns Unix milliseconds.
	Now func() int64
	// Expired, if set, is called for each message that came too late, with the
	// mailbox's lock held.
	Expired func(v *envelope.View)
	// Void, if set, reports messages that are nothing for the reader any more.
	// They count as done. The mailbox's lock is held.
	Void func(*envelope.View) bool
	// Repeats is the position up to which an earlier session was handed
	// messages and did not finish them all: what comes up to there is flagged
	// as a repeat. [NoPosition] for none.
	Repeats int64
	// RepeatsSeq is the same for what was handed out live and had no position
	// yet: the highest seq of this gateway. 0 for none.
	RepeatsSeq uint64
	// Ballot, if set, returns the receiver's say in a tracked send. The mailbox's
	// lock is held.
	Ballot func(*envelope.View) Ballot
	// Owner is whom [Batch.Feed] means.
	Owner any
	// Done, if set, is told the position of each delivery that is done and was
	// not nacked before. The mailbox's lock is held.
	Done func(position uint64)
	// Worker says that the inbox competes with others for its messages, so
	// that nothing may wait in it beyond the window.
	Worker bool

	box    *Mailbox
	feeder Feeder
	// unwanted, if set, reports messages that the reader has not asked for:
	// nothing of them is delivered, and they count as done.
	unwanted func(*envelope.View) bool
	// at is the position up to which everything was handed on before the
	// inbox joined the tail (S1, S5).
	at       int64
	expected queue[expectation] // by rising seq (S3)
	stopped  bool               // nothing new is taken (S7)
	cut      bool               // something was left because of that, after cutAt
	cutAt    int64
	// announced are seqs of messages that are to come and are repeats.
	announced map[uint64]struct{}
	held      []heldMessage // S2
	heldSize  int
	hungry    bool  // is in the mailbox's list
	need      int   // the size for which there was no room
	moved     bool  // something became done since the last commit
	sent      int64 // the highest position of what was taken to be sent
	commit    int64 // last handed to the store
	saved     int64 // last that the store has taken
}

type expectation struct {
	seq uint64
	id  uint64
}

type heldMessage struct {
	envelope []byte
	seq      uint64
	fence    uint64
}

// NewInbox adds an inbox to a mailbox. It begins behind position; from the
// start of the log if known is false.
func (m *Mailbox) NewInbox(identity, address string, position uint64, known bool) *Inbox {
	in := &Inbox{Identity: identity, Address: address, box: m, at: none, commit: none, saved: none, Repeats: none, sent: none}
	if known {
		in.at, in.commit, in.saved = int64(position), int64(position), int64(position)
	}
	return in
}

// Mailbox returns the mailbox that the inbox belongs to.
func (in *Inbox) Mailbox() *Mailbox { return in.box }

// Narrow says which messages the reader does not want, of those that are handed
// over from now on; nil: it wants all. What was delivered and comes again comes
// whatever is wanted by then. unwanted is called with the mailbox's lock held.
func (in *Inbox) Narrow(unwanted func(*envelope.View) bool) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.unwanted = unwanted
}

// At returns the position up to which everything was handed on, [NoPosition]
// at the start of the log.
func (in *Inbox) At() (position int64) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	return in.at
}

// Advance moves At to a position that the feeder has passed.
func (in *Inbox) Advance(position int64) {
	in.box.mu.Lock()
	in.at = max(in.at, position)
	in.box.mu.Unlock()
}

// Jump sets At, also downwards.
func (in *Inbox) Jump(position int64) {
	in.box.mu.Lock()
	in.at = position
	in.box.mu.Unlock()
}

// Rewind is Jump for an inbox that goes on in another log: what is remembered of
// positions in the old one is void. What of it is out and not done stays so.
func (in *Inbox) Rewind(position int64) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.at = position
	in.sent, in.Repeats, in.RepeatsSeq = min(in.sent, position), none, 0
	in.cut = false
	in.starve()
}

// Fed returns the feeder.
func (in *Inbox) Fed() Feeder {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	return in.feeder
}

// Feed makes who the feeder, and reports false if the mailbox is closed.
func (in *Inbox) Feed(who Feeder) bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	if in.box.closed {
		return false
	}
	in.feeder = who
	return true
}

// StarveFor leaves a worker's inbox without a feeder until it would take a
// message of this size.
func (in *Inbox) StarveFor(size int) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.need = size
	in.starve()
}

// Starve leaves the inbox behind position without a feeder until there is
// room; its pump then finds it in a batch. What waited for a fence is in the
// log.
func (in *Inbox) Starve(position int64) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.at = max(in.at, position)
	in.starve()
}

func (in *Inbox) starve() {
	in.feeder = FedByNobody
	in.held, in.heldSize = nil, 0
	if !in.box.closed && !in.hungry {
		in.hungry = true
		in.box.hungry = append(in.box.hungry, in)
		in.box.signal()
	}
}

// Stored hands over a message that the log showed at position. own says that
// this gateway wrote it. It reports false if there is no room: the message,
// and what comes after it, is to be offered again.
func (in *Inbox) Stored(v *envelope.View, position uint64, own bool) bool {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if own && in.show(v.Seq, int64(position)) {
		return true
	}
	if int64(position) <= in.at {
		return true // a reader that was ahead of the tail has handed it on (S1)
	}
	if in.stopped || m.closed {
		// What is left here must not be passed by the last commit (S5).
		if !in.cut {
			in.cut, in.cutAt = true, int64(position)-1
		}
		return true
	}
	if in.Skip != nil && in.Skip(v.Topic, position) {
		return true
	}
	if in.over(v) {
		return true
	}
	if in.unwanted != nil && in.unwanted(v) {
		in.moved = true // so that a later session does not find it, whatever it asks for
		return true
	}
	attempts := uint8(0)
	if int64(position) <= in.Repeats || own && v.Seq <= in.RepeatsSeq {
		attempts = 1
	}
	if own {
		attempts = max(attempts, in.repeats(v.Seq))
	}
	_, ok := m.offer(in, v, int64(position), attempts)
	if ok && own {
		delete(in.announced, v.Seq)
	}
	return ok
}

// show gives an expected delivery its position. Expected ones with a lower
// seq were never stored and are forgotten (S3).
func (in *Inbox) show(seq uint64, position int64) bool {
	n := 0
	for n < in.expected.len() && in.expected.at(n).seq < seq {
		n++
	}
	shown := n < in.expected.len() && in.expected.at(n).seq == seq
	if shown {
		in.place(in.expected.at(n).id, position)
		n++
	}
	in.expected.drop(n)
	return shown
}

// place gives a live delivery its position.
func (in *Inbox) place(id uint64, position int64) {
	if id >= in.box.ledger.first {
		r := in.box.ledger.at(id)
		if r.position = position; r.flags&recordSent != 0 {
			in.sent = max(in.sent, position)
		}
		return
	}
	in.moved = true // it was done before it had a position
	if id != 0 {
		in.sent = max(in.sent, position)
	}
}

// NeverStored reports whether a live delivery was never stored, if the tail,
// which feeds the inbox, has shown what was numbered up to seen (S3).
func (in *Inbox) NeverStored(id, seen uint64) bool {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if id < m.ledger.first || m.ledger.at(id).position != none {
		return false
	}
	for i := range in.expected.len() {
		if e := in.expected.at(i); e.id == id {
			return e.seq <= seen
		}
	}
	return true
}

// over reports whether a message is not to be delivered any more: it counts as
// done.
func (in *Inbox) over(v *envelope.View) bool {
	return in.expired(v) || in.Void != nil && in.Void(v)
}

func (in *Inbox) expired(v *envelope.View) bool {
	if v.ExpiresAtMS == 0 || in.Now == nil || !v.Expired(in.Now()) {
		return false
	}
	if in.Expired != nil {
		in.Expired(v)
	}
	return true
}

// Live hands over a message before it is stored (S3), or keeps it until the
// tail has shown fence (S2). seen is what the tail has shown. It reports
// false if there is no room; the inbox is then to fall back.
func (in *Inbox) Live(v *envelope.View, raw []byte, fence, seen uint64) bool {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return true
	}
	if in.stopped {
		return true // it is in the log, and the tail will show it
	}
	if fence > seen {
		return in.hold(raw, v.Seq, fence)
	}
	return in.live(v)
}

func (in *Inbox) live(v *envelope.View) bool {
	if in.over(v) || in.unwanted != nil && in.unwanted(v) {
		in.expect(v.Seq, 0)
		return true
	}
	id, ok := in.box.offer(in, v, none, in.repeats(v.Seq))
	if ok {
		delete(in.announced, v.Seq)
		in.expect(v.Seq, id)
	}
	return ok
}

func (in *Inbox) expect(seq, id uint64) {
	in.expected.push(expectation{})
	i := in.expected.len() - 1
	for ; i > 0 && in.expected.at(i-1).seq > seq; i-- {
		*in.expected.at(i) = *in.expected.at(i - 1)
	}
	*in.expected.at(i) = expectation{seq, id}
}

func (in *Inbox) hold(raw []byte, seq, fence uint64) bool {
	if len(in.held) >= maxHeld || in.heldSize+len(raw) > maxHeldBytes {
		return false
	}
	in.held = append(in.held, heldMessage{append([]byte(nil), raw...), seq, fence})
	in.heldSize += len(raw)
	return true
}

// Holding reports whether messages wait for a fence.
func (in *Inbox) Holding() bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	return len(in.held) > 0
}

// Unfence hands over what waited for a fence that seen has reached. It
// reports false if there was no room.
func (in *Inbox) Unfence(seen uint64) bool {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := in.held[:0]
	for _, h := range in.held {
		if h.fence > seen {
			kept = append(kept, h)
			continue
		}
		in.heldSize -= len(h.envelope)
		var v envelope.View
		if v.Parse(h.envelope) != nil {
			continue
		}
		if !in.live(&v) {
			return false
		}
	}
	clear(in.held[len(kept):])
	in.held = kept
	return true
}

// Redeliver makes a nacked delivery again, with a new id.
func (in *Inbox) Redeliver(id uint64, v *envelope.View, position uint64, attempts uint8) bool {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || id < m.ledger.first || m.ledger.at(id).flags&recordDone != 0 {
		return true
	}
	if !in.over(v) {
		if _, ok := m.queue(in, v, int64(position), attempts); !ok {
			return false
		}
	}
	m.done(id)
	m.trim()
	return true
}

// Return hands over a message that another worker did not finish.
func (in *Inbox) Return(v *envelope.View, position uint64, attempts uint8) bool {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if in.over(v) {
		if in.Done != nil {
			in.Done(position)
		}
		return true
	}
	_, ok := m.offer(in, v, int64(position), attempts)
	return ok
}
