package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

const (
	// orphansInterval is how late it is noticed that an orchestrator stays away.
	orphansInterval = 100 * time.Millisecond
	// leastGrace is the time between two looks whether somebody is still there.
	leastGrace = 250 * time.Millisecond
	// duePage is how many are looked at together.
	duePage = 256
	// resumeWait is how long an orchestrator whose connection was lost may take to
	// come back before others get what it had in hand.
	resumeWait = time.Second
)

// orphans are orchestrators that have gone with starts in hand, by identity.
type orphans struct {
	mu sync.Mutex
	by map[string]time.Time // when it is looked after what they had
}

func (o *orphans) add(identity string, due time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[string]time.Time{}
	}
	o.by[identity] = due
}

// take returns those that are due.
func (o *orphans) take(now time.Time) (list []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for identity, due := range o.by {
		if !now.Before(due) {
			list = append(list, identity)
			delete(o.by, identity)
		}
	}
	return list
}

// runOrphans looks after what orchestrators had in hand that stay away.
func (s *Service) runOrphans() {
	s.every(orphansInterval, nil, func() {
		for _, identity := range s.orphans.take(s.o.Now()) {
			if err := s.bereave(identity); err != nil {
				s.orphans.add(identity, s.o.Now().Add(firstRetry))
			}
		}
	})
}

// bereave gives what an orchestrator had in hand to another one, unless it is
// there again.
func (s *Service) bereave(identity string) error {
	held, certain := s.o.Presence.Held(identity)
	switch {
	case held && certain:
		return nil
	case !certain:
		return errors.New("it is not known who is there")
	}
	ctx, cancel := s.call()
	defer cancel()
	list, err := s.o.Rows.Tasks(ctx, store.TaskFilter{Holder: identity, Launches: true, States: handedOut, Active: true}, store.TaskPage{}, duePage)
	if err != nil {
		return err
	}
	for i := range list {
		if err := s.takeBack(ctx, list[i].ID, identity, "the orchestrator has gone"); err != nil {
			return err
		}
	}
	if len(list) == duePage {
		return errors.New("there is more")
	}
	return nil
}

// takeBack makes a start that an orchestrator has a new attempt, at once.
func (s *Service) takeBack(ctx context.Context, id, holder, why string) error {
	_, err := s.o.Tasks.Change(ctx, id, func(t *store.Task) error {
		if t.Holder != holder || !slices.Contains(handedOut, t.State) {
			return task.ErrUnchanged
		}
		missed := miss(t)
		if err := task.FailOrRetry(t, why, s.o.Now(), 0); err != nil {
			return err
		}
		if t.State == store.TaskQueued {
			t.DueAt, t.Missed = time.Time{}, missed
		}
		return nil
	})
	return s.tookBack(id, err)
}

func (s *Service) tookBack(id string, err error) error {
	s.starter.settled(id)
	s.starter.queued()
	if goneOn(err) {
		return nil
	}
	return err
}

// miss adds the one that has a start to those who had it in vain.
func miss(t *store.Task) string {
	list := strings.Fields(t.Missed)
	if t.Holder != "" && !slices.Contains(list, t.Holder) && !strings.Contains(t.Holder, " ") {
		list = append(list, t.Holder)
	}
	if len(list) > maxMissed {
		list = list[len(list)-maxMissed:]
	}
	return strings.Join(list, " ")
}

// Due handles a start whose time is over: a worker that has not come by the
// deadline, or not come back within its grace, ends the attempt; a queued start
// is to be tried again. It implements [task.Starter], and so is called again
// if it fails.
func (s *Service) Due(ctx context.Context, due store.Task) {
	t, err := s.o.Tasks.Change(ctx, due.ID, func(t *store.Task) error {
		now := s.o.Now()
		if t.Launch == "" || t.State.Over() || t.DueAt.IsZero() || now.Before(t.DueAt) {
			return task.ErrUnchanged
		}
		held, certain := s.o.Presence.Held(t.Launch)
		switch {
		case t.State == store.TaskQueued:
			t.DueAt = time.Time{}
			return nil
		case !certain:
			return task.ErrUnchanged // a later tick
		case held:
			return s.come(t, now)
		case t.State == store.TaskRunning && t.DisconnectedAt.IsZero():
			t.DueAt = time.Time{}
			return nil
		case t.State == store.TaskRunning && t.HolderSession == "":
			return task.Move(t, task.Complete, "", now) // nobody knows how it ended
		}
		why := "the worker did not connect in time"
		if t.State == store.TaskRunning {
			why = "the worker has gone and did not come back"
		}
		missed := miss(t)
		if err := task.FailOrRetry(t, why, now, rand.Float64()); err != nil {
			return err
		}
		if t.State == store.TaskQueued {
			t.Missed = missed
		}
		return nil
	})
	if err == nil {
		switch t.State {
		case store.TaskFailed:
			s.stats.Failed.Add(1)
			s.Left(t.Launch)
		case store.TaskQueued:
			s.stats.Retried.Add(1)
		}
	}
	_ = s.tookBack(due.ID, err)
}

// come is for a start whose identity is there, although nobody has said that it
// is the worker that was started: it lasts as long as it is seen there.
func (s *Service) come(t *store.Task, now time.Time) error {
	if t.State != store.TaskRunning {
		if err := task.Move(t, task.Run, "", now); err != nil {
			return err
		}
	}
	t.AssignedTo, t.Holder, t.HolderSession, t.HolderGateway = t.Launch, t.Launch, "", ""
	t.DisconnectedAt, t.DueAt = now, now.Add(max(s.o.GraceWindow, leastGrace))
	return nil
}

// Lost looks after a start that a gateway had that lives no longer: the
// orchestrator may have gone with it, or the worker. It implements
// [task.Starter].
func (s *Service) Lost(ctx context.Context, lost store.Task) {
	if slices.Contains(handedOut, lost.State) {
		if held, certain := s.o.Presence.Held(lost.Holder); certain && !held {
			_ = s.takeBack(ctx, lost.ID, lost.Holder, "the orchestrator has gone with its gateway")
		}
		return
	}
	_, _ = s.o.Tasks.Change(ctx, lost.ID, func(t *store.Task) error {
		if t.HolderGateway != lost.HolderGateway {
			return task.ErrUnchanged
		}
		t.HolderGateway = ""
		if err := s.vanish(t, s.o.Now()); !errors.Is(err, task.ErrUnchanged) {
			return err
		}
		return nil
	})
}

// Launch says that a task is queued that is to start its identity. It implements
// [task.Starter].
func (s *Service) Launch(store.Task) { s.starter.queued() }

// Launchable reports whether workers of an implementation can be started in a
// workspace. It implements [task.Starter].
func (s *Service) Launchable(workspace, implementation string) bool {
	_, ok := s.o.Registry.Find(implementation, workspace)
	return ok
}

// CheckOverrides refuses launch parameters that nobody may set. It implements
// [task.Starter].
func (s *Service) CheckOverrides(workspace, implementation string, overrides map[string]string) error {
	i, ok := s.o.Registry.Find(implementation, workspace)
	if !ok {
		if len(overrides) == 0 {
			return nil
		}
		return fmt.Errorf("%w: implementation %q is not registered", ErrEntry, implementation)
	}
	return CheckOverrides(i, overrides)
}

var _ task.Starter = (*Service)(nil)
