package task

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
)

const (
	// maxPooled is how many tasks of its pool a worker is handed before it has
	// ended some; maxHanded how many of all.
	maxPooled = 16
	maxHanded = 128
	// maxWelcomed is how many workers one question to the store is about.
	maxWelcomed = 200
)

// Worker is a session that tasks may be handed to.
type Worker struct {
	// Identity and Session are who it is; Principal what it may. They are not
	// changed.
	Identity, Session string
	Principal         acl.Principal
	// Implementation is whose pool it works in; empty: in none.
	Implementation string
	// Deliver gives the session a frame, unless too much waits for it or it is
	// about to end. It does not block.
	Deliver func(*aetherv1.DownstreamMessage) bool

	s *Service
	// Guarded by the workers' lock: what it was handed and has not ended.
	handed map[string]store.TaskMode
	left   bool
}

// workers are those of this gateway. Its lock is a leaf.
type workers struct {
	mu    sync.Mutex
	by    map[string]*Worker              // identity
	pools map[string]map[*Worker]struct{} // implementation
	fresh []*Worker                       // to be welcomed; at most as many as have come while the store was slow
	late  []*Worker                       // that left tasks while the store was away, which are handed on later
}

func (w *workers) init() { w.by, w.pools = map[string]*Worker{}, map[string]map[*Worker]struct{}{} }

// Join makes a worker known. It is called when its session can take frames.
func (s *Service) Join(w *Worker) {
	w.s, w.handed = s, map[string]store.TaskMode{}
	s.workers.mu.Lock()
	s.workers.by[w.Identity] = w
	if w.Implementation != "" {
		pool := s.workers.pools[w.Implementation]
		if pool == nil {
			pool = map[*Worker]struct{}{}
			s.workers.pools[w.Implementation] = pool
		}
		pool[w] = struct{}{}
	}
	s.workers.fresh = append(s.workers.fresh, w)
	s.workers.mu.Unlock()
	s.chores.add(chore{kind: choreHello})
}

// Leave says that the worker's session ends. What it was handed is handed to
// others, or waits for it for a while. It does not block.
func (w *Worker) Leave() {
	if w == nil || w.s == nil {
		return
	}
	ws := &w.s.workers
	ws.mu.Lock()
	w.left = true
	if ws.by[w.Identity] == w {
		delete(ws.by, w.Identity)
	}
	if pool := ws.pools[w.Implementation]; pool != nil {
		delete(pool, w)
		if len(pool) == 0 {
			delete(ws.pools, w.Implementation)
		}
	}
	busy := len(w.handed) > 0
	ws.mu.Unlock()
	if busy {
		w.s.chores.add(chore{kind: choreLeft, worker: w})
	}
}

// find returns the worker of an identity, nil if it is not at this gateway.
func (w *workers) find(identity string) *Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[identity]
}

// willing returns the worker of a pool that has the least to do; nil if there is
// none. Those whose id is their own come first: to be handed work is all they
// are for.
func (w *workers) willing(pool store.Pool, missed []string) (best *Worker, rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.pools[pool.Implementation] {
		r, ok := c.rank(pool.Workspace)
		if !ok || slices.Contains(missed, c.Identity) {
			continue
		}
		if best == nil || r < rank || r == rank && c.Identity < best.Identity {
			best, rank = c, r
		}
	}
	return best, rank
}

// rank orders the workers of a pool. The lock is held.
func (w *Worker) rank(workspace string) (rank int, ok bool) {
	if len(w.handed) >= maxPooled || !acl.CoversWorkspace(&w.Principal, workspace) {
		return 0, false
	}
	rank = len(w.handed) * 4
	switch w.Principal.Kind {
	case acl.Task:
	case acl.Service:
		rank++
	case acl.UniqueTask:
		rank += 2
	default:
		rank += 3
	}
	return rank, true
}

// hold notes that a worker is handed a task; false if it has no room, has left,
// or is being handed it already.
func (w *workers) hold(x *Worker, t *store.Task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, has := x.handed[t.ID]; has || x.left || len(x.handed) >= maxHanded {
		return false
	}
	x.handed[t.ID] = t.Mode
	return true
}

func (w *workers) drop(x *Worker, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(x.handed, id)
}

func (w *Worker) gone() bool {
	w.s.workers.mu.Lock()
	defer w.s.workers.mu.Unlock()
	return w.left
}

