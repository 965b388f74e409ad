package task

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

const (
	// maxDue is how many due tasks one round handles.
	maxDue = 200
	// serveEvery, gatewaysEvery and expireEvery are in sweeps.
	serveEvery    = 3
	gatewaysEvery = 3
	expireEvery   = 600
	// untoldAfter is when a creator is told once more whose notice is not known to
	// have been stored.
	untoldAfter = 15 * time.Second
)

// tick looks after what is due, until the service ends.
func (s *Service) tick() {
	tick := time.NewTicker(s.o.Sweep)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
		s.writeBeats(ctx)
		s.writeTold(ctx)
		s.tellReported()
		for _, w := range s.workers.overdue() {
			s.chores.add(chore{kind: choreLeft, worker: w})
		}
		s.pollSubscribed(ctx)
		if n%serveEvery == 0 {
			s.serve(ctx)
		}
		if s.elected() {
			s.sweep(ctx, n)
		}
		cancel()
	}
}

// elected reports whether this is the gateway that sweeps: of those that live
// the one with the lowest id. While that is not certain there may be several, or
// none for a moment; transitions are guarded all the same.
func (s *Service) elected() bool {
	self := s.o.Presence.Self().ID
	list, certain := s.o.Presence.Instances()
	if !certain {
		return true
	}
	for _, i := range list {
		if i.ID < self {
			return false
		}
	}
	return true
}

// sweep is what one gateway does for all.
func (s *Service) sweep(ctx context.Context, n int) {
	for {
		due, err := s.o.Store.DueTasks(ctx, s.o.Now(), maxDue)
		if err != nil {
			s.troubled("due tasks could not be read", err)
			return
		}
		for i := range due {
			s.due(ctx, &due[i])
		}
		if len(due) < maxDue || ctx.Err() != nil {
			break
		}
	}
	if n%gatewaysEvery == 0 {
		s.orphans(ctx)
	}
	if n%serveEvery == 0 {
		s.makeUp(ctx)
	}
	if n%expireEvery == 1 {
		_, err := s.o.Store.ExpireTasks(ctx, s.o.Now().Add(-s.o.Retention))
		s.troubled("old tasks could not be removed", err)
	}
}

// due handles a task whose time has come.
func (s *Service) due(ctx context.Context, t *store.Task) {
	if t.Launch != "" {
		if s.starter() != nil {
			s.starter().Due(ctx, *t)
		}
		return
	}
	queue := false
	stored, err := s.Change(ctx, t.ID, func(t *store.Task) error {
		now := s.o.Now()
		if t.DueAt.IsZero() || t.DueAt.After(now) {
			return ErrUnchanged
		}
		queue = false
		switch {
		case t.State == store.TaskQueued: // its backoff is over
			t.DueAt, queue = time.Time{}, true
			return nil
		case !t.DisconnectedAt.IsZero() && !t.State.Over():
			return s.fail(t, "its worker did not come back in time")
		}
		return s.awaited(t, now)
	})
	s.troubled("a due task could not be moved", err)
	if err == nil && queue {
		s.queue(&stored)
	}
}

// orphans looks after tasks that gateways held which live no longer.
func (s *Service) orphans(ctx context.Context) {
	held, err := s.o.Store.TaskGateways(ctx)
	if err != nil {
		s.troubled("gateways that hold tasks could not be read", err)
		return
	}
	list, certain := s.o.Presence.Instances()
	if !certain {
		return
	}
	live := map[string]bool{}
	for _, i := range list {
		live[i.ID] = true
	}
	for _, gateway := range held {
		if !live[gateway] {
			s.orphansOf(ctx, gateway)
		}
	}
}

func (s *Service) orphansOf(ctx context.Context, gateway string) {
	var page store.TaskPage
	for {
		tasks, err := s.o.Store.Tasks(ctx, store.TaskFilter{HolderGateway: gateway, Active: true}, page, maxDue)
		if err != nil {
			s.troubled("tasks of a gateway that is gone could not be read", err)
			return
		}
		for i := range tasks {
			t := &tasks[i]
			page = store.TaskPage{CreatedAt: t.CreatedAt, ID: t.ID}
			if t.Launch != "" {
				if s.starter() != nil {
					s.starter().Lost(ctx, *t)
				}
				continue
			}
			_, err := s.Change(ctx, t.ID, func(t *store.Task) error {
				if t.HolderGateway != gateway {
					return ErrUnchanged
				}
				return s.abandon(t)
			})
			s.troubled("a task of a gateway that is gone could not be handed on", err)
		}
		if len(tasks) < maxDue || ctx.Err() != nil {
			return
		}
	}
}

// serve hands out what waits for workers of this gateway and was not handed out
// when it came, because a notice was lost or something was away.
func (s *Service) serve(ctx context.Context) {
	s.workers.mu.Lock()
	idle := len(s.workers.pools) == 0
	s.workers.mu.Unlock()
	if idle {
		return
	}
	var after store.Pool
	for range maxRounds {
		pools, err := s.o.Store.QueuedPools(ctx, after, maxDue)
		if err != nil {
			s.troubled("queues of pools could not be read", err)
			return
		}
		for _, p := range pools {
			if w, _ := s.workers.willing(p, nil); w != nil {
				s.chores.add(chore{kind: chorePool, pool: p})
			}
			after = p
		}
		if len(pools) < maxDue {
			return
		}
	}
}

// maxRounds bounds how many pages of queues one sweep reads.
const maxRounds = 20

// makeUp hands out, or has started, what is queued for identities, tells
// creators who may not have been told, and ends what has waited too long.
func (s *Service) makeUp(ctx context.Context) {
	after := ""
	for range maxRounds {
		targets, err := s.o.Store.QueuedTargets(ctx, after, maxDue)
		if err != nil {
			s.troubled("queues of identities could not be read", err)
			return
		}
		for _, target := range targets {
			after = target
			held, certain := s.o.Presence.Held(target)
			to, ok := addressOf(target)
			if held || ok && certain && s.starter() != nil && s.starter().Launchable(to.Workspace(), to.Implementation()) {
				s.chores.add(chore{kind: choreTarget, id: target})
			}
		}
		if len(targets) < maxDue {
			break
		}
	}
	untold, err := s.o.Store.UntoldTasks(ctx, s.o.Now().Add(-untoldAfter), maxDue)
	s.troubled("what creators were not told could not be read", err)
	for i := range untold {
		s.tellAgain(&untold[i])
	}
	old, err := s.o.Store.QueuedTasks(ctx, store.TaskFilter{CreatedBefore: s.o.Now().Add(-s.o.Retention)}, maxDue)
	s.troubled("tasks that wait too long could not be read", err)
	for i := range old {
		_, err := s.Change(ctx, old[i].ID, func(t *store.Task) error {
			if t.State != store.TaskQueued || s.o.Now().Sub(t.ChangedAt) < s.o.Retention {
				return ErrUnchanged
			}
			return Move(t, Fail, "no worker has taken it in time", s.o.Now())
		})
		s.troubled("a task that waits too long could not be ended", err)
	}
}
