package orchestrator

import (
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

// untakenAfter is after how long it is said that no orchestrator takes a start,
// and how often it is looked for such starts.
const untakenAfter = 5 * time.Second

// runUntaken says of starts that no orchestrator takes why they wait.
func (s *Service) runUntaken() {
	s.every(untakenAfter, nil, func() {
		if s.Armed() && s.elected() {
			s.noteUntaken()
		}
	})
}

// noteUntaken writes it into those that wait, where their creators and operators
// see it, and once per attempt into the log. Of more than a page the first are
// told: the others wait for the same reason.
func (s *Service) noteUntaken() {
	ctx, cancel := s.call()
	defer cancel()
	list, err := s.o.Rows.QueuedTasks(ctx, store.TaskFilter{Launches: true, States: queuedOnly}, claimPage)
	if err != nil {
		return // the next round
	}
	now := s.o.Now()
	for i := range list {
		q := &list[i]
		why := s.whyUntaken(q)
		if now.Sub(q.ChangedAt) < untakenAfter || q.Reason == why {
			continue
		}
		told := false
		_, err := s.o.Tasks.Change(ctx, q.ID, func(t *store.Task) error {
			if told = t.State == store.TaskQueued && t.Attempt == q.Attempt && t.ChangedAt.Equal(q.ChangedAt) && t.Reason != why; !told {
				return task.ErrUnchanged
			}
			t.Reason = why
			return nil
		})
		if err == nil && told {
			s.o.Logger.Info("a start waits for an orchestrator", "task", q.ID, "identity", q.Launch, "reason", why)
		}
	}
}

func (s *Service) whyUntaken(t *store.Task) string {
	i, ok := s.o.Registry.Find(t.Implementation, t.Workspace)
	if !ok {
		return fmt.Sprintf("implementation %s is not registered any more", t.Implementation)
	}
	return fmt.Sprintf("no orchestrator that announces profile %s has taken it yet", i.Profile)
}
