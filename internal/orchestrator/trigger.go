package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

// TaskType is the type of tasks that start somebody.
const TaskType = task.TypeStart

const (
	// firstRetry is after how long something is tried again that could not be
	// found out or stored, maxRetry after how long at most; each pause is twice
	// the last.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
	// budgetRetry is when a start that was beyond a budget is tried again.
	budgetRetry = 10 * time.Second
	// maxUnknown is how often it is looked for mail that was not found in time,
	// before it is taken for there.
	maxUnknown = 3
	// restAfter is for how long an identity whose start has failed, or that keeps
	// leaving its mail, is not started again for old mail; a new message starts it
	// at once.
	restAfter = 10 * time.Minute
	// restStarts is after how many starts within that time.
	restStarts = 3
	// leftDelay lets the directory learn that a session has ended.
	leftDelay = 50 * time.Millisecond
	// settles is when the last message may be stored that was sent while the
	// directory of some gateway still had the receiver as held.
	settles = presence.Staleness + 6*time.Second
)

// Armed reports whether anything can be started at all. It costs nothing.
func (s *Service) Armed() bool { return !s.o.Registry.Empty() }

// Waits says that a message for an address has been stored, and that nobody
// here reads it. It does not block.
func (s *Service) Waits(to, sender, workspace string) {
	if _, _, ok := s.startable(to); !ok {
		return
	}
	s.stats.Triggered.Add(1)
	s.looks.add(to, sender, workspace, s.o.Now(), time.Time{})
}

// Left says that the session of an identity has ended and its lease is free. A
// message may have been stored while it was still taken for there (delivery rule
// L6): by this gateway, or, for a while longer, by another one.
func (s *Service) Left(identity string) {
	if _, _, ok := s.startable(identity); !ok {
		return
	}
	now := s.o.Now()
	s.looks.add(identity, "", "", now.Add(leftDelay), now.Add(settles))
}

// startable returns an identity that can be started, and how.
func (s *Service) startable(identity string) (a address.Address, i *store.Implementation, ok bool) {
	if !s.Armed() {
		return a, nil, false
	}
	a, err := address.Parse(identity)
	if err != nil || a.Prefix() != address.PrefixAgent && a.Prefix() != address.PrefixUniqueTask {
		return a, nil, false
	}
	i, ok = s.o.Registry.Find(a.Implementation(), a.Workspace())
	return a, i, ok
}

// runLooks looks at whoever is due.
func (s *Service) runLooks() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		case <-s.looks.wake:
		}
		for {
			list, after := s.looks.take(s.o.Now())
			if len(list) == 0 {
				timer.Reset(min(max(after, 5*time.Millisecond), time.Second))
				break
			}
			s.lookAt(list)
			if s.ctx.Err() != nil {
				return
			}
		}
		if s.looks.overflowed() {
			s.Sweep()
		}
	}
}

// lookAt looks at some.
func (s *Service) lookAt(list []look) {
	mail := s.mailOf(list)
	next := make(chan look, len(list))
	for _, k := range list {
		next <- k
	}
	close(next)
	var all sync.WaitGroup
	for range min(lookers, len(list)) {
		all.Go(func() {
			for k := range next {
				s.looks.done(k.identity, s.o.Now(), s.consider(k, mail))
			}
		})
	}
	all.Wait()
}

// found is what is known of mail.
type found struct {
	unread, unknown map[string]bool
	err             error
}

// mailOf finds out whose mail waits, of those of whom that is not known.
func (s *Service) mailOf(list []look) (f found) {
	var ask []string
	for _, k := range list {
		if k.sender != "" {
			continue
		}
		if held, certain := s.o.Presence.Held(k.identity); !held || !certain {
			ask = append(ask, k.identity)
		}
	}
	if len(ask) == 0 {
		return found{}
	}
	ctx, cancel := s.call()
	defer cancel()
	f.unread, f.unknown, f.err = s.o.Mail.Unread(ctx, ask)
	return f
}

