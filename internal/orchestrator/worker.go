package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

const (
	// checkInterval is how often it is looked whether the tasks of the workers
	// that are connected here go on: how late they may learn that they are over.
	checkInterval = time.Second
	// checkPage is how many are looked at together.
	checkPage = 500
	// maxEnded bounds the ends of workers' sessions that are yet to be stored;
	// past it one is found out about when its gateway is looked after.
	maxEnded = 1 << 14
)

// Worker is a session of an identity that may have been started.
type Worker struct {
	Session, Identity string
	// Run is what its task token is for; zero: it has another credential.
	Run auth.TaskRun
	// Deliver gives it a task that it was started for. It does not block; nil: it
	// takes none.
	Deliver func(*aetherv1.TaskAssignment) bool
	// End ends the session because its task is over. It does not block.
	End func(reason string)
}

// workers are the sessions here whose tasks must go on, and the ends of sessions
// that are yet to be stored.
type workers struct {
	mu    sync.Mutex
	by    map[string]*Worker // by session
	ended map[string]ended   // by session; at most maxEnded
	wake  chan struct{}
}

type ended struct {
	worker Worker
	clean  bool
	tries  int
	due    time.Time
}

// Find implements [auth.TaskTokens].
func (s *Service) Find(ctx context.Context, hash string) (auth.TaskRun, auth.Claims, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t, ok, err := s.o.Rows.TaskByToken(ctx, hash)
	switch {
	case err != nil:
		return auth.TaskRun{}, auth.Claims{}, fmt.Errorf("%w: %w", auth.ErrKeysAway, err)
	case !ok || t.State.Over() || t.TokenHash != hash:
		return auth.TaskRun{}, auth.Claims{}, auth.ErrTaskToken
	}
	identity := workerOf(&t)
	a, err := address.Parse(identity)
	if err != nil {
		return auth.TaskRun{}, auth.Claims{}, auth.ErrTaskToken
	}
	run := auth.TaskRun{Task: t.ID, Attempt: t.Attempt}
	claims := auth.Claims{
		Subject: identity, Workspaces: []string{a.Workspace()}, Impl: a.Implementation(), Spec: a.Specifier(), IssuedAt: t.ChangedAt,
	}
	switch a.Prefix() {
	case address.PrefixAgent:
		claims.Kind = auth.KindAgent
	case address.PrefixUniqueTask:
		claims.Kind = auth.KindTask
	case address.PrefixTask:
		claims.Kind, claims.Spec, run.Specifier = auth.KindTask, "", a.Specifier()
	default:
		return auth.TaskRun{}, auth.Claims{}, auth.ErrTaskToken
	}
	return run, claims, nil
}

// workerOf is the identity that a task's token is for.
func workerOf(t *store.Task) string {
	if t.Launch != "" {
		return t.Launch
	}
	if spec, err := task.DecodeSpec(t.Spec); err == nil && spec.TokenFor != "" {
		return spec.TokenFor
	}
	return t.AssignedTo
}

