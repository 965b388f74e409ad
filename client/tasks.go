package client

import (
	"context"
	"maps"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// TaskStatus is how a task stands: queued, running, completed, failed, cancelled,
// rejected, waiting_input, waiting_authority, waiting_dependency or hibernated.
type TaskStatus string

// The statuses that programs most often ask for.
const (
	TaskQueued    TaskStatus = "queued"
	TaskRunning   TaskStatus = "running"
	TaskCompleted TaskStatus = "completed"
	TaskFailed    TaskStatus = "failed"
	TaskCancelled TaskStatus = "cancelled"
	TaskRejected  TaskStatus = "rejected"
)

// Over reports whether a task of that status has ended; only a retry brings it
// back.
func (s TaskStatus) Over() bool {
	switch s {
	case TaskCompleted, TaskFailed, TaskCancelled, TaskRejected:
		return true
	}
	return false
}

// TaskSpec is a task to be created. Of For and Pool at most one is set; with
// neither the creator does it itself.
type TaskSpec struct {
	// For is the identity that is to do it, connected or not; Pool the
	// implementation of which one worker is.
	For, Pool string
	// Type and Metadata are for those who do it, Payload is what they get.
	Type     string
	Metadata map[string]string
	Payload  []byte
	// Workspace is needed by those who are in none.
	Workspace string
	// Key makes a repeated call return the task of the first; empty: each creates
	// one. Use it where a call may be repeated after an error.
	Key string
	// Attempts is how often it is tried, at least 1, and Pause the time before
	// the second one, which doubles from then on; 0 is a second.
	Attempts int
	Pause    time.Duration
	// LaunchParams are for the start of who is to do it, if it has to be started.
	LaunchParams map[string]string
}

// TaskInfo is a task as its creator and its worker see it.
type TaskInfo struct {
	ID, Type, Workspace string
	Status              TaskStatus
	// Worker is the identity that works on it; "" if nobody does. Creator is who
	// created it.
	Worker, Creator      string
	Attempt, MaxAttempts int
	// Reason is why it failed or was cancelled.
	Reason   string
	Metadata map[string]string
	// Created and so on are to the second; zero: not yet.
	Created, Started, Ended time.Time
}

// TaskAssigned: the gateway has handed this client a task, which it claims,
// rejects, completes or fails by the task's id. After a connection was lost it
// may come once more.
type TaskAssigned struct {
	ID, Type, Workspace string
	Metadata            map[string]string
	Payload             []byte
}

func (TaskAssigned) notice() {}

func newTaskAssigned(a *aetherv1.TaskAssignment) TaskAssigned {
	return TaskAssigned{ID: a.GetTaskId(), Type: a.GetTaskType(), Workspace: a.GetWorkspace(), Metadata: a.GetMetadata(), Payload: a.GetPayload()}
}

func newTask(i *aetherv1.TaskInfo) *TaskInfo {
	return &TaskInfo{
		ID: i.GetTaskId(), Type: i.GetTaskType(), Workspace: i.GetWorkspace(), Worker: i.GetAssignedTo(), Creator: i.GetCreatorActorId(),
		Status:  TaskStatus(strings.ToLower(strings.TrimPrefix(i.GetStatus().String(), "TASK_STATUS_"))),
		Attempt: int(i.GetAttempt()), MaxAttempts: int(i.GetMaxAttempts()), Reason: i.GetError(), Metadata: i.GetMetadata(),
		Created: timeOf(i.GetCreatedAt()), Started: timeOf(i.GetStartedAt()), Ended: timeOf(i.GetCompletedAt()),
	}
}

func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// taskError reads the error of an answer, which begins with its code.
func taskError(text string) *Error {
	code, message, ok := strings.Cut(text, ": ")
	if !ok {
		return &Error{Code: CodeInternal, Message: text}
	}
	return &Error{Code: Code(code), Message: message, Retryable: Code(code) == CodeUnavailable || Code(code) == CodeRateLimited}
}

// CreateTask creates a task and returns its id. Who created it is told of its
// course by notices of the type [Progressed]. An error with CodeUnknownOutcome
// leaves open whether there is one; with a Key the call may be repeated.
func (c *Client) CreateTask(ctx context.Context, s TaskSpec) (id string, err error) {
	r := &aetherv1.CreateTaskRequest{
		TaskType: s.Type, Workspace: s.Workspace, Metadata: maps.Clone(s.Metadata), Payload: s.Payload, IdempotencyKey: s.Key,
		LaunchParamOverrides: maps.Clone(s.LaunchParams),
	}
	switch {
	case s.For != "" && s.Pool != "":
		return "", refused(CodeInvalidArgument, "a task is for one identity or for a pool, not for both")
	case s.Attempts < 0 || s.Attempts > 100 || s.Pause < 0:
		return "", refused(CodeInvalidArgument, "attempts must be 0 to 100, and the pause not negative")
	case s.For != "":
		r.AssignmentMode, r.TargetAgentId = aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_TARGETED, s.For
	case s.Pool != "":
		r.AssignmentMode, r.TargetImplementation = aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_POOL, s.Pool
	}
	if s.Attempts > 1 {
		r.RetryPolicy = &aetherv1.RetryPolicy{MaxAttempts: int32(s.Attempts), InitialDelayMs: s.Pause.Milliseconds()}
	}
	frame, err := c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		r.RequestId = id
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_CreateTask{CreateTask: r}}
	}, nil)
	if err != nil {
		return "", err
	}
	answer := frame.GetCreateTask()
	if !answer.GetSuccess() {
		return "", taskError(answer.GetErrorCode() + ": " + answer.GetErrorMessage())
	}
	return answer.GetTaskId(), nil
}

