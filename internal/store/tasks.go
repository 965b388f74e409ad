package store

import (
	"context"
	"time"
)

// TaskState is where a task stands.
type TaskState string

// The states. What may follow what is package task's to say.
const (
	TaskQueued            TaskState = "queued"
	TaskAssigned          TaskState = "assigned"
	TaskStarting          TaskState = "starting"
	TaskRunning           TaskState = "running"
	TaskWaitingInput      TaskState = "waiting_input"
	TaskWaitingAuthority  TaskState = "waiting_authority"
	TaskWaitingDependency TaskState = "waiting_dependency"
	TaskHibernated        TaskState = "hibernated"
	TaskCompleted         TaskState = "completed"
	TaskFailed            TaskState = "failed"
	TaskCancelled         TaskState = "cancelled"
	TaskRejected          TaskState = "rejected"
)

// Over reports whether a task in the state has ended.
func (s TaskState) Over() bool {
	switch s {
	case TaskCompleted, TaskFailed, TaskCancelled, TaskRejected:
		return true
	}
	return false
}

// TaskMode says how a worker of a task is found.
type TaskMode string

// The modes.
const (
	// TaskSelf is work of its creator.
	TaskSelf TaskMode = "self"
	// TaskTargeted is work of one identity.
	TaskTargeted TaskMode = "targeted"
	// TaskPool is work of one worker of an implementation.
	TaskPool TaskMode = "pool"
	// TaskStart is the start of an identity that was sent a message.
	TaskStart TaskMode = "start"
)

// TaskGrant is on whose behalf a task was created; the zero value: nobody's but
// the creator's.
type TaskGrant struct {
	Mode                                string
	SubjectType, SubjectID              string
	RootSubjectType, RootSubjectID      string
	GrantID, RootGrantID, ParentGrantID string
}

// Task is a task as it is stored. Times are kept to the millisecond; a zero time
// is none.
type Task struct {
	// What follows is set by CreateTask and never changes.

	// ID is a UUIDv7. Creator is an identity string; Target, of a targeted task
	// and of a start, the one that is to do it; Implementation is that of the
	// workers.
	ID, Type, Workspace, Creator, Target, Implementation string
	Mode                                                 TaskMode
	// ParentID is the task in which this one was created, RootID the first of
	// such a row: its own id if it has no parent.
	ParentID, RootID, ContextID, CorrelationID string
	// IdempotencyKey tells two tasks of one creator in one workspace apart;
	// empty: there may be any number.
	IdempotencyKey  string
	Class, Priority int32
	// MaxAttempts is at least 1.
	MaxAttempts int32
	Grant       TaskGrant
	// Spec is what else was asked for, as a JSON object of package task.
	Spec      string
	Payload   []byte
	CreatedAt time.Time

	// What follows changes with UpdateTask.

	State TaskState
	// Attempt counts from 1.
	Attempt int32
	// AssignedTo is the identity that works, or is to work, on it.
	AssignedTo string
	// Holder is who was handed the task, HolderSession its session and
	// HolderGateway the instance id of the gateway that has it: the worker
	// itself, or, of a launch, the orchestrator.
	Holder, HolderSession, HolderGateway string
	// Launch is the identity that is to be started by this task. Of one
	// identity there is at most one such task that has not ended.
	Launch string
	// TokenHash is the hash of the token of this attempt; empty: there is none.
	TokenHash string
	// Profile is what orchestrator a start needs.
	Profile string
	// Reason is why it is in its state: the error of one that failed.
	Reason string
	// Wait is what it waits for, as a JSON object of package task; ResumeTo the
	// state to which it goes back.
	Wait     string
	ResumeTo TaskState
	// Missed are the workers that were handed the task in vain, for the next one
	// to be another; separated by spaces.
	Missed string
	// ChangedAt is when the state changed last; DueAt when a sweep has to look
	// at it.
	ChangedAt, StartedAt, EndedAt, DisconnectedAt, PausedAt, DueAt time.Time
	// Rev is raised by each UpdateTask. Told is the one of which its creator
	// was told.
	Rev, Told int64

	// HeartbeatAt changes with BeatTasks.
	HeartbeatAt time.Time
}

// TaskFilter chooses tasks. Empty fields choose all.
type TaskFilter struct {
	// SeenBy leaves only tasks that one of these identities has created or is
	// assigned to; an identity that ends in "::" stands for all that begin so.
	// Subjects, by type and id, see theirs too. Both empty: all are seen.
	SeenBy   []string
	Subjects [][2]string
	// Around leaves only tasks that an identity has created, is assigned to, or
	// is to do.
	Around string

	IDs            []string
	Workspaces     []string
	States         []TaskState
	NotStates      []TaskState
	Modes          []TaskMode
	Type, Creator  string
	Target         string
	AssignedTo     string
	Holder         string
	HolderSession  string
	HolderGateway  string
	Launch         string
	Implementation string
	ParentID       string
	Descendants    bool // of ParentID, at any depth
	RootID         string
	ContextID      string
	CorrelationID  string
	Class          int32
	NotClasses     []int32
	Priority       int32
	MinPriority    int32
	ChangedAfter   time.Time
	SubjectType    string
	SubjectID      string
	AuthorityMode  string
	GrantID        string
	RootGrantID    string
	// Launches leaves those that are to start somebody.
	Launches bool
	// Active leaves out what has ended, CreatedBefore what is younger and
	// CreatedAfter what is older.
	Active                      bool
	CreatedBefore, CreatedAfter time.Time
}

