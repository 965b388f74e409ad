package task

import (
	"context"
	"errors"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Bounds of what a client says of a task.
const (
	maxText      = 256
	maxMapKeys   = 64
	maxMapBytes  = 16 << 10
	maxRequestID = 128
	// tokenParam is the launch parameter that only the gateway sets.
	tokenParam = "auth_token"
)

// TypeStart is the type of the tasks by which the gateway starts somebody; a
// client creates none of it.
const TypeStart = "start"

// What CreateTaskResponse.status says, besides the states of a task.
const (
	statusAssigned  = "assigned"
	statusTriggered = "orchestration_triggered"
	statusPool      = "pending_pool"
)

// CreateFor creates a task for a caller.
func (s *Service) CreateFor(ctx context.Context, c *Caller, r *aetherv1.CreateTaskRequest) (*aetherv1.CreateTaskResponse, *wireerr.Error) {
	answer := &aetherv1.CreateTaskResponse{RequestId: r.GetRequestId()}
	if err := s.createFor(ctx, c, r, answer); err != nil {
		s.refused(c, "create task", cmpOr(r.GetTargetAgentId(), r.GetTargetImplementation()), err)
		return &aetherv1.CreateTaskResponse{RequestId: r.GetRequestId(), ErrorCode: string(err.Code), ErrorMessage: err.Message}, err
	}
	answer.Success = true
	return answer, nil
}

func (s *Service) createFor(ctx context.Context, c *Caller, r *aetherv1.CreateTaskRequest, answer *aetherv1.CreateTaskResponse) *wireerr.Error {
	t, to, err := s.draft(c, r)
	if err != nil {
		return err
	}
	if err := s.relate(ctx, c, r, t); err != nil {
		return err
	}
	if err := s.room(ctx, t.Workspace); err != nil {
		return err
	}
	if r.GetAuthorization() != nil {
		if s.grants() == nil {
			return wireerr.New(wireerr.GrantInvalid, "authorization: there is no such grant")
		}
		if t.Grant, err = s.grants().ForTask(ctx, c, r.GetAuthorization(), t, to); err != nil {
			return err
		}
	}
	s.place(c, t)
	stored, created, failed := s.Create(ctx, *t)
	if failed == nil && !created && t.Launch != "" && stored.IdempotencyKey != t.IdempotencyKey || errors.Is(failed, store.ErrActive) {
		// Its identity is being started: it waits until that has come.
		t.Launch = ""
		stored, created, failed = s.Create(ctx, *t)
	}
	if t.Grant.GrantID != "" && (failed != nil || !created) {
		s.troubled("the grant of a task that came to nothing could not be taken back", s.grants().EndTask(ctx, t.ID))
	}
	if failed != nil {
		return s.away(failed)
	}
	if created {
		s.o.Audit.Record(audit.Event{
			Kind: audit.Task, Actor: c.Identity, Action: "create task", Target: stored.ID, Outcome: audit.OK,
			Detail: string(stored.Mode) + " " + cmpOr(stored.Target, stored.Implementation),
		})
		s.handFirst(ctx, c, r, &stored, answer)
	}
	answer.TaskId, answer.AssignedTo, answer.AuthorityGrantId = stored.ID, stored.AssignedTo, stored.Grant.GrantID
	answer.Status = statusOf(&stored)
	return nil
}

// statusOf is how a task that was created stands.
func statusOf(t *store.Task) string {
	switch {
	case t.State == store.TaskQueued && t.Mode == store.TaskPool:
		return statusPool
	case t.State == store.TaskQueued && t.Launch != "", t.State == store.TaskStarting,
		t.State == store.TaskAssigned && t.Launch != "" && t.AssignedTo != t.Launch:
		return statusTriggered
	case t.State == store.TaskAssigned:
		return statusAssigned
	}
	return string(t.State)
}

// place says where a new task begins.
func (s *Service) place(c *Caller, t *store.Task) {
	switch t.Mode {
	case store.TaskSelf:
		t.State, t.AssignedTo = store.TaskAssigned, c.Identity
		t.Holder, t.HolderSession, t.HolderGateway = c.Identity, c.Session, s.o.Presence.Self().ID
	case store.TaskTargeted:
		held, certain := s.o.Presence.Held(t.Target)
		if !held && certain && s.starter() != nil && s.starter().Launchable(t.Workspace, t.Implementation) {
			t.Launch = t.Target
		}
	}
}

// handFirst does what follows the creation of a task.
func (s *Service) handFirst(ctx context.Context, c *Caller, r *aetherv1.CreateTaskRequest, t *store.Task, answer *aetherv1.CreateTaskResponse) {
	if r.GetTargetIdentity() != "" {
		s.issue(ctx, c, r.GetTargetIdentity(), t, answer)
		return
	}
	switch {
	case t.Mode == store.TaskSelf:
		if c.Worker != nil {
			s.workers.hold(c.Worker, t)
		}
	case t.Launch != "":
		s.starter().Launch(*t)
	case t.Mode == store.TaskTargeted:
		if handed, _ := s.handTarget(ctx, t); handed {
			if now, ok, err := s.o.Store.Task(ctx, t.ID); err == nil && ok {
				*t = now
			}
		}
	case t.Mode == store.TaskPool:
		s.queue(t)
	}
}

// issue makes the token of a task whose worker its creator starts itself.
func (s *Service) issue(ctx context.Context, c *Caller, identity string, t *store.Task, answer *aetherv1.CreateTaskResponse) {
	token, hash := s.o.NewToken()
	stored, err := s.Change(ctx, t.ID, func(t *store.Task) error {
		if t.State == store.TaskQueued {
			if err := Move(t, Assign, "", s.o.Now()); err != nil {
				return err
			}
		}
		if t.State != store.TaskAssigned {
			return impossible(Assign, t.State)
		}
		t.Launch, t.AssignedTo, t.TokenHash = identity, identity, hash
		t.Holder, t.HolderSession, t.HolderGateway = c.Identity, c.Session, s.o.Presence.Self().ID
		t.DueAt = s.o.Now().Add(s.o.StartDeadline)
		return nil
	})
	if err != nil {
		s.troubled("the token of a task could not be stored", err)
		return // the task waits; it is answered without a token
	}
	*t, answer.TaskToken = stored, token
}

// draft checks a request and makes the task of it. to is the address of who is
// to do it; zero for the creator.
func (s *Service) draft(c *Caller, r *aetherv1.CreateTaskRequest) (*store.Task, address.Address, *wireerr.Error) {
	bad := func(format string, args ...any) (*store.Task, address.Address, *wireerr.Error) {
		return nil, address.Address{}, wireerr.New(wireerr.InvalidArgument, format, args...)
	}
	for name, text := range map[string]string{
		"task_type": r.GetTaskType(), "context_id": r.GetContextId(), "idempotency_key": r.GetIdempotencyKey(),
		"correlation_id": r.GetCorrelationId(), "root_task_id": r.GetRootTaskId(), "target_implementation": r.GetTargetImplementation(),
	} {
		if len(text) > maxText {
			return bad("%s has %d bytes, %d are allowed", name, len(text), maxText)
		}
	}
	switch {
	case len(r.GetRequestId()) > maxRequestID:
		return bad("request_id has %d bytes, %d are allowed", len(r.GetRequestId()), maxRequestID)
	case !known(aetherv1.TaskAssignmentMode_name, int32(r.GetAssignmentMode())):
		return bad("assignment_mode %d is unknown", r.GetAssignmentMode())
	case !known(aetherv1.TaskClass_name, int32(r.GetTaskClass())):
		return bad("task_class %d is unknown", r.GetTaskClass())
	case !known(aetherv1.TaskPriority_name, int32(r.GetPriority())):
		return bad("priority %d is unknown", r.GetPriority())
	case len(r.GetPayload()) > s.o.Router.MaxPayload():
		return nil, address.Address{}, wireerr.New(wireerr.PayloadTooLarge, "the payload has %d bytes, %d are allowed", len(r.GetPayload()), s.o.Router.MaxPayload())
	case r.GetCompletionEvent().GetEnabled():
		return nil, address.Address{}, wireerr.New(wireerr.NotImplemented, "completion_event is not supported: subscribe to the task, or read its notices")
	}
	if err := checkMap("metadata", r.GetMetadata()); err != nil {
		return nil, address.Address{}, err
	}
	if err := checkMap("launch_param_overrides", r.GetLaunchParamOverrides()); err != nil {
		return nil, address.Address{}, err
	}
	if _, reserved := r.GetLaunchParamOverrides()[tokenParam]; reserved {
		return bad("launch_param_overrides: %s is the gateway's to set", tokenParam)
	}
	if r.GetTaskType() == TypeStart {
		return bad("task_type %s is the gateway's own", TypeStart)
	}
	retry, attempts, err := retryOf(r.GetRetryPolicy())
	if err != nil {
		return nil, address.Address{}, err
	}
	id, noID := uuid.NewV7()
	if noID != nil {
		return nil, address.Address{}, wireerr.New(wireerr.TaskCreateFailed, "no id could be drawn")
	}
	t := &store.Task{
		ID: id.String(), Type: r.GetTaskType(), Creator: c.Identity, ContextID: r.GetContextId(), CorrelationID: r.GetCorrelationId(),
		IdempotencyKey: r.GetIdempotencyKey(), Class: int32(r.GetTaskClass()), Priority: int32(r.GetPriority()),
		MaxAttempts: attempts, Payload: r.GetPayload(),
	}
	if t.Priority == 0 {
		t.Priority = int32(aetherv1.TaskPriority_TASK_PRIORITY_NORMAL)
	}
	to, err := s.address(c, r, t)
	if err != nil {
		return nil, address.Address{}, err
	}
	if err := s.checkOverrides(t, r.GetLaunchParamOverrides()); err != nil {
		return nil, address.Address{}, err
	}
	t.Spec = (&Spec{Metadata: r.GetMetadata(), Overrides: r.GetLaunchParamOverrides(), Retry: retry, TokenFor: r.GetTargetIdentity()}).Encode()
	return t, to, nil
}

// address finds who is to do the task and in which workspace, and whether the
// caller may have it done.
func (s *Service) address(c *Caller, r *aetherv1.CreateTaskRequest, t *store.Task) (to address.Address, err *wireerr.Error) {
	var bad error
	switch r.GetAssignmentMode() {
	case aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_SELF_ASSIGN:
		t.Mode = store.TaskSelf
	case aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_TARGETED:
		t.Mode = store.TaskTargeted
		if to, bad = address.Parse(r.GetTargetAgentId()); bad != nil {
			return to, wireerr.New(wireerr.InvalidArgument, "target_agent_id must be an identity such as ag::workspace::impl::spec: %v", bad)
		}
		switch to.Prefix() {
		case address.PrefixAgent, address.PrefixUniqueTask, address.PrefixTask, address.PrefixService, address.PrefixUser:
		default:
			return to, wireerr.New(wireerr.InvalidArgument, "target_agent_id: nobody is handed tasks at %s", to)
		}
		t.Target, t.Implementation = to.String(), to.Implementation()
	case aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_POOL:
		t.Mode, t.Implementation = store.TaskPool, r.GetTargetImplementation()
	}
	if t.Workspace, err = s.workspace(c, r.GetWorkspace(), to); err != nil {
		return to, err
	}
	if t.Mode == store.TaskPool {
		if to, bad = address.TaskBroadcast(t.Workspace, t.Implementation); bad != nil {
			return to, wireerr.New(wireerr.InvalidArgument, "target_implementation: %v", bad)
		}
	}
	if !to.IsZero() {
		if d := s.o.Router.Decide(&c.Principal, to); !d.Allowed {
			return to, wireerr.New(wireerr.PermissionDenied, "%s", d.Message(&c.Principal, to))
		}
	} else if c.Principal.Kind == acl.MetricsBridge {
		return to, wireerr.New(wireerr.PermissionDenied, "metrics bridges create no tasks")
	}
	return to, s.mayIssue(c, r, t)
}

// mayIssue refuses a token for an identity that the caller does not manage.
func (s *Service) mayIssue(c *Caller, r *aetherv1.CreateTaskRequest, t *store.Task) *wireerr.Error {
	if r.GetTargetIdentity() == "" {
		return nil
	}
	who, bad := address.Parse(r.GetTargetIdentity())
	switch {
	case bad != nil:
		return wireerr.New(wireerr.InvalidArgument, "target_identity: %v", bad)
	case who.Prefix() != address.PrefixAgent && who.Prefix() != address.PrefixUniqueTask && who.Prefix() != address.PrefixTask:
		return wireerr.New(wireerr.InvalidArgument, "target_identity must be an agent or a task")
	case t.Mode == store.TaskPool, t.Mode == store.TaskTargeted && t.Target != who.String():
		return wireerr.New(wireerr.InvalidArgument, "target_identity must be who does the task")
	case who.Workspace() != t.Workspace:
		return wireerr.New(wireerr.PermissionDenied, "target_identity is in another workspace")
	case !acl.Permit(&c.Principal, acl.ActionTaskManage, who, acl.Decision{}, s.o.Rules).Allowed:
		return wireerr.New(wireerr.PermissionDenied, "no rule lets the creator manage the tasks of target_identity")
	case s.o.NewToken == nil:
		return wireerr.New(wireerr.NotImplemented, "task tokens are not supported")
	}
	t.Target, t.Implementation = who.String(), who.Implementation()
	if t.Mode == store.TaskSelf {
		t.Mode = store.TaskTargeted
	}
	return nil
}

// workspace is where a task is.
func (s *Service) workspace(c *Caller, named string, to address.Address) (string, *wireerr.Error) {
	p := &c.Principal
	ws := named
	if ws == "" {
		ws = p.Workspace
	}
	if ws == "" {
		ws = to.Workspace()
	}
	if only, one := p.Workspaces.Only(); ws == "" && one && !p.Kind.WorkspaceScoped() {
		ws = only
	}
	switch {
	case ws == "":
		return "", wireerr.New(wireerr.InvalidArgument, "workspace is empty, and the credential covers several")
	case address.ValidWorkspace(ws) != nil:
		return "", wireerr.New(wireerr.InvalidArgument, "workspace: %v", address.ValidWorkspace(ws))
	case !acl.CoversWorkspace(p, ws):
		return "", wireerr.New(wireerr.PermissionDenied, "the creator is not in workspace %.64q", ws)
	case to.Workspace() != "" && to.Workspace() != ws:
		return "", wireerr.New(wireerr.InvalidArgument, "the target is in another workspace than the task")
	case !s.o.Exists(ws):
		return "", wireerr.New(wireerr.NotFound, "workspace %.64q does not exist", ws)
	}
	return ws, nil
}

func (s *Service) checkOverrides(t *store.Task, overrides map[string]string) *wireerr.Error {
	if len(overrides) == 0 {
		return nil
	}
	if s.starter() == nil || t.Mode != store.TaskTargeted {
		return wireerr.New(wireerr.InvalidArgument, "launch_param_overrides: nothing is launched for this task")
	}
	if err := s.starter().CheckOverrides(t.Workspace, t.Implementation, overrides); err != nil {
		if refusal, ok := errors.AsType[*wireerr.Error](err); ok {
			return refusal
		}
		return wireerr.New(wireerr.InvalidArgument, "launch_param_overrides: %v", err)
	}
	return nil
}

// relate finds the task's parent and root.
func (s *Service) relate(ctx context.Context, c *Caller, r *aetherv1.CreateTaskRequest, t *store.Task) *wireerr.Error {
	within, bad := s.workedOn(ctx, c)
	if bad != nil {
		return s.away(bad)
	}
	if within != "" {
		parent, ok, err := s.o.Store.Task(ctx, within)
		if err != nil {
			return s.away(err)
		}
		if ok && parent.Workspace == t.Workspace {
			t.ParentID, t.RootID = parent.ID, parent.RootID
		}
	}
	if id := r.GetRootTaskId(); id != "" && id != t.RootID {
		root, err := s.visible(ctx, c, id)
		if err != nil {
			return err
		}
		if root.Workspace != t.Workspace {
			return noTask()
		}
		t.RootID = root.RootID
		if t.ParentID == "" {
			t.ParentID = root.ID
		}
	}
	return nil
}

// room refuses a task of a workspace that has too many open ones.
func (s *Service) room(ctx context.Context, workspace string) *wireerr.Error {
	n, known := s.open.known(workspace, s.o.Now())
	if !known {
		var err error
		if n, err = s.o.Store.CountTasks(ctx, store.TaskFilter{Workspaces: []string{workspace}, Active: true}, s.o.MaxOpen); err != nil {
			return s.away(err)
		}
		s.open.set(workspace, n, s.o.Now())
	}
	if n >= s.o.MaxOpen {
		return wireerr.New(wireerr.QuotaExceeded, "the workspace has %d tasks that have not ended, no more are allowed", n)
	}
	return nil
}

// checkMap bounds a map of texts.
func checkMap(name string, m map[string]string) *wireerr.Error {
	if len(m) > maxMapKeys {
		return wireerr.New(wireerr.InvalidArgument, "%s has %d keys, %d are allowed", name, len(m), maxMapKeys)
	}
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	if n > maxMapBytes {
		return wireerr.New(wireerr.InvalidArgument, "%s has %d bytes, %d are allowed", name, n, maxMapBytes)
	}
	return nil
}

// moveGrant gives the grant of a task to who works on it now, or takes it back.
func (s *Service) moveGrant(ctx context.Context, id string) {
	t, ok, err := s.o.Store.Task(ctx, id)
	if err == nil && ok && s.grants() != nil {
		if t.State.Over() {
			err = s.grants().EndTask(ctx, id)
		} else if t.AssignedTo != "" {
			err = s.grants().AssignTask(ctx, id, t.AssignedTo)
		}
	}
	s.troubled("the grant of a task could not be moved", err)
}
