package admin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Tasks are those of all clients: a [task.Service].
type Tasks interface {
	Page(ctx context.Context, f store.TaskFilter, token string, offset, limit int) (*task.Page, *wireerr.Error)
	Find(ctx context.Context, id string) (*aetherv1.TaskInfo, *wireerr.Error)
	Steer(ctx context.Context, id string, e task.Event, reason string) (*aetherv1.TaskInfo, *wireerr.Error)
}

// statusName is a status as operators write it.
func statusName(s aetherv1.TaskStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "TASK_STATUS_"))
}

func taskMessage(i *aetherv1.TaskInfo) *adminv1.Task {
	return &adminv1.Task{
		TaskId: i.GetTaskId(), TaskType: i.GetTaskType(), Status: statusName(i.GetStatus()), Workspace: i.GetWorkspace(), TargetTopic: i.GetTargetTopic(),
		AssignedTo: i.GetAssignedTo(), CreatedAt: i.GetCreatedAt(), StartedAt: i.GetStartedAt(), CompletedAt: i.GetCompletedAt(),
		Attempt: i.GetAttempt(), MaxAttempts: i.GetMaxAttempts(), Error: i.GetError(), Metadata: i.GetMetadata(),
		SubjectType: i.GetSubjectType(), SubjectId: i.GetSubjectId(), AuthorityGrantId: i.GetAuthorityGrantId(), CreatorActorId: i.GetCreatorActorId(),
		ParentTaskId: i.GetParentTaskId(), RootTaskId: i.GetRootTaskId(), DisconnectedAt: i.GetDisconnectedAt(), PausedAt: i.GetPausedAt(),
		ContextId: i.GetContextId(), CorrelationId: i.GetCorrelationId(),
	}
}

func (s *Service) tasks() (Tasks, error) {
	if s.o.Tasks == nil {
		return nil, status.Error(codes.FailedPrecondition, "this gateway keeps no tasks")
	}
	return s.o.Tasks, nil
}

// refusedTask is the status of a refusal; of nil it is nil.
func refusedTask(err *wireerr.Error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, task.ErrImpossible) { // the request is right, the task's state is not
		return status.Error(codes.FailedPrecondition, err.Message)
	}
	return status.Error(err.GRPC(), err.Message)
}

// ListTasks implements the service.
func (s *Service) ListTasks(ctx context.Context, r *adminv1.ListTasksRequest) (*adminv1.ListTasksResponse, error) {
	t, err := s.tasks()
	if err != nil {
		return nil, err
	}
	f := store.TaskFilter{Type: r.GetTaskType(), Around: r.GetIdentity()}
	if r.GetWorkspace() != "" {
		f.Workspaces = []string{r.GetWorkspace()}
	}
	var names []string
	for _, state := range task.States() {
		names = append(names, statusName(task.Status(state)))
		if slices.Contains(r.GetStatuses(), statusName(task.Status(state))) {
			f.States = append(f.States, state)
		}
	}
	for _, name := range r.GetStatuses() {
		if !slices.Contains(names, name) {
			return nil, status.Errorf(codes.InvalidArgument, "status %.64q does not exist; it is one of %s", name, strings.Join(slices.Compact(names), ", "))
		}
	}
	page, refusal := t.Page(ctx, f, r.GetPageToken(), 0, pageSize(r.GetPageSize()))
	if refusal != nil {
		return nil, refusedTask(refusal)
	}
	answer := &adminv1.ListTasksResponse{NextPageToken: page.Next}
	for _, i := range page.Tasks {
		answer.Tasks = append(answer.Tasks, taskMessage(i))
	}
	return answer, nil
}

// GetTask implements the service.
func (s *Service) GetTask(ctx context.Context, r *adminv1.GetTaskRequest) (*adminv1.GetTaskResponse, error) {
	t, err := s.tasks()
	if err != nil {
		return nil, err
	}
	info, refusal := t.Find(ctx, r.GetTaskId())
	if refusal != nil {
		return nil, refusedTask(refusal)
	}
	return &adminv1.GetTaskResponse{Task: taskMessage(info)}, nil
}

