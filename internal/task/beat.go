package task

import (
	"context"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// beats are signs of life that wait to be written, once a second.
type beats struct {
	mu sync.Mutex
	at map[string]time.Time // at most maxBeats; what is beyond is dropped, as the next one follows
}

const maxBeats = 100_000

// Beat notes that a task's worker is alive. It does not wait; what it notes is
// written at most once a second and task.
func (s *Service) Beat(task, _ string) {
	now := s.o.Now()
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	if s.beats.at == nil {
		s.beats.at = map[string]time.Time{}
	}
	if len(s.beats.at) < maxBeats {
		s.beats.at[task] = now
	}
}

func (s *Service) writeBeats(ctx context.Context) {
	s.beats.mu.Lock()
	at := s.beats.at
	s.beats.at = nil
	s.beats.mu.Unlock()
	if len(at) == 0 {
		return
	}
	list := make([]store.TaskBeat, 0, len(at))
	for id, when := range at {
		list = append(list, store.TaskBeat{ID: id, At: when})
	}
	s.troubled("signs of life of tasks could not be written", s.o.Store.BeatTasks(ctx, list))
}

// Owned returns the workspace of a task that an identity works on now; ok is
// false if there is no such task, if it is over, or somebody else's. A task that
// its worker was handed begins to run with its first report.
func (s *Service) Owned(ctx context.Context, task, identity string) (workspace string, ok bool, err error) {
	if task == "" || len(task) > maxID {
		return "", false, nil
	}
	t, found, err := s.o.Store.Task(ctx, task)
	if err != nil || !found || t.AssignedTo != identity || t.State.Over() || t.State == store.TaskQueued {
		return "", false, err
	}
	if t.State == store.TaskAssigned && t.Launch == "" {
		_, err := s.Change(ctx, task, func(t *store.Task) error {
			if t.AssignedTo != identity || t.State != store.TaskAssigned {
				return ErrUnchanged
			}
			return Move(t, Run, "", s.o.Now())
		})
		s.troubled("a task that runs could not be marked so", err)
	}
	return t.Workspace, true, nil
}