// Came says that a session has begun. With a task token its run must go on, else
// the error wraps [auth.ErrTaskToken], or is the store's. Without one, a start of
// the identity has been done by somebody else: that is found out in the
// background.
func (s *Service) Came(ctx context.Context, w Worker) error {
	if w.Run.Task == "" {
		if _, _, ok := s.startable(w.Identity); ok {
			s.spawn(func() { s.arrived(w) })
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t, err := s.o.Tasks.Change(ctx, w.Run.Task, func(t *store.Task) error {
		if t.Attempt != w.Run.Attempt || t.TokenHash == "" || workerOf(t) != w.Identity {
			return errOver
		}
		return s.run(t, &w)
	})
	switch {
	case goneOn(err):
		return auth.ErrTaskToken
	case err != nil:
		return err
	}
	s.stats.Arrived.Add(1)
	s.starter.settled(w.Run.Task)
	s.workers.add(w)
	s.handOver(ctx, &t, &w)
	return nil
}

// handOver gives a worker that has come the task that is more than its start.
func (s *Service) handOver(ctx context.Context, t *store.Task, w *Worker) {
	if t.Mode == store.TaskStart || t.Launch == "" || w.Deliver == nil {
		return
	}
	payload, err := s.o.Rows.TaskPayload(ctx, t.ID)
	if err != nil {
		s.o.Logger.Warn("the payload of a task could not be read; its worker gets it without", "task", t.ID, "error", err)
	}
	w.Deliver(handed(t, payload))
}

// run makes a task a worker's that has come.
func (s *Service) run(t *store.Task, w *Worker) error {
	now := s.o.Now()
	switch t.State {
	case store.TaskAssigned, store.TaskStarting:
		if err := task.Move(t, task.Run, "", now); err != nil {
			return err
		}
	case store.TaskQueued:
		return errOver
	default:
		if t.State.Over() {
			return errOver
		}
		t.DisconnectedAt, t.DueAt = time.Time{}, time.Time{}
	}
	t.AssignedTo, t.Missed = w.Identity, ""
	t.Holder, t.HolderSession, t.HolderGateway = w.Identity, w.Session, s.o.Presence.Self().ID
	return nil
}

// arrived makes the start of an identity run that has come with a credential of
// its own.
func (s *Service) arrived(w Worker) {
	ctx, cancel := s.call()
	defer cancel()
	list, err := s.o.Rows.Tasks(ctx, store.TaskFilter{Launch: w.Identity, Active: true}, store.TaskPage{}, 1)
	if err != nil || len(list) == 0 {
		return // its deadline finds out
	}
	t, err := s.o.Tasks.Change(ctx, list[0].ID, func(t *store.Task) error {
		if t.State == store.TaskQueued { // nobody had to start it
			if err := task.Move(t, task.Assign, "", s.o.Now()); err != nil {
				return err
			}
		}
		return s.run(t, &w)
	})
	if err != nil {
		return
	}
	s.stats.Arrived.Add(1)
	s.starter.settled(t.ID)
	w.Run = auth.TaskRun{Task: t.ID, Attempt: t.Attempt}
	// Its own credential goes on when the task is over.
	w.End = nil
	s.workers.add(w)
	s.handOver(ctx, &t, &w)
}

func (l *workers) add(w Worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]*Worker{}
	}
	if l.ended[w.Session].worker.Session != "" {
		return // it has left already
	}
	l.by[w.Session] = &w
}

// Went says that a session that was given to Came has ended and its lease is
// free. Clean is an end that the worker wanted: it has done its work.
func (s *Service) Went(w Worker, clean bool) {
	l := &s.workers
	l.mu.Lock()
	known := l.by[w.Session]
	delete(l.by, w.Session)
	if known != nil {
		w.Run = known.Run
	}
	if w.Run.Task != "" && len(l.ended) < maxEnded {
		if l.ended == nil {
			l.ended = map[string]ended{}
		}
		l.ended[w.Session] = ended{worker: w, clean: clean, due: s.o.Now()}
	}
	l.mu.Unlock()
	if w.Run.Task != "" {
		nudge(l.wake)
	}
	s.Left(w.Identity)
}

// runWorkers stores the ends of sessions, and ends sessions whose tasks are over.
func (s *Service) runWorkers() {
	last := time.Now()
	s.every(checkInterval, s.workers.wake, func() {
		s.storeEnds()
		if time.Since(last) >= checkInterval/2 {
			last = time.Now()
			s.checkWorkers()
		}
	})
}

// storeEnds stores what is due of the ends of sessions.
func (s *Service) storeEnds() {
	l, now := &s.workers, s.o.Now()
	l.mu.Lock()
	var due []ended
	for _, e := range l.ended {
		if !now.Before(e.due) {
			due = append(due, e)
		}
	}
	l.mu.Unlock()
	slices.SortFunc(due, func(a, b ended) int { return a.due.Compare(b.due) })
	for _, e := range due {
		err := s.storeEnd(&e)
		l.mu.Lock()
		if err == nil {
			delete(l.ended, e.worker.Session)
		} else {
			e.due = s.o.Now().Add(backoff(e.tries))
			e.tries++
			l.ended[e.worker.Session] = e
		}
		l.mu.Unlock()
		if err != nil {
			return // the store is away
		}
	}
}

