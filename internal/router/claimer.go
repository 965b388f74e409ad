package router

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/claims"
	"github.com/aether-gateway/gateway/internal/presence"
)

const (
	// claimAtOnce is for how many addresses messages are claimed in one
	// exchange.
	claimAtOnce = 128
	// claimTouch is how often a gateway with workers looks after an address at
	// least, so that what another one left or lost is found; restTouch is the
	// same without workers.
	claimTouch = time.Second
	restTouch  = 2 * time.Second
	// claimRetry is the pause after a failed exchange.
	claimRetry = 250 * time.Millisecond
	// ackDelay is how long acknowledgements of workers are collected.
	ackDelay = 100 * time.Millisecond
	// lastClaims bounds the exchange with which a gateway ends.
	lastClaims = time.Second
	// kindFree is the notice that a message was given back (delivery rule T3).
	kindFree = "tb.free"
)

// claimer makes the exchanges with other gateways about the messages of
// workers: those of all addresses that are due, in one round trip, from one
// goroutine and under no lock.
type claimer struct {
	r      *Router
	claims claims.Claims
	self   string
	serial uint64 // of rounds; the goroutine's
	failed bool   // the last exchange; the goroutine's

	mu   sync.Mutex // below all others
	heap contestHeap
	wake chan struct{}
}

func newClaimer(r *Router, c claims.Claims, self string) *claimer {
	return &claimer{r: r, claims: c, self: self, wake: make(chan struct{}, 1)}
}

// schedule makes a contest's next round come at a time, or earlier.
func (c *claimer) schedule(of *contest, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case of.index < 0:
		of.due = at
		heap.Push(&c.heap, of)
	case at.Before(of.due):
		of.due = at
		heap.Fix(&c.heap, of.index)
	default:
		return
	}
	if of.index == 0 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// remove forgets a contest.
func (c *claimer) remove(of *contest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.index >= 0 {
		heap.Remove(&c.heap, of.index)
	}
}

// next returns the contests that are due, or how long none is.
func (c *claimer) next(now time.Time) (due []*contest, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.heap) > 0 && len(due) < claimAtOnce {
		if wait = c.heap[0].due.Sub(now); wait > 0 {
			return due, wait
		}
		of := heap.Pop(&c.heap).(*contest)
		of.away = true
		due = append(due, of)
	}
	return due, time.Hour
}

// back ends a contest's round.
func (c *claimer) back(of *contest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.away = false
}

// away reports whether a contest's round is not over.
func (c *claimer) away(of *contest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return of.away
}

func (c *claimer) run(ctx context.Context) {
	stop := c.r.presence.Listen(kindFree, func(n presence.Notice) { c.freed(string(n.Payload)) })
	defer stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	swept := time.Now()
	for ctx.Err() == nil {
		due, wait := c.next(time.Now())
		if len(due) > 0 {
			c.exchange(ctx, due)
			continue
		}
		if time.Since(swept) > time.Minute {
			c.sweep(ctx)
			swept = time.Now()
		}
		timer.Reset(min(wait, time.Minute))
		select {
		case <-timer.C:
		case <-c.wake:
		case <-ctx.Done():
		}
	}
	c.last()
}

func (c *claimer) exchange(ctx context.Context, due []*contest) {
	now := time.Now()
	rounds := make([]*claims.Round, 0, len(due))
	asking := due[:0]
	for _, of := range due {
		round := of.ask(now)
		if round == nil {
			of.rest(now)
			continue
		}
		c.serial++
		round.Serial = c.serial
		rounds, asking = append(rounds, round), append(asking, of)
	}
	if len(rounds) == 0 {
		return
	}
	err := c.claims.Do(ctx, rounds)
	c.tell(ctx, err)
	now = time.Now()
	for i, of := range asking {
		if err != nil {
			of.failed(rounds[i], now)
			continue
		}
		round := rounds[i]
		of.answer(round, now)
		if len(round.Free) > 0 && round.Answer.Status == claims.OK && round.Answer.Others > 0 {
			// A lost notice costs claimTouch.
			_ = c.r.presence.Send("", kindFree, []byte(round.Topic))
		}
	}
}

func (c *claimer) tell(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !c.failed:
		c.r.log.Warn("messages of competing workers wait: they cannot be claimed", "error", err)
	case err == nil && c.failed:
		c.r.log.Info("messages of competing workers are claimed again")
	}
	c.failed = err != nil
}

// freed hears that a message of an address waits for a worker.
func (c *claimer) freed(topic string) {
	p := c.r.parts[c.r.placement.Of(topic)]
	p.mu.Lock()
	t := p.targets[topic]
	p.mu.Unlock()
	if t != nil && t.workers != nil && t.workers.contest != nil {
		t.workers.contest.freed()
	}
}

func (c *claimer) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		lost, err := c.claims.Sweep(ctx)
		if err != nil || len(lost) == 0 {
			return
		}
		for _, l := range lost {
			c.r.giveUp(letter{c.r.parts[c.r.placement.Of(l.Topic)], l.Topic, int64(l.Position), l.Attempts, DeadUnclaimed}, nil)
		}
	}
}

// last gives back all that this gateway has open, when its sessions have
// ended.
func (c *claimer) last() {
	ctx, cancel := context.WithTimeout(context.Background(), lastClaims)
	defer cancel()
	for ctx.Err() == nil {
		due, _ := c.next(time.Now().Add(24 * time.Hour))
		if len(due) == 0 {
			return
		}
		var rounds []*claims.Round
		for _, of := range due {
			of.freeAll()
			if round := of.ask(time.Now()); round != nil {
				c.serial++
				round.Serial = c.serial
				rounds = append(rounds, round)
			}
		}
		if len(rounds) > 0 && c.claims.Do(ctx, rounds) != nil {
			return
		}
	}
}

// contestHeap has the first that is due at the top.
type contestHeap []*contest

func (h contestHeap) Len() int           { return len(h) }
func (h contestHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h contestHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *contestHeap) Push(x any) {
	c := x.(*contest)
	c.index = len(*h)
	*h = append(*h, c)
}

func (h *contestHeap) Pop() any {
	old := *h
	last := len(old) - 1
	c := old[last]
	old[last] = nil
	*h = old[:last]
	c.index = -1
	return c
}
