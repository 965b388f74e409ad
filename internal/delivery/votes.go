package delivery

import (
	"sort"

	"github.com/aether-gateway/gateway/internal/envelope"
)

// Verdict is a receiver's vote in a tracked send.
type Verdict uint8

// The verdicts.
const (
	VoteAck Verdict = iota + 1
	VoteNack
	// VoteGone: the receiver will not vote; it has lost the message.
	VoteGone
)

// Ballots takes votes. Vote is called with the mailbox's lock held, and must not
// call back.
type Ballots interface {
	Vote(id uint64, v Verdict, reason string)
}

// Ballot is one receiver's say in one tracked send; the zero value is none. What
// is voted after the first time has no effect.
type Ballot struct {
	Box Ballots
	ID  uint64
}

// Cast votes, if there is a vote.
func (b Ballot) Cast(v Verdict, reason string) {
	if b.Box != nil {
		b.Box.Vote(b.ID, v, reason)
	}
}

const (
	// maxVoted bounds the shared deliveries of a session that may be acknowledged
	// for a vote and were not. Past it one goes out without an id, and its receiver
	// counts as gone.
	maxVoted = 4096

	reasonNacked   = "nacked"
	reasonLagged   = "lagged"
	reasonUnvoting = "too_many_unacknowledged"
)

// votes are a session's ballots. The zero value has none; nothing of it costs a
// session that gets no tracked sends.
//
// The ledger numbers what is tracked when it is queued. A shared delivery with a
// vote gets its id when it goes out, as it may be dropped before that; from then
// on ids on the wire are ahead of the ledger's by the number of those, and ids
// rise by one whichever lane a delivery came by.
type votes struct {
	byRecord map[uint64]Ballot // of the ledger's records that have recordVotes; as many as those
	shared   queue[sharedVote] // by rising id; at most maxVoted
	passed   uint64            // how many have left shared
}

type sharedVote struct {
	id     uint64 // on the wire
	ballot Ballot
	done   bool
}

// ahead is by how much the next id on the wire is ahead of the ledger's.
func (s *votes) ahead() uint64 { return s.passed + uint64(s.shared.len()) }

// from returns the index of the first shared vote with at least an id.
func (s *votes) from(id uint64) int {
	return sort.Search(s.shared.len(), func(i int) bool { return s.shared.at(i).id >= id })
}

// split returns what an id on the wire means: a shared vote, or else a record of
// the ledger, 0 if that has long been done.
func (s *votes) split(id uint64) (record uint64, vote *sharedVote) {
	i := s.from(id)
	if i < s.shared.len() && s.shared.at(i).id == id {
		return 0, s.shared.at(i)
	}
	return behind(id, s.passed+uint64(i)), nil
}

// upTo returns the last record of the ledger that went out with an id of at most
// this one, or before the first that is open.
func (s *votes) upTo(id uint64) (record uint64) {
	return behind(id, s.passed+uint64(s.from(id+1)))
}

func behind(id, ahead uint64) uint64 {
	if id <= ahead {
		return 0
	}
	return id - ahead
}

// takeVoted completes the last frame of a batch, a shared one with a vote.
func (m *Mailbox) takeVoted(b *Batch, ballot Ballot) {
	switch {
	case ballot.Box == nil:
	case m.opts.Mode == Auto:
		b.votes = append(b.votes, ballot)
	case m.votes.shared.len() >= maxVoted:
		ballot.Cast(VoteGone, reasonUnvoting)
	default:
		id := m.highest + m.votes.ahead() + 1
		m.votes.shared.push(sharedVote{id: id, ballot: ballot})
		last := len(b.Frames) - 1
		b.Frames[last] = envelope.Renumber(nil, b.Frames[last], id)
	}
}

// renumber gives the last frame of a batch, of the record that was sent last, the
// id that it has on the wire, if another was expected when it was queued.
func (m *Mailbox) renumber(b *Batch, r *record) {
	if ahead := m.votes.ahead(); uint64(r.ahead) != ahead {
		last := len(b.Frames) - 1
		b.Frames[last] = envelope.Renumber(nil, b.Frames[last], m.highest+ahead)
	}
}

// register keeps the vote of a record that is queued.
func (m *Mailbox) register(in *Inbox, v *envelope.View, id uint64) {
	if v.Tracking == 0 || in.Ballot == nil {
		return
	}
	b := in.Ballot(v)
	if b.Box == nil {
		return
	}
	if m.votes.byRecord == nil {
		m.votes.byRecord = map[uint64]Ballot{}
	}
	m.votes.byRecord[id] = b
	m.ledger.at(id).flags |= recordVotes
}

// vote casts the vote of a record, if it has one.
func (m *Mailbox) vote(id uint64, v Verdict, reason string) {
	if m.ledger.at(id).flags&recordVotes != 0 {
		m.votes.byRecord[id].Cast(v, reason)
	}
}

// ackShared casts the shared votes up to an id that were not cast.
func (m *Mailbox) ackShared(upTo uint64) {
	for i := range m.votes.shared.len() {
		s := m.votes.shared.at(i)
		if s.id > upTo {
			break
		}
		if !s.done {
			s.done = true
			s.ballot.Cast(VoteAck, "")
		}
	}
}

// trim forgets what is done at the old end. What lies between two shared votes
// must be done before the first can go: it tells how far ahead that is.
func (m *Mailbox) trim() {
	m.ledger.trim()
	s := &m.votes
	for s.shared.len() > 0 {
		front := s.shared.at(0)
		if !front.done || m.ledger.first+s.passed < front.id {
			return
		}
		s.shared.drop(1)
		s.passed++
	}
}

// written casts the votes of a session in Auto mode: it is done with what was
// written to it.
func (m *Mailbox) castWritten(b *Batch) {
	for _, ballot := range b.votes {
		ballot.Cast(VoteAck, "")
	}
	if len(m.votes.byRecord) == 0 {
		return
	}
	for _, taken := range b.taken {
		if taken.id >= m.ledger.first {
			m.vote(taken.id, VoteAck, "")
		}
	}
}
