package task

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// Stats are the counters of a service since it started.
type Stats struct {
	Created, Assigned, Completed, Failed, Cancelled, Rejected, Retried atomic.Uint64
	// Races counts changes that were decided anew because another one was first.
	Races atomic.Uint64
	// Dropped counts chores that found no room and were left to a sweep.
	Dropped atomic.Uint64
}

// Stats returns the counters.
func (s *Service) Stats() *Stats { return &s.stats }

func (c *Stats) count(before, after *store.Task) {
	if after.Attempt > before.Attempt {
		c.Retried.Add(1)
	}
	if before.State == after.State {
		return
	}
	switch after.State {
	case store.TaskAssigned:
		c.Assigned.Add(1)
	case store.TaskCompleted:
		c.Completed.Add(1)
	case store.TaskFailed:
		c.Failed.Add(1)
	case store.TaskCancelled:
		c.Cancelled.Add(1)
	case store.TaskRejected:
		c.Rejected.Add(1)
	}
}

// openTasks is how many tasks of workspaces have not ended, as this gateway
// counts them between two questions to the store. The bound that it guards is so
// kept within what all gateways create in countEvery.
type openTasks struct {
	mu sync.Mutex
	by map[string]*openCount // at most maxCounted; past it all are counted anew
}

type openCount struct {
	n  int
	at time.Time
}

const (
	countEvery = 2 * time.Second
	maxCounted = 10_000
)

func (o *openTasks) add(workspace string)  { o.move(workspace, 1) }
func (o *openTasks) drop(workspace string) { o.move(workspace, -1) }

func (o *openTasks) move(workspace string, by int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.by[workspace]; c != nil {
		c.n += by
	}
}

// known returns the count, if it is not too old.
func (o *openTasks) known(workspace string, now time.Time) (int, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.by[workspace]
	if c == nil || now.Sub(c.at) > countEvery || now.Before(c.at) {
		return 0, false
	}
	return c.n, true
}

func (o *openTasks) set(workspace string, n int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil || len(o.by) >= maxCounted {
		o.by = map[string]*openCount{}
	}
	o.by[workspace] = &openCount{n, now}
}
