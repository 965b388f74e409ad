package delivery_test

import "github.com/aether-gateway/gateway/internal/delivery/tracker"

// realVotes drives the tracker by names.
type realVotes struct {
	decided func(publisher string)
	now     int64
	tracker *tracker.Tracker[*ballotOf]
	by      map[string]*ballotOf
	members map[*subscriber]tracker.Member
}

type ballotOf struct {
	publisher string
	ref       tracker.Ref
	votes     map[*subscriber]tracker.Vote
	result    any // nil while it is open
}

func newVotes(decided func(publisher string)) votes {
	v := &realVotes{decided: decided, by: map[string]*ballotOf{}, members: map[*subscriber]tracker.Member{}}
	v.tracker = tracker.New(1<<20, v.over)
	return v
}

func (v *realVotes) over(b *ballotOf, o tracker.Outcome) {
	switch o.State {
	case tracker.Acked:
		b.result = "ack"
	case tracker.Nacked:
		b.result = map[string]any{"nack": o.Reason}
	case tracker.TimedOut:
		b.result = "timed_out"
	}
	v.decided(b.publisher)
}

func (v *realVotes) join(sub *subscriber) { v.members[sub] = v.tracker.Join() }

func (v *realVotes) leave(sub *subscriber, why string) {
	if m, ok := v.members[sub]; ok {
		delete(v.members, sub)
		v.tracker.Leave(m, why)
	}
}

func (v *realVotes) register(m, publisher string, timeoutMS int, all bool, eligible []*subscriber) {
	mode := tracker.First
	if all {
		mode = tracker.All
	}
	b := &ballotOf{publisher: publisher, votes: map[*subscriber]tracker.Vote{}}
	v.by[m] = b
	b.ref, _ = v.tracker.Register(b, mode, v.now+int64(timeoutMS))
	members := make([]tracker.Member, len(eligible))
	for i, sub := range eligible {
		members[i] = v.members[sub]
	}
	for i, vote := range v.tracker.Elect(b.ref, members, nil) {
		b.votes[eligible[i]] = vote
	}
}

func (v *realVotes) missed(sub *subscriber, m string) {
	if b := v.by[m]; b != nil {
		v.tracker.Gone(b.votes[sub], "lagged")
	}
}

func (v *realVotes) dead(m string) {
	if b := v.by[m]; b != nil {
		v.tracker.Decide(b.ref, tracker.Outcome{State: tracker.Nacked, Reason: "max_attempts"})
	}
}

func (v *realVotes) vote(sub *subscriber, m string, ack bool, reason string) string {
	b := v.by[m]
	if b == nil || b.result != nil {
		return "error:not_tracked"
	}
	vote, member := b.votes[sub]
	switch {
	case !member:
		return "not_voting"
	case ack:
		v.tracker.Ack(vote)
	default:
		v.tracker.Nack(vote, reason)
	}
	return "ok"
}

func (v *realVotes) outcome(m string) any {
	if r := v.by[m].result; r != nil {
		return r
	}
	return "pending"
}

func (v *realVotes) advance(ms int) {
	v.now += int64(ms)
	v.tracker.Advance(v.now)
}
