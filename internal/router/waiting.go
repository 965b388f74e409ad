package router

import (
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// A send may have to wait before it is numbered and joins an entry: for the
// partition to come back to this gateway (delivery rule M2), say. It waits in
// the line of its sender and address, and what that sender sends to that
// address meanwhile stands behind it, whether it has to wait for something
// itself or not: so order holds (gateway.md 5.2). Nobody else waits, neither
// the sender's receive loop nor its sends to other addresses.
//
// [partition.gate] says what a send waits for, when it comes and each time it
// comes to the head of its line. To add a reason, add it there; call
// [partition.open] with the gate when it may be fulfilled, or
// [partition.refuse] when it will not be. After the publish time-out a line is
// refused as a whole. What is refused here was never numbered: it is surely
// not stored.

// Bounds of what waits in lines; a send past them is refused, retryable. A
// single larger one passes if its sender has nothing in line.
const (
	maxHeldSends      = 8192     // of a sender
	maxHeldSendBytes  = 8 << 20  // of a sender
	maxHeldPartBytes  = 32 << 20 // of a partition
	heldSendOverhead  = 512      // with its names
	heldPairOverhead  = 64       // of metadata
	heldActing        = 4096     // of what is not known yet of whom it is sent for
	lineCheckInterval = 250 * time.Millisecond
)

// gate is something that sends wait for. It belongs to a partition and is
// guarded by its lock; the zero value is ready. Gates may be kept or made anew
// each time; one without lines holds nothing.
type gate struct {
	lines map[*line]struct{} // whose heads wait for it
}

// draft is a send that is checked and stamped, and not numbered.
type draft struct {
	envelope  envelope.Envelope
	requestID string
	byClient  bool          // the message id is the client's
	silent    bool          // nothing is answered unless it fails
	id        idKey         // if byClient
	digest    uint64        // if byClient
	span      *tracing.Span // nil: it is not traced
	track     *tracking     // nil: its outcome is not decided by votes, or it has been taken over
	// acting is not nil as long as it is to be decided for whom it is sent.
	acting *acting
}

// size is what a send takes while it waits, roughly.
func (d *draft) size() int {
	n := heldSendOverhead + len(d.envelope.Payload)
	if d.acting != nil {
		n += heldActing
	}
	for k, v := range d.envelope.Metadata {
		n += heldPairOverhead + len(k) + len(v)
	}
	return n
}

type lineKey struct {
	sender  *Sender
	address string
}

// line is what waits of one sender to one address, oldest first; never empty
// while it is in its partition's list.
type line struct {
	key   lineKey
	sends []heldSend
	at    *gate // that the first waits for
}

type heldSend struct {
	draft
	since time.Time
}

// lines is all that waits in a partition. Guarded by its lock.
type lines struct {
	byKey map[lineKey]*line
	bytes int
}

// submit numbers a send and appends it, or has it wait. The lock is held.
func (p *partition) submit(s *Sender, d *draft) *wireerr.Error {
	if s.dropped.Load() {
		return errDropped()
	}
	if len(p.lines.byKey) > 0 {
		if l := p.lines.byKey[lineKey{s, d.envelope.Topic}]; l != nil {
			return p.hold(l, d)
		}
	}
	if err := p.checkNames(d.envelope.Topic, d.envelope.Workspace); err != nil {
		return err
	}
	if g := p.gate(s, d); g != nil {
		l := &line{key: lineKey{s, d.envelope.Topic}}
		if err := p.hold(l, d); err != nil {
			return err
		}
		if p.lines.byKey == nil {
			p.lines.byKey = map[lineKey]*line{}
		}
		p.lines.byKey[l.key] = l
		l.wait(g)
		return nil
	}
	return p.accept(s, d)
}

// gate returns what a send has to wait for next, nil if nothing. The lock is
// held.
func (p *partition) gate(s *Sender, d *draft) *gate {
	if d.acting != nil {
		if g := d.acting.look.gate(p); g != nil {
			return g
		}
	}
	if d.byClient {
		if g := p.returnGate(s); g != nil {
			return g
		}
	}
	return p.absenceGate(d.envelope.Topic, d.envelope.Workspace)
}

// hold puts a send at the end of a line.
func (p *partition) hold(l *line, d *draft) *wireerr.Error {
	s, size := l.key.sender, d.size()
	sends, bytes := s.heldSends.Load(), s.heldBytes.Load()
	if sends >= maxHeldSends || sends > 0 && bytes+int64(size) > maxHeldSendBytes || p.lines.bytes+size > maxHeldPartBytes {
		return wireerr.New(wireerr.Unavailable, "too much waits to be stored; the message is not stored")
	}
	s.heldSends.Add(1)
	s.heldBytes.Add(int64(size))
	p.lines.bytes += size
	s.waiting.Add(1)
	l.sends = append(l.sends, heldSend{*d, p.r.now()})
	return nil
}

func (l *line) wait(g *gate) {
	if g.lines == nil {
		g.lines = map[*line]struct{}{}
	}
	g.lines[l] = struct{}{}
	l.at = g
}

// leave takes a line away from the gate at which it waits.
func (l *line) leave() {
	if l.at != nil {
		delete(l.at.lines, l)
		l.at = nil
	}
}

// pop takes the first send of a line. Its sender is to be told
// [Sender.answered] when the send has been taken further.
func (p *partition) pop(l *line) draft {
	d := l.sends[0].draft
	l.sends[0] = heldSend{}
	l.sends = l.sends[1:]
	size := d.size()
	l.key.sender.heldSends.Add(-1)
	l.key.sender.heldBytes.Add(-int64(size))
	p.lines.bytes -= size
	return d
}

// open lets the lines go on that wait at a gate, until their next one. The
// lock is held.
func (p *partition) open(g *gate) {
	waiting := g.lines
	g.lines = nil
	for l := range waiting {
		l.at = nil
		p.advance(l)
	}
}

// advance publishes what a line has up to the next gate.
func (p *partition) advance(l *line) {
	s := l.key.sender
	for len(l.sends) > 0 {
		if g := p.gate(s, &l.sends[0].draft); g != nil {
			l.wait(g)
			return
		}
		d := p.pop(l)
		err := p.accept(s, &d)
		if err != nil {
			s.refuseHeld(&d, err)
		}
		s.answered() // it waits as a published one now, or has its answer
		if err != nil && err.Code == wireerr.Unavailable {
			p.refuseLine(l, err) // nothing may overtake it (P4)
			return
		}
	}
	delete(p.lines.byKey, l.key)
}

// refuse ends the lines that wait at a gate: all their sends are answered with
// err. The lock is held.
func (p *partition) refuse(g *gate, err *wireerr.Error) {
	waiting := g.lines
	g.lines = nil
	for l := range waiting {
		l.at = nil
		p.refuseLine(l, err)
	}
}

func (p *partition) refuseLine(l *line, err *wireerr.Error) {
	l.leave()
	for len(l.sends) > 0 {
		d := p.pop(l)
		l.key.sender.refuseHeld(&d, err)
		l.key.sender.answered()
	}
	delete(p.lines.byKey, l.key)
}

func (s *Sender) refuseHeld(d *draft, err *wireerr.Error) {
	d.span.End(string(err.Code))
	s.r.stats.Failed.Add(1)
	d.track.giveBack(s)
	s.refuse(d.requestID, answer{messageID: d.envelope.MessageID, topic: d.envelope.Topic}.name(err))
}

func errHeld() *wireerr.Error {
	return wireerr.New(wireerr.Unavailable, "the log was away; the message is not stored")
}

func errDropped() *wireerr.Error {
	return wireerr.New(wireerr.Unavailable, "the session is over; the message is not stored")
}

// refuseFollowers ends the lines behind sends that failed (delivery rule P4).
// The lock is held.
func (p *partition) refuseFollowers(items []pending) {
	if len(p.lines.byKey) == 0 {
		return
	}
	for i := range items {
		if l := p.lines.byKey[lineKey{items[i].sender, items[i].key.address}]; l != nil {
			p.refuseLine(l, errHeld())
		}
	}
}

// refuseOverdue ends the lines whose first send has waited too long.
func (p *partition) refuseOverdue(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines.byKey {
		if now.Sub(l.sends[0].since) >= p.r.publishTimeout {
			p.refuseLine(l, errHeld())
		}
	}
}

// refuseAll ends the lines of a sender, or all of them. The lock is held.
func (p *partition) refuseAll(s *Sender) {
	for _, l := range p.lines.byKey {
		if s == nil || l.key.sender == s {
			p.refuseLine(l, errHeld())
		}
	}
}

// returning is how sends wait until something that this gateway accepted after
// their session began has come back on the tail (delivery rule M2). One marker
// serves all who wait; while it is on its way no second one is written.
type returning struct {
	gate gate
	upTo uint64 // the origin_seq that is waited for; 0: nobody waits
}

// returnGate returns the gate of a sender that the log has not come back for,
// nil if it has. The lock is held.
func (p *partition) returnGate(s *Sender) *gate {
	base := s.parts[p.id].base
	if p.seen > base {
		return nil
	}
	if p.returning.upTo == 0 {
		// Nothing of this session's time is on its way: only a marker is sure
		// to come back. If the log takes none now, the clock tries again, once.
		if p.seq == base {
			p.mark()
		}
		p.returning.upTo = max(p.seq, base+1)
	}
	return &p.returning.gate
}

// comeBack lets those go on for whom the log has come back. The lock is held.
func (p *partition) comeBack() {
	if p.returning.upTo != 0 && p.seen >= p.returning.upTo {
		p.returning.upTo = 0
		p.open(&p.returning.gate)
	}
}
