package router

import (
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// untilSlack is how long after its poll should be over a vote is still told: the
// clocks of gateways differ.
const untilSlack = 30_000 // ms

// track opens the poll of a send that is about to be appended, and has its
// envelope say so. The partition's lock is held.
func (p *partition) track(s *Sender, d *draft) *wireerr.Error {
	e := &d.envelope
	e.Tracking, e.UntilMS = d.track.wireMode(), p.r.nowMS()+d.track.timeout.Milliseconds()
	if err := p.r.polls.begin(pollKey{p.id, e.Seq}, s, d); err != nil {
		return err
	}
	d.track = nil
	return nil
}

// booth is this gateway's part in the poll of a shared message.
type booth struct {
	origin uint64
	key    pollKey
}

// canvass tells the origin of a tracked message who may vote here, and gives it to
// those of a shared address: they are the members of the part of the poll that is
// held here, as they are at the message's place in the order. t is nil if nobody
// listens. The partition's lock is held.
func (p *partition) canvass(v *envelope.View, t *target, position uint64) {
	to, err := address.Parse(string(v.Topic))
	mode := modeOf(v.Tracking)
	if err != nil || mode == 0 {
		return
	}
	at := booth{v.Origin, pollKey{p.id, v.Seq}}
	switch to.Mode() {
	case address.Shared:
		var voters []*listener
		if t != nil && t.topic != nil {
			voters = t.topic.voters
		}
		votes := p.r.polls.hold(at, mode, v.UntilMS, voters)
		if len(voters) == 0 {
			break
		}
		ballots := make(map[*delivery.Cursor]delivery.Ballot, len(voters))
		for i, l := range voters {
			ballots[l.cursor] = delivery.Ballot{Box: p.r.polls, ID: uint64(votes[i])}
		}
		t.topic.vote(v, position, ballots, p.r)
		clear(voters)
		t.topic.voters = voters[:0]
	case address.Workers:
		n := 0
		if t != nil && t.workers != nil {
			n = t.workers.size()
		}
		p.r.polls.report(at, report{eligible: uint32(n)})
	}
	if v.Origin == p.r.origin {
		p.r.polls.showed(at.key)
	}
}

func (g *group) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// hold opens this gateway's part of the poll of a shared message, and returns the
// votes of its members. The sender is told how many they are, and the part's
// outcome when it has one.
func (p *polls) hold(at booth, mode tracker.Mode, until int64, voters []*listener) []tracker.Vote {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(voters) == 0 {
		p.send(at, report{})
		return nil
	}
	members := make([]tracker.Member, len(voters))
	for i, l := range voters {
		if l.member == 0 {
			l.member = p.booths.Join()
		}
		members[i] = l.member
	}
	ref, ok := p.booths.Register(at, mode, until+untilSlack)
	if !ok {
		p.send(at, report{eligible: uint32(len(voters)), state: voteNacked, reason: reasonOverload})
		return make([]tracker.Vote, len(voters))
	}
	p.send(at, report{eligible: uint32(len(voters))})
	votes := p.booths.Elect(ref, members, make([]tracker.Vote, 0, len(voters)))
	p.arm()
	return votes
}

// leave is for a listener that listens no more: what it owes it will not vote on.
func (p *polls) leave(l *listener) {
	if l.member == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.booths.Leave(l.member, reasonLeft)
	l.member = 0
}

// Vote implements [delivery.Ballots] for the members of shared addresses.
func (p *polls) Vote(id uint64, v delivery.Verdict, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch v {
	case delivery.VoteAck:
		p.booths.Ack(tracker.Vote(id))
		if at, acked, eligible, open := p.booths.Count(tracker.Vote(id)); open {
			p.send(at, report{eligible: eligible, acked: acked}) // together with what waits
		}
	case delivery.VoteNack:
		p.booths.Nack(tracker.Vote(id), reason)
	case delivery.VoteGone:
		p.booths.Gone(tracker.Vote(id), reason)
	}
}

// counted is told by the tracker: this gateway's part of a poll is over. The lock
// is held.
func (p *polls) counted(at booth, o tracker.Outcome) {
	rep := report{eligible: o.Eligible, acked: o.Acked, reason: o.Reason}
	switch {
	case o.State == tracker.Acked:
		rep.state = voteAcked
	case o.State == tracker.TimedOut:
		return // so it is for the sender
	case o.Gone:
		rep.state = voteGone
	default:
		rep.state = voteNacked
	}
	p.send(at, rep)
}

// showed says that the own tail has shown a message of this gateway: now the
// gateways are known that may have voters. The lock is not held.
func (p *polls) showed(key pollKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.by[key]
	if o == nil || o.over != nil || o.shown || o.kind == address.Exclusive {
		return
	}
	o.shown = true
	p.elect(o)
}

// report is send for whoever does not hold the lock.
func (p *polls) report(at booth, rep report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(at, rep)
}

// send tells the origin, which may be this gateway. The lock is held.
func (p *polls) send(at booth, rep report) {
	if at.origin == p.r.origin {
		p.take(at.key, p.self, rep)
		return
	}
	p.mail.put(at, rep)
}

// ballot returns the vote of the one receiver who is given a tracked message: of
// an address of its own, or as a worker.
func (p *partition) ballot(v *envelope.View) delivery.Ballot {
	if p.r.nowMS() > v.UntilMS+untilSlack {
		return delivery.Ballot{}
	}
	return delivery.Ballot{Box: &soleVote{p.r.polls, booth{v.Origin, pollKey{p.id, v.Seq}}}}
}

// refuseTracked votes against a tracked message for which nobody will: it has come too
// late, or is given up. Locks of mailboxes may be held.
func (p *partition) refuseTracked(v *envelope.View, reason string) {
	if v.Tracking != 0 {
		p.ballot(v).Cast(delivery.VoteNack, reason)
	}
}

// soleVote is the ballot of a message that one receiver has at a time.
type soleVote struct {
	p  *polls
	at booth
}

// Vote implements [delivery.Ballots].
func (s *soleVote) Vote(_ uint64, v delivery.Verdict, reason string) {
	rep := report{eligible: 1, state: voteNacked, reason: reason}
	switch v {
	case delivery.VoteAck:
		rep.state, rep.acked = voteAcked, 1
	case delivery.VoteGone:
		return // another may be given it
	}
	s.p.report(s.at, rep)
}
