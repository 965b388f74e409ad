package router

import (
	"cmp"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
)

// elect gives a poll of a shared address or of workers its set: the gateways that
// live now. The lock is held.
func (p *polls) elect(o *poll) {
	list, certain := []string{p.self}, true
	if p.r.presence != nil {
		instances, sure := p.r.presence.Instances()
		list, certain = list[:0], sure
		for _, i := range instances {
			list = append(list, i.ID)
		}
	}
	if !certain {
		p.unsure[o] = struct{}{}
		return
	}
	delete(p.unsure, o)
	members := make([]tracker.Member, 0, len(list))
	for _, id := range list {
		if p.gateways[id] == 0 {
			p.gateways[id] = p.open.Join()
		}
		members = append(members, p.gateways[id])
	}
	o.elected = true
	votes := p.open.Elect(o.ref, members, nil)
	o.votes = make(map[string]tracker.Vote, len(votes))
	for i, v := range votes {
		o.votes[list[i]] = v
	}
	for id := range o.reports {
		p.apply(o, id)
	}
}

// take takes what a gateway says of a poll. The lock is held.
func (p *polls) take(key pollKey, from string, rep report) {
	o := p.by[key]
	if o == nil || o.over != nil {
		return
	}
	if o.reports == nil {
		o.reports = map[string]report{}
	}
	o.reports[from] = o.reports[from].then(rep)
	p.apply(o, from)
}

// apply lets a report have its effect. Whoever was not elected, because it was not
// known yet, may only refuse.
func (p *polls) apply(o *poll, from string) {
	rep := o.reports[from]
	v := o.votes[from]
	one := o.kind != address.Shared
	if rep.state == voteGone && o.mode == tracker.All {
		rep.state = voteNacked
	}
	switch {
	case rep.state == voteNacked && (one || o.mode == tracker.First || v == 0):
		p.open.Decide(o.ref, tracker.Outcome{State: tracker.Nacked, Reason: rep.reason})
	case rep.state == voteNacked:
		p.open.Nack(v, rep.reason)
	case rep.state == voteAcked && (one || o.mode == tracker.First):
		p.open.Decide(o.ref, tracker.Outcome{State: tracker.Acked})
	case rep.state == voteGone, rep.eligible == 0 && o.mode == tracker.First:
		p.open.Gone(v, cmp.Or(rep.reason, tracker.NoEligible))
	case rep.state == voteAcked, rep.eligible == 0:
		p.open.Ack(v)
	}
}

// sweep looks for gateways that have gone, and elects what could not be before.
func (p *polls) sweep() {
	if p.r.presence == nil || len(p.by) == 0 {
		return
	}
	list, certain := p.r.presence.Instances()
	if !certain {
		return
	}
	for o := range p.unsure {
		p.elect(o)
	}
	live := make(map[string]bool, len(list))
	for _, i := range list {
		live[i.ID] = true
	}
	for id, m := range p.gateways {
		if !live[id] {
			delete(p.gateways, id)
			p.open.Leave(m, reasonGatewayLost)
		}
	}
}
