package router

import (
	"errors"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// groupAttempts is how often a message is given to workers.
	groupAttempts = 3
	// maxReturned bounds what a group keeps of messages that a worker left
	// unfinished; past it the newest are given up, counted.
	maxReturned = 10_000
)

// group is the workers of one implementation, who compete for its messages
// (delivery rule T1: a message is given out only up to the credit of local
// workers). Without credit the group stands still in the log and is fed again
// when a worker has room.
type group struct {
	p     *partition
	topic string

	mu       sync.Mutex
	members  []*member
	feeder   delivery.Feeder
	position int64 // up to which it was fed before it joined the tail
	returned int   // messages on their way to another worker
}

// member is one worker of a group.
type member struct {
	*delivery.Inbox
	group *group
}

var _ reading = (*group)(nil)

func (g *group) fed() delivery.Feeder {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.feeder
}

func (g *group) at() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.position
}

func (g *group) wants(topic []byte) bool { return string(topic) == g.topic }

// take gives the message to the least loaded worker that has credit. Nobody
// left to take it: it is not kept.
func (g *group) take(v *envelope.View, position uint64, _ bool) bool {
	if int64(position) <= g.at() {
		return true // a reader that was ahead of the tail has handed it on (S1)
	}
	return g.give(v, position, 0)
}

func (g *group) give(v *envelope.View, position uint64, attempts uint8) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) == 0 {
		return attempts == 0
	}
	m := g.choose()
	return m != nil && m.Return(v, position, attempts)
}

// choose returns the willing worker with the least to do. The lock is held.
func (g *group) choose() *member {
	var best *member
	least := 0
	for _, m := range g.members {
		load, willing := m.Mailbox().Load()
		if willing && (best == nil || load < least) {
			best, least = m, load
		}
	}
	if best != nil {
		// The next of equals gets the next message.
		g.rotate(best)
	}
	return best
}

func (g *group) rotate(m *member) {
	for i, other := range g.members {
		if other == m {
			copy(g.members[i:], g.members[i+1:])
			g.members[len(g.members)-1] = m
			return
		}
	}
}

func (g *group) advance(position int64) {
	g.mu.Lock()
	g.position = max(g.position, position)
	g.mu.Unlock()
}

func (g *group) starve(position int64) {
	g.mu.Lock()
	g.position = max(g.position, position)
	g.feeder = delivery.FedByNobody
	members := append([]*member(nil), g.members...)
	g.mu.Unlock()
	for _, m := range members {
		m.Starve(none)
	}
}

// claim lets one feeder work at a time: several workers may get room at once.
func (g *group) claim(who delivery.Feeder) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) == 0 || who == delivery.FedByPump && g.feeder != delivery.FedByNobody {
		return false
	}
	g.feeder = who
	return true
}

func (g *group) join() {}

func (g *group) tellDamaged(uint64) {}

func (p *partition) work(name string, m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[name]
	if t == nil {
		g := &group{p: p, topic: name, feeder: delivery.FedByTail, position: p.tailAt}
		t = &target{workers: g}
		p.targets[name] = t
	}
	g := t.workers
	m.group = g
	g.mu.Lock()
	g.members = append(g.members, m)
	starving := g.feeder == delivery.FedByNobody
	g.mu.Unlock()
	if starving {
		m.Starve(none)
	}
}

// unwork removes a worker. What it did not finish goes to another.
func (p *partition) unwork(name string, m *member) {
	g := m.group
	p.mu.Lock()
	g.mu.Lock()
	for i, other := range g.members {
		if other == m {
			g.members = append(g.members[:i:i], g.members[i+1:]...)
			break
		}
	}
	if len(g.members) == 0 && g.returned == 0 {
		if t := p.targets[name]; t != nil && t.workers == g {
			delete(p.targets, name)
		}
	}
	others := append([]*member(nil), g.members...)
	starving := g.feeder == delivery.FedByNobody
	g.mu.Unlock()
	p.mu.Unlock()
	if starving && len(others) > 0 {
		// The one that left may have been the one that was to feed the group.
		others[0].Starve(none)
	}
	for _, u := range m.Unfinished() {
		g.giveBack(u.Position, u.Attempts, 0)
	}
}

// giveBack hands an unfinished message to another worker after delay.
func (g *group) giveBack(position uint64, attempts uint8, delay time.Duration) {
	r := g.p.r
	g.mu.Lock()
	if int(attempts) >= groupAttempts || g.returned >= maxReturned {
		g.mu.Unlock()
		r.giveUp(g.topic, position, attempts)
		return
	}
	g.returned++
	g.mu.Unlock()
	started := r.now()
	var try func()
	try = func() {
		raw, err := r.fetch(g.p, streams.Position(position))
		if errors.Is(err, errGone) || r.now().Sub(started) > returnedFor {
			r.giveUp(g.topic, position, attempts)
			g.forget()
			return
		}
		var v envelope.View
		if err == nil && v.Parse(raw) == nil && g.give(&v, position, attempts) {
			r.stats.Redelivered.Add(1)
			g.forget()
			return
		}
		if !r.later(redeliverRetry, try) {
			g.forget()
		}
	}
	if !r.later(delay, try) {
		g.forget()
	}
}

func (g *group) forget() {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returned--
	if g.returned == 0 && len(g.members) == 0 {
		if t := g.p.targets[g.topic]; t != nil && t.workers == g {
			delete(g.p.targets, g.topic)
		}
	}
}
