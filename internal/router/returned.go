package router

import (
	"errors"
	"slices"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// groupAttempts is how often a message is given to workers.
	groupAttempts = 3
	// returnedFor is how long an unfinished message waits for a worker.
	returnedFor = 10 * time.Minute
	// maxReturned bounds what a group keeps of messages that a worker left
	// unfinished; past it the newest are given up, counted.
	maxReturned = 10_000
)

// returned is a message that a worker did not finish.
type returned struct {
	position   uint64
	attempts   uint8
	due, until time.Time
}

// giveBack hands an unfinished message to another worker after a pause.
func (g *group) giveBack(position uint64, attempts uint8, after time.Duration) {
	now := time.Now()
	back := returned{position, attempts, now.Add(after), now.Add(returnedFor)}
	g.mu.Lock()
	full := int(attempts) >= groupAttempts || len(g.back) >= maxReturned
	first := len(g.back) == 0 && !g.givingOut
	if !full {
		i, _ := slices.BinarySearchFunc(g.back, back, func(a, b returned) int { return a.due.Compare(b.due) })
		g.back = slices.Insert(g.back, i, back)
		g.givingOut = true
	}
	g.mu.Unlock()
	switch {
	case int(attempts) >= groupAttempts:
		g.giveUp(back, DeadUnfinished)
	case full:
		g.giveUp(back, DeadUnclaimed)
	case first:
		g.returned.add(after, g.giveOut)
	}
}

// giveOut hands returned messages to workers, and says when to go on; 0 if none
// is left. It is the group's only task.
func (g *group) giveOut() time.Duration {
	failures := 0
	g.giveUpLate(time.Now())
	for {
		back, after, ok := g.nextReturned(time.Now())
		if !ok {
			return after
		}
		v, err := g.p.r.fetch(g.p, streams.Position(back.position))
		switch {
		case errors.Is(err, errGone):
			g.giveUp(back, DeadUnclaimed)
		case err != nil:
			failures++
			g.keep(back)
			return backoffAfter(failures)
		case !g.giveAgain(&v, back.position, back.attempts):
			g.keep(back)
			return redeliverRetry
		default:
			g.p.r.stats.Redelivered.Add(1)
		}
	}
}

// giveUpLate gives up what no worker has come for in time. The longest waiting
// need not be the first: what was kept goes to the front, in whatever order.
func (g *group) giveUpLate(now time.Time) {
	var late []returned
	g.mu.Lock()
	g.back = slices.DeleteFunc(g.back, func(back returned) bool {
		over := now.After(back.until)
		if over {
			late = append(late, back)
		}
		return over
	})
	g.mu.Unlock()
	for _, back := range late {
		g.giveUp(back, DeadUnclaimed)
	}
}

// nextReturned takes the next message for which there is a worker, or says
// after how long to look again.
func (g *group) nextReturned(now time.Time) (back returned, after time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.back) > 0 {
		if after = g.back[0].due.Sub(now); after > 0 {
			return back, after, false
		}
		if g.contest == nil || !g.contest.passOn(g.back[0]) {
			break
		}
		g.popReturned()
	}
	if len(g.back) == 0 {
		g.givingOut, g.back = false, nil
		return back, 0, false
	}
	if !g.willing() {
		return back, redeliverRetry, false
	}
	return g.popReturned(), 0, true
}

func (g *group) popReturned() returned {
	back := g.back[0]
	g.back = g.back[1:]
	return back
}

// giveUp puts a message into the dead-letter log; it is done when it is there
// (delivery rule S8). No lock is held.
func (g *group) giveUp(back returned, reason string) {
	g.p.r.giveUp(letter{g.p, g.topic, int64(back.position), back.attempts, reason}, func() {
		if g.contest != nil {
			g.contest.acked(back.position)
		}
	})
}

// keep puts a message back that could not be given.
func (g *group) keep(back returned) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back = slices.Insert(g.back, 0, back)
}
