package task

import (
	"context"
	"strconv"
	"sync"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
)

// worthTelling reports whether a task's creator is told of a change: that it
// runs, has ended, or is queued again (gateway.md 13.6).
func worthTelling(before, after *store.Task) bool {
	return (before.State != after.State || before.Attempt != after.Attempt) && tellable(after)
}

// tellable reports whether a task is as creators are told of.
func tellable(after *store.Task) bool {
	return after.Creator != "" && (after.State == store.TaskRunning || after.State == store.TaskQueued || after.State.Over())
}

// noticeOf is what a creator is told: the state of the task.
func noticeOf(t *store.Task, recipient string) *aetherv1.ProgressUpdate {
	completion := 0.0
	if t.State == store.TaskCompleted {
		completion = 1
	}
	u := &aetherv1.ProgressUpdate{
		Source: cmpOr(t.AssignedTo, cmpOr(t.Target, t.Creator)), TaskId: t.ID, State: string(t.State), Completion: completion, Summary: t.Reason,
		TimestampMs: t.ChangedAt.UnixMilli(), Workspace: t.Workspace, Recipient: recipient, Kind: aetherv1.ProgressKind_PROGRESS_KIND_TASK,
		// The same notice, told again, is known by it.
		MessageId: t.ID + "-" + strconv.FormatInt(t.Rev, 10),
		Metadata:  map[string]string{"status": string(t.State), "task_type": t.Type, "attempt": strconv.Itoa(int(t.Attempt)), "started_at_ms": "0"},
	}
	if !t.StartedAt.IsZero() {
		u.Metadata["started_at_ms"] = strconv.FormatInt(t.StartedAt.UnixMilli(), 10)
	}
	return u
}

// tell tells the creator of a task how it stands. What cannot be told now is
// told by a sweep.
func (s *Service) tell(before, after *store.Task) {
	u := noticeOf(after, after.Creator)
	if after.AssignedTo == "" && before != nil {
		u.Source = cmpOr(before.AssignedTo, u.Source)
	}
	if len(u.MessageId) > maxMessageID {
		u.MessageId = ""
	}
	id, rev := after.ID, after.Rev
	err := s.o.Router.Notify(u, func() { s.told.add(id, rev) })
	s.troubled("the creator of a task could not be told", err)
}

// tellAgain tells a creator that may not have been told, unless there is nothing
// to tell any more.
func (s *Service) tellAgain(t *store.Task) {
	if !tellable(t) {
		s.told.add(t.ID, t.Rev)
		return
	}
	s.tell(nil, t)
}

// knows reports whether the creator of a task knows of it as it is: a change that
// is not told of must not hide one that is yet to be told.
func (s *Service) knows(t *store.Task) bool { return t.Told >= t.Rev || s.told.rev(t.ID) >= t.Rev }

const maxMessageID = 64

// tellWorker tells who works on a task that it is to stop: somebody else has
// ended or paused it.
func (s *Service) tellWorker(before, after *store.Task) {
	worker := before.AssignedTo
	if worker == "" || worker == after.Creator || before.Launch != "" && before.State != store.TaskRunning {
		return
	}
	if after.State != store.TaskCancelled && (after.PausedAt.IsZero() || !before.PausedAt.IsZero()) {
		return
	}
	s.tellStop(after, worker)
}

// stopWorker tells who works on a task that somebody else has completed it, or
// ended the attempt.
func (s *Service) stopWorker(before, after *store.Task) {
	worker := before.AssignedTo
	if worker == "" || before.State == after.State && before.Attempt == after.Attempt || before.Launch != "" && before.State != store.TaskRunning {
		return
	}
	if after.State == store.TaskCompleted || after.State == store.TaskFailed || after.Attempt != before.Attempt {
		s.tellStop(after, worker)
	}
}

func (s *Service) tellStop(after *store.Task, worker string) {
	u := noticeOf(after, worker)
	u.Source, u.MessageId = after.Creator, ""
	s.troubled("the worker of a task could not be told", s.o.Router.Notify(u, nil))
}

// told are the revisions that creators were told of, by notices that are in the
// log, until they are recorded.
type told struct {
	mu      sync.Mutex
	revs    map[string]int64 // at most maxTold; what is beyond is told again
	writing map[string]int64 // those that are being recorded
}

const maxTold = 100_000

func (t *told) add(id string, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.revs == nil {
		t.revs = map[string]int64{}
	}
	if len(t.revs) < maxTold {
		t.revs[id] = max(t.revs[id], rev)
	}
}

// rev is the revision that is yet to be recorded; 0: none.
func (t *told) rev(id string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.revs[id], t.writing[id])
}

func (t *told) take() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing, t.revs = t.revs, nil
	return t.writing
}

// written ends what take began.
func (t *told) written() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = nil
}

func (s *Service) writeTold(ctx context.Context) {
	revs := s.told.take()
	if len(revs) == 0 {
		return
	}
	defer s.told.written()
	if err := s.o.Store.ToldTasks(ctx, revs); err != nil {
		s.troubled("what creators were told could not be recorded", err)
		for id, rev := range revs {
			s.told.add(id, rev)
		}
	}
}