// MoveTask implements the service.
func (s *Service) MoveTask(ctx context.Context, r *adminv1.MoveTaskRequest) (*adminv1.MoveTaskResponse, error) {
	t, err := s.tasks()
	if err != nil {
		return nil, err
	}
	var e task.Event
	switch r.GetAction() {
	case "retry":
		e = task.Retry
	case "cancel":
		e = task.Cancel
	default:
		return nil, status.Errorf(codes.InvalidArgument, "action %.64q does not exist; it is retry or cancel", r.GetAction())
	}
	info, refusal := t.Steer(ctx, r.GetTaskId(), e, r.GetReason())
	err = refusedTask(refusal)
	s.acted(ctx, audit.Operate, "task "+r.GetAction(), r.GetTaskId(), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.MoveTaskResponse{Task: taskMessage(info)}, nil
}

// WatchTask implements the service. Progress is seen in what is stored, of which
// every gateway reads all; the task itself is looked at once a second, and after
// each report.
func (s *Service) WatchTask(r *adminv1.WatchTaskRequest, st grpc.ServerStreamingServer[adminv1.WatchTaskResponse]) error {
	t, err := s.tasks()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	info, refusal := t.Find(ctx, r.GetTaskId())
	if refusal != nil {
		return refusedTask(refusal)
	}
	a, err := address.Progress(info.GetWorkspace())
	if err != nil {
		return status.Error(codes.Internal, "the task is in no workspace")
	}
	o, stop, err := s.o.Router.Observe(a, nil)
	if err != nil {
		return status.Error(codes.ResourceExhausted, "this gateway has as many observers as it allows; end one, or ask another gateway")
	}
	defer stop()
	var last *aetherv1.TaskInfo
	for {
		if info, refusal = t.Find(ctx, r.GetTaskId()); refusal != nil {
			return refusedTask(refusal)
		}
		if !proto.Equal(last, info) {
			last = info
			if err := st.Send(&adminv1.WatchTaskResponse{Task: taskMessage(info)}); err != nil {
				return err
			}
		}
		if info.GetCompletedAt() != 0 {
			return nil
		}
		p, err := s.nextProgress(ctx, o, r.GetTaskId())
		if err != nil {
			return err
		}
		if p != nil {
			if err := st.Send(&adminv1.WatchTaskResponse{Progress: p}); err != nil {
				return err
			}
		}
	}
}

// nextProgress waits a moment for progress of a task, nil if none comes.
func (s *Service) nextProgress(ctx context.Context, o *router.Observer, id string) (*adminv1.TaskProgress, error) {
	waiting, cancel := context.WithTimeout(ctx, recheckEvery)
	defer cancel()
	for {
		m, _, err := o.Next(waiting)
		switch revoked := s.counts(operatorOf(ctx).credential); {
		case s.closing.Err() != nil:
			return nil, status.Error(codes.Unavailable, "the gateway is shutting down; ask another")
		case revoked != nil:
			return nil, status.Error(auth.Code(revoked), revoked.Error())
		case ctx.Err() != nil:
			return nil, status.FromContextError(ctx.Err()).Err()
		case err != nil:
			return nil, nil //nolint:nilerr // the moment is over
		}
		var e aetherv1.MessageEnvelope
		var u aetherv1.ProgressUpdate
		if proto.Unmarshal(m.Envelope, &e) != nil || proto.Unmarshal(e.GetPayload(), &u) != nil || u.GetTaskId() != id {
			continue
		}
		return &adminv1.TaskProgress{
			Source: u.GetSource(), State: u.GetState(), Completion: u.GetCompletion(), Summary: u.GetSummary(), Step: u.GetStep().GetName(),
			TimestampMs: u.GetTimestampMs(),
		}, nil
	}
}