// storeEnd makes of the end of a worker's session the end of its task, or the
// beginning of its grace. What has gone on meanwhile is left as it is.
func (s *Service) storeEnd(e *ended) error {
	ctx, cancel := s.call()
	defer cancel()
	_, err := s.o.Tasks.Change(ctx, e.worker.Run.Task, func(t *store.Task) error {
		if t.HolderSession != e.worker.Session || t.Attempt != e.worker.Run.Attempt || t.State.Over() {
			return task.ErrUnchanged
		}
		now := s.o.Now()
		if e.clean {
			return task.Move(t, task.Complete, "", now)
		}
		return s.vanish(t, now)
	})
	if goneOn(err) {
		return nil
	}
	return err
}

// vanish begins the grace of a task whose worker has gone.
func (s *Service) vanish(t *store.Task, now time.Time) error {
	if t.State != store.TaskRunning {
		return task.ErrUnchanged
	}
	t.DisconnectedAt, t.DueAt = now, now.Add(max(s.o.GraceWindow, time.Millisecond))
	return nil
}

// checkWorkers ends the sessions whose tasks are over, or at another attempt:
// their tokens are worth nothing.
func (s *Service) checkWorkers() {
	l := &s.workers
	byTask := map[string]*Worker{}
	l.mu.Lock()
	for _, w := range l.by {
		byTask[w.Run.Task] = w
	}
	l.mu.Unlock()
	ids := make([]string, 0, len(byTask))
	for id := range byTask {
		ids = append(ids, id)
	}
	for page := range slices.Chunk(ids, checkPage) {
		ctx, cancel := s.call()
		list, err := s.o.Rows.Tasks(ctx, store.TaskFilter{IDs: page}, store.TaskPage{}, checkPage)
		cancel()
		if err != nil {
			return // the next round
		}
		goesOn := make(map[string]bool, len(list))
		for i := range list {
			t := &list[i]
			w := byTask[t.ID]
			goesOn[t.ID] = !t.State.Over() && t.Attempt == w.Run.Attempt && t.TokenHash != ""
		}
		for _, id := range page {
			if goesOn[id] {
				continue
			}
			w := byTask[id]
			l.mu.Lock()
			if l.by[w.Session] == w {
				delete(l.by, w.Session)
			}
			l.mu.Unlock()
			if w.End != nil {
				w.End("the task has ended, or goes on in another attempt")
			}
		}
	}
}

// Context is what a worker that was started is told of its task, by the keys of
// ConfigSnapshot.task_context. It is empty for sessions without a task token.
func (s *Service) Context(ctx context.Context, run auth.TaskRun) (map[string]string, error) {
	if run.Task == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t, ok, err := s.o.Rows.Task(ctx, run.Task)
	if err != nil || !ok {
		return nil, err
	}
	i, _ := s.o.Registry.Find(t.Implementation, t.Workspace)
	return contextOf(&t, i), nil
}

func contextOf(t *store.Task, i *store.Implementation) map[string]string {
	c := map[string]string{}
	spec, err := task.DecodeSpec(t.Spec)
	if err != nil {
		spec = &task.Spec{}
	}
	for k, v := range spec.Metadata {
		c[k] = v
	}
	for k, v := range params(t, i) {
		c["lp."+k] = v
	}
	c["task_id"], c["workspace"], c["implementation"], c["profile"] = t.ID, t.Workspace, t.Implementation, t.Profile
	if a, err := address.Parse(workerOf(t)); err == nil {
		c["specifier"] = a.Specifier()
	}
	if t.Grant.SubjectType == "user" {
		c["user"] = t.Grant.SubjectID
	} else if a, err := address.Parse(t.Creator); err == nil && a.Prefix() == address.PrefixUser {
		c["user"] = a.UserID()
	}
	if t.Grant.RootSubjectType == "user" {
		c["root_user"] = t.Grant.RootSubjectID
	}
	return c
}