// consider starts an identity if it has to be, and returns after how long it is
// to be looked at again; 0: it is not.
func (s *Service) consider(k look, mail found) time.Duration {
	a, _, ok := s.startable(k.identity)
	if !ok {
		return 0
	}
	held, certain := s.o.Presence.Held(k.identity)
	switch {
	case held && certain:
		return 0 // the end of its session is looked at
	case !certain:
		return backoff(k.tries)
	}
	ctx, cancel := s.call()
	defer cancel()
	if k.sender == "" {
		switch {
		case mail.err != nil:
			return backoff(k.tries)
		case mail.unknown[k.identity] && k.tries < maxUnknown:
			return budgetRetry
		case !mail.unread[k.identity] && !mail.unknown[k.identity]:
			return 0
		}
		if rest, err := s.rest(ctx, k.identity); err != nil {
			return backoff(k.tries)
		} else if rest > 0 {
			return rest
		}
	}
	_, err := s.start(ctx, a, k.sender)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errBudget):
		s.stats.OverBudget.Add(1)
		return budgetRetry
	case s.ctx.Err() == nil:
		s.o.Logger.Warn("a start could not be stored; it is tried again", "identity", k.identity, "error", err)
	}
	return backoff(k.tries)
}

func backoff(tries int) time.Duration {
	return min(firstRetry<<min(tries, 10), maxRetry)
}

// rest is how long an identity is not yet started for old mail.
func (s *Service) rest(ctx context.Context, identity string) (time.Duration, error) {
	now := s.o.Now()
	list, err := s.o.Rows.Tasks(ctx, store.TaskFilter{AssignedTo: identity, Modes: []store.TaskMode{store.TaskStart}, ChangedAfter: now.Add(-restAfter)}, store.TaskPage{}, restStarts)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if last := list[0]; !last.State.Over() || last.State != store.TaskFailed && len(list) < restStarts {
		return 0, nil
	}
	return list[0].ChangedAt.Add(restAfter).Sub(now), nil
}

// start makes the task of a start, if there is none that has not ended. The one
// who has sent the message is its creator: who is told what becomes of it.
func (s *Service) start(ctx context.Context, a address.Address, sender string) (created bool, err error) {
	if err := s.within(ctx, a, sender); err != nil {
		return false, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	spec := task.Spec{}
	now := s.o.Now()
	_, created, err = s.o.Tasks.Create(ctx, store.Task{
		ID: id.String(), Type: TaskType, Workspace: a.Workspace(), Creator: sender, Target: a.String(), Implementation: a.Implementation(),
		Mode: store.TaskStart, RootID: id.String(), MaxAttempts: s.o.MaxAttempts, Spec: spec.Encode(), CreatedAt: now,
		State: store.TaskQueued, Attempt: 1, AssignedTo: a.String(), Launch: a.String(), ChangedAt: now,
	})
	if created {
		s.stats.Started.Add(1)
		s.starter.queued()
	}
	return created, err
}

// errBudget says that there were enough starts for now.
var errBudget = errors.New("orchestrator: enough was started for now")

const budgetWindow = time.Minute

// within returns errBudget if a start is beyond a budget.
func (s *Service) within(ctx context.Context, a address.Address, creator string) error {
	since := s.o.Now().Add(-budgetWindow)
	for _, b := range []struct {
		limit int
		f     store.TaskFilter
	}{
		{s.o.Budgets.Sender, store.TaskFilter{Creator: creator}},
		{s.o.Budgets.Workspace, store.TaskFilter{Workspaces: []string{a.Workspace()}}},
		{s.o.Budgets.Implementation, store.TaskFilter{Workspaces: []string{a.Workspace()}, Implementation: a.Implementation()}},
	} {
		if b.limit <= 0 || b.f.Creator == "" && len(b.f.Workspaces) == 0 {
			continue
		}
		b.f.Modes, b.f.CreatedAfter = []store.TaskMode{store.TaskStart}, since
		n, err := s.o.Rows.CountTasks(ctx, b.f, b.limit)
		if err != nil {
			return err
		}
		if n >= b.limit {
			return errBudget
		}
	}
	return nil
}
