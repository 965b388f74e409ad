package router

import (
	"fmt"
	"slices"
	"testing"

	asking "github.com/aether-gateway/gateway/internal/peers"
)

// polling lets gateways tell each other votes.
func (ps *peers) polling() {
	for _, g := range ps.list {
		p := asking.New(g.presence, nil)
		g.r.VoteBy(p)
		p.Handle(KindVotes, g.r.TakeVotes)
		g.t.Cleanup(p.Close)
	}
	// Each knows of the others before anything is sent.
	for _, g := range ps.list {
		g.eventually(func() bool {
			list, certain := g.presence.Instances()
			return certain && len(list) == len(ps.list)
		})
	}
}

// heard waits until a gateway's tail has shown what another has appended.
func (g *gateway) heard(other *gateway) {
	g.t.Helper()
	other.settled()
	p, q := g.r.parts[0], other.r.parts[0]
	q.mu.Lock()
	at := q.tailAt
	q.mu.Unlock()
	g.until(func() (bool, <-chan struct{}) {
		shown := p.nextEntry()
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.tailAt >= at, shown
	})
}

// Delivery rule R1: the set of a broadcast is on all gateways, and so are the
// votes; a worker's and a receiver's vote come from whichever gateway they are
// on; a gateway that dies is a nack.
func TestR1VotesOfOtherGateways(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	ps.polling()
	a, b := ps.list[0], ps.list[1]
	from := a.agent("from", client(100))
	one, two, three := a.agent("1", client(100)), b.agent("2", client(100)), b.agent("3", client(100))
	to := []*session{one, two, three}
	ids := func(text string) (list []uint64) {
		t.Helper()
		for _, s := range to {
			list = append(list, s.id(text))
		}
		return list
	}
	from.tracked("ga::w", "acked by all", all, long)
	for i, id := range ids("acked by all") {
		to[i].ack(id)
	}
	from.outcome("acked by all ACKED 3/3 ")

	from.tracked("ga::w", "one nack", all, long)
	for i, id := range ids("one nack") {
		if i == 2 {
			to[i].refuse(id, false, "full")
		} else {
			to[i].ack(id)
		}
	}
	from.outcomes("one nack NACKED 1/3 full", "one nack NACKED 2/3 full")

	from.tracked("ga::w", "first", first, long)
	two.ack(ids("first")[1])
	from.outcome("first ACKED 1/3 ")

	from.tracked("ga::w", "late", all, long)
	b.heard(a)
	late := b.agent("late", client(100))
	for i, id := range ids("late") {
		to[i].ack(id)
	}
	from.outcome("late ACKED 3/3 ")
	late.leave()

	from.tracked(three.name, "own", first, long)
	three.ack(three.id("own"))
	from.outcome("own ACKED 1/1 ")

	from.tracked(tasks, "nobody works", first, long)
	from.outcome("nobody works NACKED 0/0 no_eligible_subscribers")
	worker := b.worker("w", client(100))
	b.entered()
	from.tracked(tasks, "work", first, long)
	worker.ack(worker.id("work"))
	from.outcome("work ACKED 1/1 ")

	from.tracked("ga::w", "killed", all, long)
	for i, id := range ids("killed") {
		if i < 2 {
			to[i].ack(id)
		}
	}
	_ = b.presence.Close(t.Context())
	// What its gateway has not told yet is not counted.
	from.outcomes("killed NACKED 2/3 gateway_lost", "killed NACKED 1/3 gateway_lost", "killed NACKED 1/1 gateway_lost")

	one.leave()
	from.tracked("ga::w", "none", all, long)
	from.outcome("none NACKED 0/0 no_eligible_subscribers")
	if n := a.r.Polled(); n != 0 {
		t.Errorf("%d polls are left", n)
	}
}

// outcomes is outcome where several are right: counts are as far as they are
// known.
func (s *session) outcomes(want ...string) {
	s.w.t.Helper()
	r := s.answer().GetReceipt()
	got := fmt.Sprintf("%s %s %d/%d %s", r.GetRequestId(), r.GetStatus().String()[len("STATUS_"):], r.GetAcked(), r.GetEligible(), r.GetReason())
	if !slices.Contains(want, got) {
		s.w.t.Fatalf("got %s, want one of %q", got, want)
	}
}
