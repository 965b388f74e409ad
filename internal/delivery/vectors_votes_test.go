package delivery_test

import "slices"

// simpleVotes is the obvious way to count votes.
type simpleVotes struct {
	decided func(publisher string)
	now     int
	by      map[string]*ballotOf
}

type ballotOf struct {
	publisher string
	deadline  int
	all       bool
	owing     []*subscriber
	acked     []*subscriber
	result    any
}

func newVotes(decided func(publisher string)) votes {
	return &simpleVotes{decided: decided, by: map[string]*ballotOf{}}
}

func (v *simpleVotes) join(*subscriber) {}

func (v *simpleVotes) end(b *ballotOf, result any) {
	if b.result == nil {
		b.result = result
		v.decided(b.publisher)
	}
}

func nack(reason string) any { return map[string]any{"nack": reason} }

func (v *simpleVotes) register(m, publisher string, timeoutMS int, all bool, eligible []*subscriber) {
	b := &ballotOf{publisher: publisher, deadline: v.now + timeoutMS, all: all, owing: slices.Clone(eligible)}
	v.by[m] = b
	if len(eligible) == 0 {
		v.end(b, nack("no_eligible_subscribers"))
	}
}

func (v *simpleVotes) leave(sub *subscriber, why string) {
	for _, b := range v.by {
		if b.all && slices.Contains(b.owing, sub) {
			v.end(b, nack(why))
		}
	}
}

func (v *simpleVotes) missed(sub *subscriber, m string) {
	if b := v.by[m]; b != nil && b.all && slices.Contains(b.owing, sub) {
		v.end(b, nack("lagged"))
	}
}

func (v *simpleVotes) dead(m string) {
	if b := v.by[m]; b != nil {
		v.end(b, nack("max_attempts"))
	}
}

func (v *simpleVotes) vote(sub *subscriber, m string, ack bool, reason string) string {
	b := v.by[m]
	if b == nil || b.result != nil {
		return "error:not_tracked"
	}
	if slices.Contains(b.acked, sub) {
		return "ok"
	}
	if !slices.Contains(b.owing, sub) {
		return "not_voting"
	}
	if !ack {
		v.end(b, nack(reason))
		return "ok"
	}
	b.acked = append(b.acked, sub)
	b.owing = slices.DeleteFunc(b.owing, func(o *subscriber) bool { return o == sub })
	if !b.all || len(b.owing) == 0 {
		v.end(b, "ack")
	}
	return "ok"
}

func (v *simpleVotes) outcome(m string) any {
	if r := v.by[m].result; r != nil {
		return r
	}
	return "pending"
}

func (v *simpleVotes) advance(ms int) {
	v.now += ms
	for _, b := range v.by {
		if v.now >= b.deadline {
			v.end(b, "timed_out")
		}
	}
}
