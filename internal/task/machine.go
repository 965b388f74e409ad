package task

import (
	"errors"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// Event is what happens to a task.
type Event uint8

// The events.
const (
	// Assign hands the task to a worker or an orchestrator.
	Assign Event = iota + 1
	// Launch says that an orchestrator, by claiming what it was assigned, is
	// starting the worker.
	Launch
	// Run says that the worker is at work.
	Run
	// Complete, Fail, Cancel and Reject end the task.
	Complete
	Fail
	Cancel
	Reject
	// Back puts a task back that nobody has begun to work on, Again one that
	// was begun: a new attempt.
	Back
	Again
	// Pause stops the work until Resume.
	Pause
	// AwaitInput, AwaitAuthority, AwaitDependency and Hibernate are said by the
	// worker: it can go on only after Resume.
	AwaitInput
	AwaitAuthority
	AwaitDependency
	Hibernate
	Resume
	// Retry brings a task back that has ended, as a new attempt.
	Retry

	eventEnd
)

var eventNames = [eventEnd]string{
	"", "assigned", "started", "run", "completed", "failed", "cancelled", "rejected", "put back", "tried again",
	"paused", "made to wait for input", "made to wait for authority", "made to wait for others", "hibernated", "resumed", "retried",
}

// String is a word for sentences: what cannot be done to a task.
func (e Event) String() string {
	if e >= eventEnd {
		e = 0
	}
	return eventNames[e]
}

// resumed stands for the state that a task goes back to.
const resumed store.TaskState = "(resumed)"

// table has for each event the states in which it may happen, and what follows.
// What is not in it is impossible.
var table = map[Event]map[store.TaskState]store.TaskState{
	Assign: {store.TaskQueued: store.TaskAssigned},
	Launch: {store.TaskAssigned: store.TaskStarting},
	Run:    {store.TaskAssigned: store.TaskRunning, store.TaskStarting: store.TaskRunning},
	Complete: {
		store.TaskAssigned: store.TaskCompleted, store.TaskStarting: store.TaskCompleted, store.TaskRunning: store.TaskCompleted,
	},
	Fail:   allActive(store.TaskFailed),
	Cancel: allActive(store.TaskCancelled),
	Reject: {
		store.TaskQueued: store.TaskRejected, store.TaskAssigned: store.TaskRejected, store.TaskStarting: store.TaskRejected,
	},
	Back:  {store.TaskAssigned: store.TaskQueued, store.TaskStarting: store.TaskQueued},
	Again: allActive(store.TaskQueued),
	Pause: {
		store.TaskQueued: store.TaskWaitingInput, store.TaskAssigned: store.TaskWaitingInput, store.TaskRunning: store.TaskWaitingInput,
	},
	AwaitInput:      awaits(store.TaskWaitingInput),
	AwaitAuthority:  awaits(store.TaskWaitingAuthority),
	AwaitDependency: awaits(store.TaskWaitingDependency),
	Hibernate:       awaits(store.TaskHibernated),
	Resume: {
		store.TaskWaitingInput: resumed, store.TaskWaitingAuthority: resumed, store.TaskWaitingDependency: resumed,
		// Its worker may have gone: it is handed out again.
		store.TaskHibernated: store.TaskQueued,
	},
	Retry: {
		store.TaskCompleted: store.TaskQueued, store.TaskFailed: store.TaskQueued,
		store.TaskCancelled: store.TaskQueued, store.TaskRejected: store.TaskQueued,
	},
}

// States lists all states, in the order of a task's life.
func States() []store.TaskState {
	return []store.TaskState{
		store.TaskQueued, store.TaskAssigned, store.TaskStarting, store.TaskRunning,
		store.TaskWaitingInput, store.TaskWaitingAuthority, store.TaskWaitingDependency, store.TaskHibernated,
		store.TaskCompleted, store.TaskFailed, store.TaskCancelled, store.TaskRejected,
	}
}

func allActive(to store.TaskState) map[store.TaskState]store.TaskState {
	row := map[store.TaskState]store.TaskState{}
	for _, s := range States() {
		if !s.Over() {
			row[s] = to
		}
	}
	return row
}

func awaits(to store.TaskState) map[store.TaskState]store.TaskState {
	return map[store.TaskState]store.TaskState{store.TaskAssigned: to, store.TaskStarting: to, store.TaskRunning: to}
}

var (
	// ErrImpossible refuses a transition that is not in the table.
	ErrImpossible = errors.New("task: it cannot be done in this state")
	// ErrUnchanged leaves a task as it is, see [Service.Change].
	ErrUnchanged = errors.New("task: nothing to change")
)

// impossible says what cannot be done, and in which state.
func impossible(e Event, s store.TaskState) error {
	if s.Over() {
		return fmt.Errorf("%w: the task is %s: it has ended already", ErrImpossible, words(s))
	}
	return fmt.Errorf("%w: a task that is %s cannot be %s", ErrImpossible, words(s), e)
}

// words is a state in a sentence.
func words(s store.TaskState) string {
	switch s {
	case store.TaskWaitingInput:
		return "waiting for input"
	case store.TaskWaitingAuthority:
		return "waiting for authority"
	case store.TaskWaitingDependency:
		return "waiting for others"
	}
	return string(s)
}

// Move makes the transition of an event in t, with all that belongs to it, or
// returns an error that wraps [ErrImpossible] and leaves t as it is. Why is kept
// as the reason. Who works on the task, and when it is due next, is the caller's
// to set after Assign; a task that is put back or has ended is nobody's.
func Move(t *store.Task, e Event, why string, now time.Time) error {
	to, ok := table[e][t.State]
	if !ok {
		return impossible(e, t.State)
	}
	from := t.State
	if to == resumed {
		if to = t.ResumeTo; to == "" || to.Over() {
			to = store.TaskQueued
		}
	}
	t.State, t.ChangedAt, t.DueAt, t.Reason = to, now, time.Time{}, why
	switch e {
	case Run:
		t.DisconnectedAt = time.Time{}
	case Pause:
		t.ResumeTo, t.PausedAt = from, now
	case AwaitInput, AwaitAuthority, AwaitDependency, Hibernate:
		t.ResumeTo = store.TaskRunning
		begin(t, now)
	case Resume:
		t.ResumeTo, t.PausedAt, t.Wait = "", time.Time{}, ""
	case Again, Retry:
		t.Attempt++
		if e == Retry {
			t.MaxAttempts = max(t.MaxAttempts, t.Attempt) // who asks for one more gets it
		}
		t.StartedAt, t.EndedAt = time.Time{}, time.Time{}
	}
	switch {
	case to == store.TaskRunning, to == store.TaskCompleted:
		begin(t, now)
	case to == store.TaskQueued:
		letGo(t)
		t.AssignedTo = ""
		t.ResumeTo, t.PausedAt, t.Wait = "", time.Time{}, ""
	}
	if to.Over() {
		letGo(t)
		t.EndedAt, t.ResumeTo, t.PausedAt, t.Wait, t.Missed = now, "", time.Time{}, "", ""
	}
	return nil
}

// begin notes when the attempt began to run.
func begin(t *store.Task, now time.Time) {
	if t.StartedAt.IsZero() {
		t.StartedAt = now
	}
}

// letGo takes the task from who was handed it, and makes the token worthless.
func letGo(t *store.Task) {
	t.Holder, t.HolderSession, t.HolderGateway, t.TokenHash, t.DisconnectedAt = "", "", "", "", time.Time{}
}

// FailOrRetry ends an attempt that has failed: by a new attempt after a while,
// if the task has some left and its policy allows it, else by the failure of the
// task. draw is a number of [0, 1) for the jitter.
func FailOrRetry(t *store.Task, why string, now time.Time, draw float64) error {
	if t.Attempt >= t.MaxAttempts {
		return Move(t, Fail, why, now)
	}
	spec, err := DecodeSpec(t.Spec)
	if err != nil {
		return Move(t, Fail, why, now)
	}
	failed := t.Attempt
	if err := Move(t, Again, why, now); err != nil {
		return err
	}
	if after := spec.Retry.Delay(failed, draw); after > 0 {
		t.DueAt = now.Add(after)
	}
	return nil
}
