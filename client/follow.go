package client

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// TaskChanged is a notice of a task that this client follows: that its state has
// changed, how far it is, or, with Child, that a task which it has created has
// changed.
type TaskChanged struct {
	// ID is the task, Subscription what [Client.FollowTask] returned for it or for
	// the task that it comes of.
	ID, Subscription string
	// Child is the task that has come of it; "" if this is about the task itself.
	Child string
	// Before and Status are how it, or the child, stood and stands; Before may be
	// empty, and both are if Progress is set.
	Before, Status TaskStatus
	// Reason is why it failed, was cancelled, or waits.
	Reason string
	// Progress is the newest report of its worker, at most one a second; nil if
	// this is a change of the state. Only TaskID, State, Summary, Completion,
	// Metadata and Workspace are set.
	Progress *Progress
	// At is when, to the millisecond, by the gateway's clock.
	At time.Time
}

func (TaskChanged) notice() {}

func statusOf(s aetherv1.TaskStatus) TaskStatus {
	if s == aetherv1.TaskStatus_TASK_STATUS_UNSPECIFIED {
		return ""
	}
	return TaskStatus(strings.ToLower(strings.TrimPrefix(s.String(), "TASK_STATUS_")))
}

// taskEvent tells of an event; of one that is not known as of any frame.
func (l *link) taskEvent(e *aetherv1.TaskEvent, frame *aetherv1.DownstreamMessage) {
	n := TaskChanged{ID: e.GetTaskId(), Subscription: e.GetSubscriptionId(), At: time.UnixMilli(e.GetEmittedAtUnixMs())}
	switch x := e.GetEvent().(type) {
	case *aetherv1.TaskEvent_StatusChanged:
		n.Before, n.Status = statusOf(x.StatusChanged.GetFromStatus()), statusOf(x.StatusChanged.GetToStatus())
		n.Reason = x.StatusChanged.GetReason()
	case *aetherv1.TaskEvent_ChildLifecycle:
		n.Child, n.Status = x.ChildLifecycle.GetChildTaskId(), statusOf(x.ChildLifecycle.GetChildStatus())
	case *aetherv1.TaskEvent_Progress:
		n.Progress = &Progress{
			TaskID: e.GetTaskId(), Workspace: e.GetWorkspace(), State: x.Progress.GetState(), Completion: x.Progress.GetProgress(),
			Summary: x.Progress.GetMessage(), Metadata: x.Progress.GetMetadata(),
		}
	default:
		l.c.notices.put(Frame{Frame: frame})
		return
	}
	l.c.follows.heard(n)
	l.c.notices.put(n)
}

// FollowTask asks for [TaskChanged] notices of a task that this client has
// created or works on, and with descendants of all that come of it. It goes on in
// the sessions that follow on this one, until [Client.UnfollowTask]: of what came
// between two it is told the last change of the task itself, perhaps once more,
// with Before empty; that there is nothing to follow any more comes as [Refused].
// CodeNotFound: there is no such task, or it is somebody else's.
func (c *Client) FollowTask(ctx context.Context, id string, descendants bool) (subscription string, err error) {
	f := &followed{task: id, descendants: descendants}
	subscription = uuid.NewString()
	op := f.op(subscription)
	for again := false; ; again = true {
		session := c.Session().ID
		_, err := c.subscription(ctx, op)
		if err != nil && (!again || CodeOf(err) != CodeInvalidArgument) { // it was asked for again already
			c.follows.drop(subscription, "")
			return "", err
		}
		c.follows.put(subscription, f)
		if c.Session().ID == session { // else the next one has begun without it
			return subscription, nil
		}
	}
}

// follows are the tasks that a client follows, by subscription; the gateway
// bounds how many there are.
type follows struct {
	mu sync.Mutex
	by map[string]*followed
}

type followed struct {
	task        string
	descendants bool
	last        time.Time // when its last change was that was told; zero: none was
}

// op asks for it. What has changed since the last that was told is told.
func (f *followed) op(subscription string) *aetherv1.TaskSubscriptionOperation {
	op := &aetherv1.TaskSubscriptionOperation{
		Op: aetherv1.TaskSubscriptionOperation_OP_TYPE_SUBSCRIBE, TaskId: f.task, Recursive: f.descendants, SubscriptionId: subscription,
	}
	if !f.last.IsZero() {
		op.StartTimestampUnixMs = f.last.UnixMilli() + 1
	}
	return op
}

func (fs *follows) put(subscription string, f *followed) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.by == nil {
		fs.by = map[string]*followed{}
	}
	fs.by[subscription] = f
}

// drop forgets a subscription, or without one those of a task.
func (fs *follows) drop(subscription, task string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	maps.DeleteFunc(fs.by, func(id string, f *followed) bool { return id == subscription || subscription == "" && f.task == task })
}

// heard notes until when somebody knows of a task.
func (fs *follows) heard(n TaskChanged) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.by[n.Subscription]; f != nil && f.task == n.ID && n.Child == "" && n.Progress == nil && n.At.After(f.last) {
		f.last = n.At
	}
}

// asked are the requests for all of them in a later session. One of which nothing
// was told yet asks for the state, which may have changed between the two.
func (fs *follows) asked() (all []*aetherv1.TaskSubscriptionOperation) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for id, f := range fs.by {
		op := f.op(id)
		op.StartTimestampUnixMs = max(op.StartTimestampUnixMs, 1)
		all = append(all, op)
	}
	return all
}

// refollow goes on with what was followed in the session before this one.
func (l *link) refollow(all []*aetherv1.TaskSubscriptionOperation) {
	for _, op := range all {
		for {
			_, err := l.c.subscription(l.ctx, op)
			e := asError(err)
			if err == nil || e.Code == CodeInvalidArgument { // FollowTask has just asked
				break
			}
			if e.Code == CodeNotFound || e.Code == CodePermissionDenied {
				l.c.follows.drop(op.GetSubscriptionId(), "")
				l.c.notices.put(Refused{Err: e})
				break
			}
			if !pause(l.ctx, time.Second) {
				return
			}
		}
	}
}

// UnfollowTask ends what FollowTask began. CodeNotFound: there is no such
// subscription.
func (c *Client) UnfollowTask(ctx context.Context, id, subscription string) error {
	c.follows.drop(subscription, id)
	_, err := c.subscription(ctx, &aetherv1.TaskSubscriptionOperation{
		Op: aetherv1.TaskSubscriptionOperation_OP_TYPE_UNSUBSCRIBE, TaskId: id, SubscriptionId: subscription,
	})
	return err
}

func (c *Client) subscription(ctx context.Context, op *aetherv1.TaskSubscriptionOperation) (string, error) {
	frame, err := c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		op.ClientRequestId = id
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskSubscriptionOp{TaskSubscriptionOp: op}}
	}, nil)
	if err != nil {
		return "", err
	}
	answer := frame.GetTaskSubscriptionResponse()
	if !answer.GetSuccess() {
		return "", taskError(answer.GetError())
	}
	return answer.GetSubscriptionId(), nil
}
