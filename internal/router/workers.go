package router

import (
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// group is the workers of one implementation, who compete for its messages
// (delivery rule T1: a message is given out only up to the credit of local
// workers). Without credit the group stands still in the log and is fed again
// when a worker has room.
//
// With other gateways beside this one the group first claims what it gives
// out, see [contest].
//
// A group outlives its last worker as long as messages of its time wait for
// the next one: returned ones, and those that nobody had credit for.
type group struct {
	p     *partition
	topic string
	// contest is nil if this gateway is alone.
	contest *contest

	mu        sync.Mutex
	members   []*member
	feeder    delivery.Feeder
	position  int64      // up to where it has been fed
	need      int        // the size of the last message that nobody had room for
	leaving   int        // workers that are not members any more and not settled yet
	back      []returned // by the time that they are due; at most maxReturned
	givingOut bool       // returned has its task
	returned  *backlog
	// What came after leftAt and up to backAt came while nobody listened; it
	// is not kept.
	leftAt, backAt int64
	leftOn         time.Time
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

// take gives the message to the least loaded worker that has credit.
func (g *group) take(v *envelope.View, position uint64, _ bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takeIt(v, position)
}

func (g *group) takeIt(v *envelope.View, position uint64) bool {
	at := int64(position)
	switch {
	case at <= g.position:
		return true // a reader that was ahead of the tail has handed it on (S1)
	case at > g.leftAt && at <= g.backAt:
		return true
	case len(g.members) == 0:
		return g.feeder == delivery.FedByTail
	}
	taken := false
	if g.contest != nil {
		taken = g.contest.offer(v, position)
	} else {
		taken = g.give(v, position, 0)
	}
	if taken {
		// Whoever feeds the group next must not give it out as new once more.
		g.position = at
	}
	return taken
}

// give is the last step of take, and of returning. The lock is held.
func (g *group) give(v *envelope.View, position uint64, attempts uint8) bool {
	size := delivery.FrameBound(v)
	m := g.choose(size)
	if m != nil && m.Return(v, position, attempts) {
		return true
	}
	g.need = size
	return false
}

// choose returns the willing worker with the least to do. The lock is held.
func (g *group) choose(size int) *member {
	var best *member
	least := 0
	for _, m := range g.members {
		load, willing := m.Mailbox().Load(size)
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

// willing reports whether some worker would take something. The lock is held.
func (g *group) willing() bool {
	for _, m := range g.members {
		if _, willing := m.Mailbox().Load(0); willing {
			return true
		}
	}
	return false
}

// giveAgain gives a returned message to a worker.
func (g *group) giveAgain(v *envelope.View, position uint64, attempts uint8) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.give(v, position, attempts)
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
	defer g.mu.Unlock()
	g.starveAt(position)
}

func (g *group) starveAt(position int64) {
	g.position = max(g.position, position)
	g.feeder = delivery.FedByNobody
	if g.contest != nil {
		return // the contest feeds it again
	}
	for _, m := range g.members {
		m.StarveFor(g.need)
	}
}

// claim lets one feeder work at a time: several workers may get room at once.
// A group without workers has none until the next one comes.
func (g *group) claim(who delivery.Feeder) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claimFor(who)
}

func (g *group) claimFor(who delivery.Feeder) bool {
	if who == delivery.FedByPump && g.feeder != delivery.FedByNobody {
		return false
	}
	if len(g.members) == 0 {
		g.feeder = delivery.FedByNobody
		return false
	}
	g.feeder = who
	return true
}

func (g *group) join() {}

func (g *group) leapOver(streams.Entry) {}

func (g *group) tellDamaged(uint64) {}

func (p *partition) work(name string, m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[name]
	if t == nil {
		g := &group{p: p, topic: name, feeder: delivery.FedByTail, position: p.tailAt, leftAt: none, backAt: none}
		g.returned = newBacklog(p.r, g.tidyNow)
		if p.r.claimer != nil {
			g.contest = newContest(g, p.r.claimer)
		}
		t = &target{workers: g}
		p.targets[name] = t
	}
	g := t.workers
	m.group = g
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.contest; c != nil {
		if m.Done = c.acked; len(g.members) == 0 {
			c.join(p.tailAt)
		}
		g.members = append(g.members, m)
		c.schedule(time.Now())
		return
	}
	if len(g.members) == 0 && !g.leftOn.IsZero() {
		g.backAt, g.leftOn = p.tailAt, time.Time{}
	}
	g.members = append(g.members, m)
	if g.feeder == delivery.FedByNobody {
		m.StarveFor(0)
	}
}

// unwork removes a worker, who gets nothing more. Its session is to settle
// what it has been given, and then to call [group.settled].
func (p *partition) unwork(m *member) {
	g := m.group
	p.mu.Lock()
	defer p.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.members {
		if other == m {
			g.members = append(g.members[:i:i], g.members[i+1:]...)
			break
		}
	}
	g.leaving++
	switch {
	case g.contest != nil:
		if len(g.members) == 0 {
			g.leftOn = p.r.now()
			g.contest.leave(p.tailAt)
		}
	case len(g.members) == 0:
		g.leftAt, g.backAt, g.leftOn = p.tailAt, none, p.r.now()
	case g.feeder == delivery.FedByNobody:
		// The one that left may have been the one that was to feed the group.
		g.members[0].StarveFor(0)
	}
}

// settled hands what a worker that has left did not finish to another.
func (g *group) settled(m *member) {
	for _, u := range m.Abandon() {
		g.giveBack(u.Position, u.Attempts, 0)
	}
	g.mu.Lock()
	g.leaving--
	g.mu.Unlock()
	g.tidyNow()
}

func (g *group) tidyNow() {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tidy(g.p.r.now())
}

// tidy forgets a group that nothing waits for. Both locks are held.
func (g *group) tidy(now time.Time) {
	if len(g.members) > 0 || g.leaving > 0 || g.givingOut {
		return
	}
	if g.contest != nil {
		if !g.contest.over(now) {
			return
		}
	} else if g.position > g.p.tailAt || g.feeder != delivery.FedByTail && now.Sub(g.leftOn) < returnedFor {
		return // the tail would show the next group of the address what this one has had
	}
	if t := g.p.targets[g.topic]; t != nil && t.workers == g {
		delete(g.p.targets, g.topic)
	}
	if g.contest != nil {
		g.contest.c.remove(g.contest)
	}
}

// tidyGroups forgets the groups that nothing waits for.
func (p *partition) tidyGroups(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		if g := t.workers; g != nil {
			g.mu.Lock()
			g.tidy(now)
			g.mu.Unlock()
		}
	}
}
