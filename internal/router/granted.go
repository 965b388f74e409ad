package router

import (
	"errors"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/claims"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/streams"
)

// answer takes in what a round has brought.
func (c *contest) answer(r *claims.Round, now time.Time) {
	g := c.g
	g.p.mu.Lock()
	end, upright := g.p.tailAt, g.p.handover
	g.p.mu.Unlock()
	g.mu.Lock()
	c.c.back(c)
	a := &r.Answer
	if a.Status != claims.OK {
		if a.Status == claims.Anew {
			c.tellOf = c.tellOf || c.known && c.in != ""
			c.in, c.open, c.settled = "", false, false
		} else {
			c.unsure = true
		}
		g.mu.Unlock()
		c.schedule(now.Add(10 * time.Millisecond))
		return
	}
	moreAcks := c.taken(r)
	c.in, c.others, c.free = a.Incarnation, a.Others, a.Free
	if c.tellOf && c.settled && (r.Enter == claims.Stay || r.Enter == claims.Reset) {
		c.tellOf, c.doubt = false, nil
	}
	if r.Copy {
		c.copyAt = now.Add(claimTouch)
	}
	if a.Recalled {
		c.unsure = false
		if !c.tellOf {
			c.doubt = nil
		}
	}
	if len(r.Free) > 0 && c.others > 0 {
		c.freeAt = now.Add(freeDelay)
	}
	listening := len(g.members) > 0
	c.enter(r, listening)
	c.measure(a.Floor, end, upright, now)
	granted := c.grants(r)
	c.handOut(a.Floor, granted)
	hand := len(c.mine) > 0 && !c.handing
	c.handing = c.handing || hand
	feed := c.hungry()
	c.plan(r, now, moreAcks, listening)
	g.mu.Unlock()
	if hand {
		g.returned.add(0, c.hand)
	}
	if feed != nil {
		g.p.feed(feed)
	}
	if !listening {
		g.tidyNow()
	}
}

// taken forgets what the round has told. It reports whether more
// acknowledgements wait.
func (c *contest) taken(r *claims.Round) bool {
	for _, position := range r.Done {
		delete(c.owned, position)
	}
	for _, f := range r.Free {
		delete(c.owned, f.Position)
		if len(c.table) < 2*claims.MaxCopy {
			c.table[f.Position] = claims.Owned{Claim: f}
		}
	}
	if c.freeing = c.freeing[len(r.Free):]; len(c.freeing) == 0 {
		c.freeing = nil
	}
	return c.dropAcks(len(r.Done))
}

// enter notes that the group has been entered. The place in the log of a
// group that had none is the floor, from which others have gone on.
func (c *contest) enter(r *claims.Round, listening bool) {
	a := &r.Answer
	c.open = a.Wait == 0 && r.Listening && listening && (!c.joining || r.Enter != claims.Stay)
	if c.settled = a.Wait == 0; !c.settled {
		return
	}
	if r.Enter == claims.Reset {
		c.rewound = false
	}
	if a.Resets != c.resets { // the log was made anew
		c.resets = a.Resets
		c.candidates, c.bytes, c.last = nil, 0, none
		if c.placed {
			c.stint, c.g.feeder, c.g.position = &stint{c.g}, delivery.FedByNobody, a.Floor
		}
	}
	c.cursor, c.known = a.Floor, true
	if c.open && c.joining {
		c.joining, c.placed = false, true
		c.left, c.back = none, none
		c.g.position = a.Floor
	}
	if !listening && !r.Listening {
		c.told = true
	}
	if !listening && c.read && c.cursor >= c.last && c.free == 0 {
		c.backlog = false
	}
}

// measure notices that the log ends below the floor, as it does when it was
// made anew: nothing of it would ever be claimed. This gateway's tail may
// merely be late, so it takes several looks.
func (c *contest) measure(floor, end int64, upright bool, now time.Time) {
	switch {
	case floor <= end || !upright || !c.settled || c.rewound:
		c.beyond, c.reset = 0, false
	case now.Sub(c.beyondAt) >= claimTouch*9/10:
		c.beyond++
		c.beyondAt = now
		c.reset = c.beyond > maxBeyond
		// From where the first worker came, if that is in the new log.
		if c.end = none; c.tail <= end {
			c.end = c.tail
		}
	}
}