// TaskPage is where a page of a list begins: behind the task with that time and
// id. The zero value is the beginning.
type TaskPage struct {
	CreatedAt time.Time
	ID        string
}

// Pool is the workers of an implementation in a workspace.
type Pool struct{ Workspace, Implementation string }

// TaskBeat is a sign of life of a task.
type TaskBeat struct {
	ID string
	At time.Time
}

// Tasks keeps tasks. Implementations are safe for concurrent use, also by
// several gateways; a method that returned nil has made its change durable, and
// one that failed can be repeated. [ErrText] refuses a text.
type Tasks interface {
	// CreateTask stores a new task with revision 1. If its creator has one with
	// the same idempotency key in the workspace, or, of a launch, there is one
	// of the identity that has not ended, that one is returned, nothing is
	// stored, and created is false.
	CreateTask(ctx context.Context, t Task) (stored Task, created bool, err error)
	// Task returns a task; ok is false if there is none. It comes without its
	// payload, as all do that are read: TaskPayload reads that one.
	Task(ctx context.Context, id string) (t Task, ok bool, err error)
	TaskPayload(ctx context.Context, id string) ([]byte, error)
	// TaskByToken returns the task whose current attempt has a token of that
	// hash.
	TaskByToken(ctx context.Context, hash string) (t Task, ok bool, err error)
	// UpdateTask stores what can change of a task if it still has the revision
	// t.Rev, and returns it as it is then, with the next revision. Otherwise
	// nothing changes, and done is false: another one was first, the caller
	// reads the task and decides anew. Of several who update one revision at
	// the same time one succeeds. That is the only guard that transitions need.
	// [ErrActive] refuses a second launch of an identity.
	UpdateTask(ctx context.Context, t Task) (stored Task, done bool, err error)
	// Tasks returns up to limit tasks behind a page, the newest first.
	Tasks(ctx context.Context, f TaskFilter, after TaskPage, limit int) ([]Task, error)
	// QueuedTasks returns up to limit tasks, those of the highest priority
	// first, and of those the oldest.
	QueuedTasks(ctx context.Context, f TaskFilter, limit int) ([]Task, error)
	// CountTasks counts tasks, up to most.
	CountTasks(ctx context.Context, f TaskFilter, most int) (int, error)
	// DueTasks returns up to limit tasks that are due, those that are longest
	// overdue first. Who handles one moves or clears DueAt by UpdateTask.
	DueTasks(ctx context.Context, now time.Time, limit int) ([]Task, error)
	// QueuedTargets returns up to limit identities behind one, in their order,
	// for which targeted tasks are queued; QueuedPools up to limit workspaces
	// and implementations behind a pair, likewise.
	QueuedTargets(ctx context.Context, after string, limit int) ([]string, error)
	QueuedPools(ctx context.Context, after Pool, limit int) ([]Pool, error)
	// TaskGateways returns the gateways that hold tasks that have not ended.
	TaskGateways(ctx context.Context) ([]string, error)
	// UntoldTasks returns up to limit tasks whose creator has not been told of
	// their last change, made before the time.
	UntoldTasks(ctx context.Context, before time.Time, limit int) ([]Task, error)
	// ToldTasks records that creators know of revisions, by task. It changes
	// neither the revisions nor anything else.
	ToldTasks(ctx context.Context, revs map[string]int64) error
	// ActiveTasksOf returns up to limit tasks that have not ended and are
	// assigned to, or meant for, one of some identities, in the order of
	// QueuedTasks.
	ActiveTasksOf(ctx context.Context, identities []string, limit int) ([]Task, error)
	// WaitTask records for which tasks one waits, in the place of what was
	// recorded before. TaskWaiters returns the tasks that wait for one, up to
	// limit behind an id, by id.
	WaitTask(ctx context.Context, id string, on []string) error
	TaskWaiters(ctx context.Context, on, after string, limit int) ([]string, error)
	// BeatTasks records signs of life. An earlier one than the recorded, and
	// one of an unknown task, change nothing. Revisions stay.
	BeatTasks(ctx context.Context, beats []TaskBeat) error
	// ExpireTasks removes tasks that ended before the time, and returns how
	// many.
	ExpireTasks(ctx context.Context, before time.Time) (int64, error)
}