// settle takes a task from the worker that was handed it and has it no more.
func (w *workers) settle(before, after *store.Task) {
	if before.AssignedTo == "" || !after.State.Over() && after.AssignedTo == before.AssignedTo {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.by[before.AssignedTo]; x != nil {
		delete(x.handed, before.ID)
	}
}

// refill hands out what waits for a worker that has room again.
func (s *Service) refill(t *store.Task) {
	if s.workers.find(t.AssignedTo) == nil {
		return
	}
	switch t.Mode {
	case store.TaskPool:
		s.chores.add(chore{kind: chorePool, pool: store.Pool{Workspace: t.Workspace, Implementation: t.Implementation}})
	case store.TaskTargeted:
		s.chores.add(chore{kind: choreTarget, id: t.AssignedTo})
	}
}

// welcome gives workers that have come what is theirs.
func (s *Service) welcome(ctx context.Context) {
	s.workers.mu.Lock()
	n := min(len(s.workers.fresh), maxWelcomed)
	fresh := slices.Clone(s.workers.fresh[:n])
	s.workers.fresh = append(s.workers.fresh[:0], s.workers.fresh[n:]...)
	more := len(s.workers.fresh) > 0
	s.workers.mu.Unlock()
	if more {
		s.chores.add(chore{kind: choreHello})
	}
	by, pools := map[string]*Worker{}, map[store.Pool]struct{}{}
	var identities []string
	for _, w := range fresh {
		by[w.Identity] = w
		identities = append(identities, w.Identity)
		if w.Implementation != "" && w.Principal.Workspace != "" {
			pools[store.Pool{Workspace: w.Principal.Workspace, Implementation: w.Implementation}] = struct{}{}
		}
	}
	tasks, err := s.o.Store.ActiveTasksOf(ctx, identities, maxWelcomed*maxHanded)
	if err != nil {
		s.troubled("the tasks of workers that came could not be read", err)
	}
	for i := range tasks {
		s.greet(ctx, &tasks[i], by)
	}
	for pool := range pools {
		s.chores.add(chore{kind: chorePool, pool: pool})
	}
}

// greet gives one task to the worker that has come back to it, or has come for
// it.
func (s *Service) greet(ctx context.Context, t *store.Task, by map[string]*Worker) {
	switch w := by[t.AssignedTo]; {
	case w != nil && t.Launch == "":
		s.takeBack(ctx, t, w)
	case by[t.Target] != nil && t.State == store.TaskQueued && t.Mode == store.TaskTargeted && t.DueAt.IsZero():
		s.hand(ctx, *t, by[t.Target])
	}
}

// takeBack gives a task to the session in which its worker has come back.
func (s *Service) takeBack(ctx context.Context, t *store.Task, w *Worker) {
	if !s.workers.hold(w, t) {
		return
	}
	again := false
	stored, err := s.Change(ctx, t.ID, func(t *store.Task) error {
		if t.AssignedTo != w.Identity || t.State.Over() || t.Launch != "" {
			return ErrUnchanged
		}
		again = t.State == store.TaskAssigned && t.Mode != store.TaskSelf && t.HolderSession != w.Session
		if t.HolderSession == w.Session && t.DisconnectedAt.IsZero() {
			return ErrUnchanged
		}
		if !t.DisconnectedAt.IsZero() {
			t.DueAt = wakeAt(t, s.o.Now())
			t.DisconnectedAt = time.Time{}
		}
		s.holder(t, w)
		return nil
	})
	switch {
	case err != nil, stored.AssignedTo != w.Identity, stored.State.Over():
		s.workers.drop(w, t.ID)
		s.troubled("a task could not be given back to its worker", err)
	case again:
		s.deliver(ctx, &stored, w)
	}
	if w.gone() {
		s.chores.add(chore{kind: choreLeft, worker: w})
	}
}

func (s *Service) holder(t *store.Task, w *Worker) {
	t.Holder, t.HolderSession, t.HolderGateway = w.Identity, w.Session, s.o.Presence.Self().ID
}

// leftBehind looks after what a worker had that has gone.
func (s *Service) leftBehind(ctx context.Context, w *Worker) {
	s.workers.mu.Lock()
	var ids []string
	for id := range w.handed {
		ids = append(ids, id)
	}
	s.workers.mu.Unlock()
	slices.Sort(ids)
	for _, id := range ids {
		_, err := s.Change(ctx, id, func(t *store.Task) error {
			if t.HolderSession != w.Session {
				return ErrUnchanged
			}
			return s.abandon(t)
		})
		if err != nil && !errors.Is(err, ErrImpossible) && !errors.Is(err, store.ErrNotFound) {
			// The store is away: a sweep tries again.
			s.troubled("what a worker has left could not be handed on", err)
			s.workers.later(w)
			return
		}
	}
}

// later has it looked after with the next sweep what a worker has left.
func (w *workers) later(x *Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, x)
}

// overdue takes those whose turn it is now.
func (w *workers) overdue() []*Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.late
	w.late = nil
	return late
}

// abandon is what becomes of a task whose worker has gone: one that was not
// begun is handed on, one that runs waits for the worker for a while.
func (s *Service) abandon(t *store.Task) error {
	now := s.o.Now()
	switch {
	case t.Launch != "", t.State.Over(), t.State == store.TaskQueued:
		return ErrUnchanged
	case t.State == store.TaskAssigned && t.Mode != store.TaskSelf:
		return Move(t, Back, "its worker has gone", now)
	case t.State == store.TaskRunning && t.DisconnectedAt.IsZero():
		t.DisconnectedAt, t.DueAt = now, now.Add(s.o.Grace)
		return nil
	}
	return ErrUnchanged
}