// grants returns which positions are this gateway's now, and takes in the copy
// of the open claims: what an exchange of unknown outcome has granted, and
// what has been lost to others meanwhile.
func (c *contest) grants(r *claims.Round) map[uint64]uint8 {
	a := &r.Answer
	granted := make(map[uint64]uint8, len(a.Granted)+len(a.Taken))
	for _, position := range a.Granted {
		granted[position] = 0
	}
	for _, t := range a.Taken {
		granted[t.Position] = t.Attempts
	}
	if !a.Recalled {
		return c.own(granted)
	}
	still := make(map[uint64]struct{}, len(c.owned))
	if a.Complete && !c.tellOf {
		clear(c.table)
		c.passed = nil
		c.peers = strings.Join(a.Peers, ",")
	}
	for _, o := range a.Table {
		if o.Owner != c.c.self {
			if !c.tellOf {
				c.table[o.Position] = o
			}
			continue
		}
		still[o.Position] = struct{}{}
		if _, known := c.owned[o.Position]; !known {
			granted[o.Position] = o.Attempts
		}
	}
	for position := range c.owned {
		if _, ok := still[position]; !ok {
			delete(c.owned, position)
		}
	}
	return c.own(granted)
}

func (c *contest) own(granted map[uint64]uint8) map[uint64]uint8 {
	for position, attempts := range granted {
		c.owned[position] = attempts
	}
	return granted
}

// handOut gives the granted ones to workers, and drops the candidates that
// are decided. What came from elsewhere has to be read first.
func (c *contest) handOut(floor int64, granted map[uint64]uint8) {
	n := 0
	for n < len(c.candidates) && int64(c.candidates[n].position) <= floor {
		k := &c.candidates[n]
		n++
		c.bytes -= k.size
		attempts, ok := granted[k.position]
		if !ok {
			if c.others > 0 {
				c.passed = append(c.passed, k.position)
			}
			continue
		}
		delete(granted, k.position)
		if !c.g.give(&k.view, k.position, attempts) {
			c.mine = append(c.mine, claims.Claim{Position: k.position, Attempts: attempts})
		}
	}
	if over := len(c.passed) - maxPassed; over > 0 {
		c.passed = c.passed[over:]
	}
	clear(c.candidates[:n])
	if c.candidates = c.candidates[n:]; len(c.candidates) == 0 {
		c.candidates = nil
	}
	for position, attempts := range granted {
		c.mine = append(c.mine, claims.Claim{Position: position, Attempts: attempts})
	}
}

// plan says when the next round is.
func (c *contest) plan(r *claims.Round, now time.Time, moreAcks, listening bool) {
	a := &r.Answer
	switch {
	case moreAcks || len(c.freeing) > 0 || listening != r.Listening || c.tellOf && c.settled || c.reset || c.rewound && c.settled:
		c.schedule(now)
	case a.Wait > 0:
		c.schedule(now.Add(min(a.Wait+time.Millisecond, claimTouch/4)))
	case !listening:
		c.schedule(now.Add(restTouch))
		return
	}
	c.schedule(now.Add(claimTouch))
	if r.Max > 0 && len(r.Candidates) > 0 && len(a.Granted) == 0 && a.Floor < int64(r.Candidates[0]) {
		// There are claims.MaxOpen already.
		c.schedule(now.Add(claimTouch / 4))
		return
	}
	if !c.open || len(c.candidates) == 0 && c.free == 0 && c.g.feeder == delivery.FedByTail {
		return
	}
	if credit := c.credit(); credit.Frames <= 0 {
		c.park()
	} else if len(c.candidates) > 0 || c.free > 0 && !now.Before(c.freeAt) {
		c.soon(now, credit)
	} else {
		c.schedule(c.freeAt)
	}
}

// rest is called instead of ask and answer if there is nothing to ask.
func (c *contest) rest(now time.Time) {
	c.c.back(c)
	c.schedule(now.Add(restTouch))
	c.g.tidyNow()
}