// Task returns a task that this client created or works on. CodeNotFound: there
// is none, or it is somebody else's.
func (c *Client) Task(ctx context.Context, id string) (*TaskInfo, error) {
	answer, err := c.queryTasks(ctx, &aetherv1.TaskQuery{Op: aetherv1.TaskQuery_OP_TYPE_GET, TaskId: id})
	if err != nil {
		return nil, err
	}
	return newTask(answer.GetTask()), nil
}

// TaskFilter chooses tasks. Empty fields choose all that this client created or
// works on.
type TaskFilter struct {
	Workspace, Type string
	Statuses        []TaskStatus
	// Limit is how many a page has; 0: as the gateway likes. Page is what the
	// page before returned as next.
	Limit int
	Page  string
}

// Tasks lists tasks, the newest first; next is the following page, "" after the
// last.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) (tasks []*TaskInfo, next string, err error) {
	filter := &aetherv1.TaskFilter{Workspace: f.Workspace, TaskType: f.Type, Limit: int32(min(max(f.Limit, 0), 1000)), PageToken: f.Page}
	for _, s := range f.Statuses {
		n, ok := aetherv1.TaskStatus_value["TASK_STATUS_"+strings.ToUpper(string(s))]
		if !ok || n == 0 {
			return nil, "", refused(CodeInvalidArgument, "there is no status %q", s)
		}
		filter.Statuses = append(filter.Statuses, aetherv1.TaskStatus(n))
	}
	answer, err := c.queryTasks(ctx, &aetherv1.TaskQuery{Op: aetherv1.TaskQuery_OP_TYPE_LIST, Filter: filter})
	if err != nil {
		return nil, "", err
	}
	for _, i := range answer.GetTasks() {
		tasks = append(tasks, newTask(i))
	}
	return tasks, answer.GetNextPageToken(), nil
}

func (c *Client) queryTasks(ctx context.Context, q *aetherv1.TaskQuery) (*aetherv1.TaskQueryResponse, error) {
	frame, err := c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		q.RequestId = id
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskQuery{TaskQuery: q}}
	}, nil)
	if err != nil {
		return nil, err
	}
	if answer := frame.GetTaskQuery(); answer.GetSuccess() {
		return answer, nil
	}
	return nil, taskError(frame.GetTaskQuery().GetError())
}

// ClaimTask says that this client is at work on a task that it was handed, or
// takes one that waits for it or in its pool. Of several who do so one succeeds.
// An orchestrator says so that it starts the worker of an [Assignment], and learns
// whether that is still its to do; the deadline stays what it was.
func (c *Client) ClaimTask(ctx context.Context, id string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_CLAIM, id, "")
}

// CompleteTask says that a task is done.
func (c *Client) CompleteTask(ctx context.Context, id string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_COMPLETE, id, "")
}

// FailTask says that an attempt at a task has failed; if the task has attempts
// left, it is queued again.
func (c *Client) FailTask(ctx context.Context, id, reason string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_FAIL, id, reason)
}

// RejectTask says that this client does not want a task that it was handed: one
// of a pool goes to another worker.
func (c *Client) RejectTask(ctx context.Context, id, reason string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_REJECT, id, reason)
}

// CancelTask ends a task; who works on it is told.
func (c *Client) CancelTask(ctx context.Context, id, reason string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_CANCEL, id, reason)
}

// RetryTask has a task that has ended done again. It is its creator's to ask.
func (c *Client) RetryTask(ctx context.Context, id string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_RETRY, id, "")
}

// PauseTask stops the work on a task until [Client.ResumeTask]; who works on it
// is told.
func (c *Client) PauseTask(ctx context.Context, id, reason string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_PAUSE, id, reason)
}

// ResumeTask lets a task go on that was paused, or waits.
func (c *Client) ResumeTask(ctx context.Context, id string) (*TaskInfo, error) {
	return c.moveTask(ctx, aetherv1.TaskOperation_OP_TYPE_RESUME, id, "")
}

func (c *Client) moveTask(ctx context.Context, op aetherv1.TaskOperation_OpType, id, reason string) (*TaskInfo, error) {
	frame, err := c.call(ctx, func(request string) *aetherv1.UpstreamMessage {
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskOp{
			TaskOp: &aetherv1.TaskOperation{Op: op, TaskId: id, Reason: reason, RequestId: request},
		}}
	}, nil)
	if err != nil {
		return nil, err
	}
	answer := frame.GetTaskOp()
	if !answer.GetSuccess() {
		return nil, taskError(answer.GetError())
	}
	return newTask(answer.GetTask()), nil
}
