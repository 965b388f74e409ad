package delivery

import (
	"cmp"
	"fmt"
)

// AckError says why an acknowledgement was refused. What stood before the
// offending id in the same frame has been done.
type AckError struct {
	ID     uint64
	Reason AckReason
}

// AckReason is why an acknowledgement was refused.
type AckReason uint8

// The reasons.
const (
	AckNotDelivered AckReason = iota + 1
	AckTwice
	AckInAuto
)

func (r AckReason) String() string {
	switch r {
	case AckNotDelivered:
		return "was never delivered on this session"
	case AckTwice:
		return "is acknowledged already"
	case AckInAuto:
		return "needs ack_mode CLIENT"
	}
	return "is refused"
}

func (e *AckError) Error() string {
	return fmt.Sprintf("delivery %d %s", e.ID, e.Reason)
}

// Ack acknowledges every delivery up to an id but those that were nacked, which
// come again under another id. Repeating the last call, or falling below it, is
// an error: it is how a client with mixed-up sessions shows.
func (m *Mailbox) Ack(upTo uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ackable(upTo); err != nil {
		return err
	}
	if upTo <= m.upTo {
		return &AckError{upTo, AckTwice}
	}
	m.ackShared(upTo)
	last := m.votes.upTo(upTo)
	for id := max(m.ledger.first, m.upToRec+1); id <= last; id++ {
		if m.ledger.at(id).flags&recordNacked == 0 {
			m.vote(id, VoteAck, "")
			m.done(id)
		}
	}
	m.upTo, m.upToRec = upTo, max(m.upToRec, last)
	m.trim()
	m.signal()
	return nil
}

// AckOne acknowledges a single delivery.
func (m *Mailbox) AckOne(id uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, shared, err := m.single(id)
	switch {
	case err != nil:
		return err
	case shared != nil:
		shared.done = true
		shared.ballot.Cast(VoteAck, "")
	default:
		m.vote(record, VoteAck, "")
		m.done(record)
	}
	m.trim()
	m.signal()
	return nil
}

// Nacked is a delivery that is to be made again.
type Nacked struct {
	Inbox *Inbox // nil: nothing is to be made again
	// ID is the mailbox's own, not the one on the wire.
	ID uint64
	// Attempts is how often it has been delivered.
	Attempts uint8
}

// Nack refuses a delivery. With requeue it stays undone, and whoever feeds
// the inbox delivers it again (see [Mailbox.Redeliver]); otherwise it is done. It
// is a vote against a tracked send, but of a worker only without requeue: another
// may do what it could not. What is shared is not delivered again.
func (m *Mailbox) Nack(id uint64, requeue bool, reason string) (Nacked, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, shared, err := m.single(id)
	if err != nil {
		return Nacked{}, err
	}
	reason = cmp.Or(reason, reasonNacked)
	if shared != nil {
		shared.done = true
		shared.ballot.Cast(VoteNack, reason)
		m.trim()
		return Nacked{}, nil
	}
	r := m.ledger.at(record)
	n := Nacked{Inbox: r.inbox, ID: record, Attempts: r.attempts + 1}
	if !requeue || r.inbox == nil || !r.inbox.Worker {
		m.vote(record, VoteNack, reason)
	}
	if requeue {
		r.flags |= recordNacked
		m.unacked--
	} else {
		m.done(record)
		m.trim()
	}
	m.signal()
	return n, nil
}

func (m *Mailbox) ackable(id uint64) error {
	if m.opts.Mode != Client {
		return &AckError{id, AckInAuto}
	}
	if id == 0 || id > m.highest+m.votes.ahead() {
		return &AckError{id, AckNotDelivered}
	}
	return nil
}

// single returns what a single acknowledgement means, unless that is refused.
func (m *Mailbox) single(id uint64) (record uint64, shared *sharedVote, _ error) {
	if err := m.ackable(id); err != nil {
		return 0, nil, err
	}
	record, shared = m.votes.split(id)
	if shared != nil && shared.done ||
		shared == nil && (record < m.ledger.first || m.ledger.at(record).flags&(recordDone|recordNacked) != 0) {
		return 0, nil, &AckError{id, AckTwice}
	}
	return record, shared, nil
}

// done marks one delivery as done. The lock is held.
func (m *Mailbox) done(id uint64) {
	r := m.ledger.at(id)
	if r.flags&recordDone != 0 {
		return
	}
	if r.flags&recordSent != 0 && r.flags&recordNacked == 0 {
		m.unacked--
	}
	r.flags |= recordDone
	if r.flags&recordVotes != 0 {
		delete(m.votes.byRecord, id)
	}
	if r.inbox == nil {
		return
	}
	r.inbox.moved = true
	if r.inbox.Done != nil && r.flags&recordNacked == 0 && r.position != none {
		r.inbox.Done(uint64(r.position))
	}
}

// Finish ends a nacked delivery, or one that will not be made again.
func (m *Mailbox) Finish(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id >= m.ledger.first && id < m.ledger.next {
		m.done(id)
		m.trim()
	}
	m.signal()
}

// TakeBack ends a delivery that goes to another worker. It reports false if it
// is over already: done, or given back with all of its session.
func (m *Mailbox) TakeBack(id uint64) (u Unfinished, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id < m.ledger.first || id >= m.ledger.next {
		return u, false
	}
	r := m.ledger.at(id)
	if r.flags&recordDone != 0 || r.position == none {
		return u, false
	}
	u = r.unfinished()
	m.over(r)
	m.ledger.trim()
	m.signal()
	return u, true
}

// over ends a delivery that is done neither here nor now. The lock is held.
func (m *Mailbox) over(r *record) {
	if r.flags&(recordSent|recordNacked) == recordSent {
		m.unacked--
	}
	r.flags |= recordDone
}

// PositionOf returns where a delivery that is not done stands in the log;
// known is false as long as the log has not shown it.
func (m *Mailbox) PositionOf(id uint64) (position uint64, known, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || id < m.ledger.first || id >= m.ledger.next {
		return 0, false, false
	}
	r := m.ledger.at(id)
	if r.flags&recordDone != 0 {
		return 0, false, false
	}
	if r.position == none {
		return 0, false, true
	}
	return uint64(r.position), true, true
}

// Settle decides for Auto mode which written deliveries are done: those after
// which the stream took window further bytes, and, if the stream is not
// blocked, those that were written before. Both are bounds that the caller
// takes from delivery rule A; before is the gateway's running time in ms.
func (m *Mailbox) Settle(window uint64, before int64, blocked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opts.Mode != Auto || blocked {
		return
	}
	for id := m.ledger.first; id <= m.highest; id++ {
		r := m.ledger.at(id)
		if r.sentEnd == 0 {
			break
		}
		if m.written-r.sentEnd <= window && r.sentAt > before {
			break
		}
		m.done(id)
	}
	m.trim()
	m.signal()
}