// hand reads what is this gateway's and gives it to workers. It says when to go
// on; 0 if nothing is left.
func (c *contest) hand() time.Duration {
	failures := 0
	g := c.g
	for {
		next, ok, wait := c.nextMine()
		if !ok {
			return wait
		}
		if int(next.Attempts) >= groupAttempts {
			g.giveUp(returned{position: next.Position, attempts: next.Attempts}, DeadUnfinished)
			continue
		}
		v, err := g.p.r.fetch(g.p, streams.Position(next.Position))
		switch {
		case errors.Is(err, errGone):
			g.giveUp(returned{position: next.Position, attempts: next.Attempts}, DeadUnfinished)
		case err != nil:
			failures++
			c.keepMine(next)
			return backoffAfter(failures)
		case !g.giveAgain(&v, next.Position, next.Attempts):
			c.keepMine(next)
			return redeliverRetry
		case next.Attempts > 0:
			g.p.r.stats.Redelivered.Add(1)
		}
	}
}

// nextMine takes the next message to hand out, or says after how long to look
// again. What no worker here would take is given back if another gateway may
// have one.
func (c *contest) nextMine() (next claims.Claim, ok bool, wait time.Duration) {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(c.mine) > 0 {
		next = c.mine[0]
		_, owned := c.owned[next.Position]
		switch {
		case !owned:
		case int(next.Attempts) < groupAttempts && c.elsewhere(g.willing()):
			c.giveFree(next)
		case int(next.Attempts) < groupAttempts && !g.willing():
			return next, false, redeliverRetry
		default:
			c.mine = c.mine[1:]
			return next, true, 0
		}
		c.mine = c.mine[1:]
	}
	c.mine, c.handing = nil, false
	return next, false, 0
}

func (c *contest) keepMine(m claims.Claim) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.mine = append([]claims.Claim{m}, c.mine...)
}

// elsewhere reports whether a message is better given back for all gateways
// than kept here. The group's lock is held, here and below.
func (c *contest) elsewhere(wanted bool) bool {
	return len(c.g.members) == 0 || c.others > 0 && !wanted
}

// passOn gives a message that a worker has not finished to all gateways
// (delivery rule T3). It reports false if there is only this one.
func (c *contest) passOn(back returned) bool {
	if _, owned := c.owned[back.position]; !owned {
		return true // another has it already
	}
	if !c.elsewhere(false) {
		return false
	}
	c.giveFree(claims.Claim{Position: back.position, Attempts: back.attempts})
	return true
}

func (c *contest) giveFree(m claims.Claim) {
	c.freeing = append(c.freeing, m)
	c.schedule(time.Now())
}

// freeAll gives everything back, when the gateway ends.
func (c *contest) freeAll() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	done := c.allAcks()
	for _, f := range c.freeing {
		done[f.Position] = struct{}{}
	}
	for _, back := range c.g.back {
		if _, owned := c.owned[back.position]; owned {
			done[back.position] = struct{}{}
			c.freeing = append(c.freeing, claims.Claim{Position: back.position, Attempts: back.attempts})
		}
	}
	c.g.back = nil
	for position, attempts := range c.owned {
		if _, ok := done[position]; !ok {
			c.freeing = append(c.freeing, claims.Claim{Position: position, Attempts: attempts})
		}
	}
}

// over reports whether nothing is left to be remembered. A round that is under
// way may enter the gateway: a group that was forgotten before the answer would
// live on beside the next one of its address, and give back what that one's
// workers are at, since it does not know it. Both locks are held.
func (c *contest) over(now time.Time) bool {
	c.acks.mu.Lock()
	acks := len(c.acks.list)
	c.acks.mu.Unlock()
	switch {
	case len(c.g.members) > 0 || c.g.leaving > 0 || c.g.givingOut || c.handing || c.c.away(c):
		return false
	case now.Sub(c.g.leftOn) >= returnedFor:
		return true
	case acks > 0 || len(c.freeing) > 0 || len(c.owned) > 0 || len(c.g.back) > 0:
		return false
	}
	return !c.known || c.told && !c.backlog
}
