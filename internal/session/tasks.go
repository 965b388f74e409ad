package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/task"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Tasks creates, shows and moves tasks, and hands them to sessions. It is
// [task.Service] but for tests.
type Tasks interface {
	Join(w *task.Worker)
	CreateFor(ctx context.Context, c *task.Caller, r *aetherv1.CreateTaskRequest) (*aetherv1.CreateTaskResponse, *wireerr.Error)
	Query(ctx context.Context, c *task.Caller, q *aetherv1.TaskQuery) *aetherv1.TaskQueryResponse
	Operate(ctx context.Context, c *task.Caller, op *aetherv1.TaskOperation) *aetherv1.TaskOperationResponse
	Subscribe(ctx context.Context, c *task.Caller, op *aetherv1.TaskSubscriptionOperation, give func(*aetherv1.TaskEvent)) *aetherv1.TaskSubscriptionOperationResponse
	Reported(p *aetherv1.ProgressReport, workspace string)
	Forget(session string)
}

var _ Tasks = (*task.Service)(nil)

// joinTasks makes the session one that tasks are handed to.
func (s *Session) joinTasks(init *aetherv1.InitConnection) {
	if s.m.o.Tasks == nil || s.kind == acl.MetricsBridge || s.kind == acl.Orchestrator || s.kind == acl.WorkflowEngine {
		return
	}
	w := &task.Worker{Identity: s.identity, Session: s.id, Principal: s.principal, Deliver: s.handed}
	switch s.kind {
	case acl.Agent, acl.UniqueTask, acl.Task:
		w.Implementation = s.claim.Implementation
	case acl.Service:
		if !init.GetService().GetNoPoolConsumer() {
			w.Implementation = s.claim.Implementation
		}
	}
	s.worker = w
	s.m.o.Tasks.Join(w)
}

// leaveTasks hands back what the session was given.
func (s *Session) leaveTasks() {
	if s.m.o.Tasks == nil {
		return
	}
	s.worker.Leave()
	s.m.o.Tasks.Forget(s.id)
}

// handed gives the client a task, unless too much waits for it.
func (s *Session) handed(m *aetherv1.DownstreamMessage) bool {
	if s.over() || s.lease.Lost() || s.box.Unread() > maxUnread {
		return false
	}
	s.urgent(frame(m))
	return true
}

// taskCaller is the session as one that asks for something about tasks. It is made
// while the frame is acted on.
func (s *Session) taskCaller() *task.Caller {
	within := ""
	if w := s.started.worker; w != nil {
		within = w.Run.Task
	}
	return &task.Caller{
		Task: within, Identity: s.identity, Session: s.id, Principal: s.principal, Implementation: s.claim.Implementation, Worker: s.worker,
	}
}

// task acts on a frame about tasks; each is answered when the store has.
func (s *Session) task(m proto.Message, requestID string) {
	if len(requestID) > maxRequestText {
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "a request id has %d bytes, %d are allowed", len(requestID), maxRequestText))
		return
	}
	tasks, size := s.m.o.Tasks, proto.Size(m)
	if tasks == nil {
		s.refuse(requestID, wireerr.New(wireerr.NotImplemented, "there are no tasks here"))
		return
	}
	if err := s.sender.Spend(s.principal.Workspace, size); err != nil {
		s.refuse(requestID, err)
		return
	}
	c := s.taskCaller()
	err := s.later(size, func(ctx context.Context) {
		answer := s.doTask(ctx, c, m)
		if answer != nil && !s.over() {
			s.urgent(frame(answer))
		}
	})
	if err != nil {
		s.refuse(requestID, err)
	}
}

func (s *Session) doTask(ctx context.Context, c *task.Caller, m proto.Message) *aetherv1.DownstreamMessage {
	tasks := s.m.o.Tasks
	switch r := m.(type) {
	case *aetherv1.CreateTaskRequest:
		answer, err := tasks.CreateFor(ctx, c, r)
		switch {
		case r.GetRequestId() != "":
			return &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_CreateTask{CreateTask: answer}}
		case err != nil: // errors always come
			s.urgent(router.ErrorFrame("", err))
		}
	case *aetherv1.TaskQuery:
		return &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_TaskQuery{TaskQuery: tasks.Query(ctx, c, r)}}
	case *aetherv1.TaskOperation:
		return &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_TaskOp{TaskOp: tasks.Operate(ctx, c, r)}}
	case *aetherv1.TaskSubscriptionOperation:
		return &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_TaskSubscriptionResponse{
			TaskSubscriptionResponse: tasks.Subscribe(ctx, c, r, s.taskEvent),
		}}
	}
	return nil
}

// taskEvent gives the client an event that it has subscribed to. One who does
// not read loses events, and sees the task's state with the next.
func (s *Session) taskEvent(e *aetherv1.TaskEvent) {
	if s.over() || s.box.Unread() > maxUnread {
		return
	}
	s.urgent(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_TaskEvent{TaskEvent: e}}))
}
