package task

import (
	"context"
	"sync"

	"github.com/aether-gateway/gateway/internal/store"
)

// choreKind is what is to be done beside requests.
type choreKind uint8

const (
	chorePool     choreKind = iota + 1 // hand queued tasks of a pool out
	choreTarget                        // hand queued tasks of an identity out
	choreSelf                          // give a task back to its creator
	choreWake                          // a task has ended: look after those that wait for it
	choreCheck                         // look whether what a task waits for has ended
	choreStranded                      // an identity could not be started: its tasks fail
	choreHello                         // workers have come: give them what is theirs
	choreLeft                          // a worker has gone
	choreGrant                         // the grant of a task is for another one, or for nobody
)

// chore is one thing to do. Equal ones that wait are done once.
type chore struct {
	kind   choreKind
	id     string
	pool   store.Pool
	worker *Worker
	why    string
}

const (
	// maxChores bounds what waits; what is beyond is left to the next sweep.
	maxChores = 100_000
	// maxChoring is how many are done at a time: fewer than a store has
	// connections.
	maxChoring = 3
)

// chores are done in the background, in order, by goroutines that are there only
// while there is something to do.
type chores struct {
	s *Service

	mu      sync.Mutex
	waiting []chore // at most maxChores
	there   map[chore]struct{}
	running int
	closed  bool
	wg      sync.WaitGroup
}

func (c *chores) init(s *Service) { c.s, c.there = s, map[chore]struct{}{} }

// add has something done soon. It does not block.
func (c *chores) add(x chore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, waits := c.there[x]; waits || c.closed {
		return
	}
	if len(c.waiting) >= maxChores {
		c.s.stats.Dropped.Add(1)
		return
	}
	c.there[x] = struct{}{}
	c.waiting = append(c.waiting, x)
	if c.running < maxChoring {
		c.running++
		c.wg.Go(c.work)
	}
}

func (c *chores) next() (chore, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.closed {
		c.running--
		c.waiting = nil
		return chore{}, false
	}
	x := c.waiting[0]
	c.waiting[0] = chore{}
	c.waiting = c.waiting[1:]
	delete(c.there, x)
	return x, true
}

func (c *chores) work() {
	for {
		x, ok := c.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(c.s.ctx, storeTimeout)
		c.s.do(ctx, x)
		cancel()
	}
}

func (c *chores) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}

// do does one chore.
func (s *Service) do(ctx context.Context, x chore) {
	switch x.kind {
	case chorePool:
		s.servePool(ctx, x.pool)
	case choreTarget:
		s.serveTarget(ctx, x.id)
	case choreSelf:
		s.takeSelf(ctx, x.id)
	case choreWake:
		s.wakeWaiters(ctx, x.id)
	case choreCheck:
		s.checkWait(ctx, x.id)
	case choreStranded:
		s.strand(ctx, x.id, x.why)
	case choreHello:
		s.welcome(ctx)
	case choreGrant:
		s.moveGrant(ctx, x.id)
	case choreLeft:
		s.leftBehind(ctx, x.worker)
	}
}
