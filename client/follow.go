package client

import (
	"context"
	"strings"
	"time"

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
	l.c.notices.put(n)
}

// FollowTask asks for [TaskChanged] notices of a task that this client has
// created or works on, and with descendants of all that come of it. It ends with
// the session: after a later [Connected] ask again, and for the state by
// [Client.Task]. CodeNotFound: there is no such task, or it is somebody else's.
func (c *Client) FollowTask(ctx context.Context, id string, descendants bool) (subscription string, err error) {
	return c.subscription(ctx, &aetherv1.TaskSubscriptionOperation{
		Op: aetherv1.TaskSubscriptionOperation_OP_TYPE_SUBSCRIBE, TaskId: id, Recursive: descendants,
	})
}

// UnfollowTask ends what FollowTask began. CodeNotFound: there is no such
// subscription.
func (c *Client) UnfollowTask(ctx context.Context, id, subscription string) error {
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
