package task

import (
	"context"
	"errors"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// retryAfter is when a client may try again what the store could not do.
const retryAfter = time.Second

// allowedTo are the roles that may do an operation. Whoever has another one is
// told that it may not, whoever has none that there is no such task.
var allowedTo = map[aetherv1.TaskOperation_OpType]role{
	aetherv1.TaskOperation_OP_TYPE_RETRY:    creator | subject | manager,
	aetherv1.TaskOperation_OP_TYPE_CANCEL:   creator | assignee | subject | manager,
	aetherv1.TaskOperation_OP_TYPE_COMPLETE: creator | assignee | subject | manager,
	aetherv1.TaskOperation_OP_TYPE_FAIL:     creator | assignee | subject | manager,
	aetherv1.TaskOperation_OP_TYPE_PAUSE:    creator | assignee | subject | manager,
	aetherv1.TaskOperation_OP_TYPE_RESUME:   creator | assignee | subject | manager,
	aetherv1.TaskOperation_OP_TYPE_WAIT_FOR: assignee | manager,
	aetherv1.TaskOperation_OP_TYPE_REJECT:   assignee | manager,
}

// Operate moves a task for a caller.
func (s *Service) Operate(ctx context.Context, c *Caller, op *aetherv1.TaskOperation) *aetherv1.TaskOperationResponse {
	answer := &aetherv1.TaskOperationResponse{RequestId: op.GetRequestId()}
	t, err := s.operate(ctx, c, op)
	if err != nil {
		answer.Error, answer.Message = err.Error(), err.Message
		s.refused(c, "task "+opName(op.GetOp()), op.GetTaskId(), err)
		return answer
	}
	answer.Success, answer.Task, answer.Message = true, s.Info(t), "the task is "+words(t.State)
	return answer
}

func opName(op aetherv1.TaskOperation_OpType) string {
	return strings.ToLower(strings.TrimPrefix(op.String(), "OP_TYPE_"))
}

// refused records a refusal in the audit.
func (s *Service) refused(c *Caller, action, target string, err *wireerr.Error) {
	if entry, ok := wireerr.Lookup(err.Code); ok && entry.Fault == wireerr.Server {
		return
	}
	s.o.Audit.Record(audit.Event{
		Kind: audit.Refusal, Actor: c.Identity, Action: action, Target: target, Outcome: audit.Refused, Reason: string(err.Code), Detail: err.Message,
	})
}

func (s *Service) operate(ctx context.Context, c *Caller, op *aetherv1.TaskOperation) (*store.Task, *wireerr.Error) {
	switch {
	case !known(aetherv1.TaskOperation_OpType_name, int32(op.GetOp())):
		return nil, wireerr.New(wireerr.InvalidArgument, "op %d of a task is unknown", op.GetOp())
	case op.GetTaskId() == "":
		return nil, wireerr.New(wireerr.InvalidArgument, "task_id is empty")
	case len(op.GetTaskId()) > maxID:
		return nil, noTask()
	case len(op.GetReason()) > maxReason:
		return nil, wireerr.New(wireerr.InvalidArgument, "reason has %d bytes, %d are allowed", len(op.GetReason()), maxReason)
	}
	if op.GetOp() == aetherv1.TaskOperation_OP_TYPE_CLAIM {
		return s.claim(ctx, c, op)
	}
	var wait *Wait
	if op.GetOp() == aetherv1.TaskOperation_OP_TYPE_WAIT_FOR {
		var err *wireerr.Error
		if wait, err = s.prepareWait(ctx, c, op); err != nil {
			return nil, err
		}
	}
	var before store.Task
	after, err := s.change(ctx, op.GetTaskId(), func(t *store.Task) error {
		before = *t
		has := s.roles(c, t)
		switch {
		case has == 0:
			return noTask()
		case has&allowedTo[op.GetOp()] == 0:
			return wireerr.New(wireerr.PermissionDenied, "%s", notAllowed(op.GetOp()))
		}
		return s.apply(t, op, has, c, wait)
	})
	if err == nil && !c.is(before.AssignedTo) && !c.is(before.Holder) {
		s.stopWorker(&before, after)
	}
	return after, err
}

// notAllowed says who may do an operation, to somebody who sees the task and may
// not.
func notAllowed(op aetherv1.TaskOperation_OpType) string {
	if op == aetherv1.TaskOperation_OP_TYPE_RETRY {
		return "only who has created the task or an operator may try it again"
	}
	return "only who works on the task or an operator may do this"
}

// change is Change with errors for clients.
func (s *Service) change(ctx context.Context, id string, decide func(*store.Task) error) (*store.Task, *wireerr.Error) {
	t, err := s.Change(ctx, id, decide)
	refusal, refused := errors.AsType[*wireerr.Error](err)
	switch {
	case err == nil:
		return &t, nil
	case refused:
		return nil, refusal
	case errors.Is(err, store.ErrNotFound):
		return nil, noTask()
	case errors.Is(err, ErrImpossible):
		return nil, wireerr.New(wireerr.InvalidArgument, "%s", strings.TrimPrefix(err.Error(), ErrImpossible.Error()+": ")).Because(err)
	case errors.Is(err, store.ErrActive):
		return nil, wireerr.New(wireerr.InvalidArgument, "another start of the identity is active")
	}
	return nil, s.away(err)
}

// apply makes the transition of an operation.
func (s *Service) apply(t *store.Task, op *aetherv1.TaskOperation, has role, c *Caller, wait *Wait) error {
	now, why := s.o.Now(), op.GetReason()
	switch op.GetOp() {
	case aetherv1.TaskOperation_OP_TYPE_RETRY:
		return again(t, why, now)
	case aetherv1.TaskOperation_OP_TYPE_CANCEL:
		return Move(t, Cancel, why, now)
	case aetherv1.TaskOperation_OP_TYPE_COMPLETE:
		return Move(t, Complete, why, now)
	case aetherv1.TaskOperation_OP_TYPE_FAIL:
		return s.fail(t, cmpOr(why, "it failed"))
	case aetherv1.TaskOperation_OP_TYPE_PAUSE:
		if t.Launch != "" && t.State == store.TaskAssigned {
			return impossible(Pause, t.State) // an orchestrator is at it
		}
		return Move(t, Pause, why, now)
	case aetherv1.TaskOperation_OP_TYPE_RESUME:
		return resume(t, why, now)
	case aetherv1.TaskOperation_OP_TYPE_WAIT_FOR:
		return s.await(t, wait, why, now)
	case aetherv1.TaskOperation_OP_TYPE_REJECT:
		return s.reject(t, has, c, why, now)
	}
	return impossible(0, t.State)
}

// again tries a task once more that has ended.
func again(t *store.Task, why string, now time.Time) error {
	if t.State.Over() && t.Grant.GrantID != "" {
		return wireerr.New(wireerr.GrantInvalid, "the task was done in another's name, by a grant that has ended with it: create it anew under a grant")
	}
	t.Missed = ""
	return Move(t, Retry, why, now)
}

// resume lets a task go on; the grace of a worker that has gone begins anew.
func resume(t *store.Task, why string, now time.Time) error { return Move(t, Resume, why, now) }

// reject is the refusal of a worker: a task of a pool goes to another one, and
// what an orchestrator cannot start is tried again.
func (s *Service) reject(t *store.Task, has role, c *Caller, why string, now time.Time) error {
	switch {
	case has&manager == 0 && t.Launch != "" && !c.is(t.Target):
		return s.fail(t, cmpOr(why, "the orchestrator refuses to start it"))
	case has&manager == 0 && t.Mode == store.TaskPool:
		if err := Move(t, Back, why, now); err != nil {
			return err
		}
		t.Missed = missed(t.Missed, c.Identity)
		return nil
	}
	return Move(t, Reject, why, now)
}

// maxMissed is how many workers a task remembers that refused it; the oldest
// are asked again.
const maxMissed = 32

func missed(list, identity string) string {
	all := append(strings.Fields(list), identity)
	if len(all) > maxMissed {
		all = all[len(all)-maxMissed:]
	}
	return strings.Join(all, " ")
}

// claim lets a worker take a task: one that waits in its pool or for it, or says
// that it is at work on one that it was handed. Of several one wins.
func (s *Service) claim(ctx context.Context, c *Caller, op *aetherv1.TaskOperation) (*store.Task, *wireerr.Error) {
	held := false
	if c.Worker != nil {
		held = s.workers.hold(c.Worker, &store.Task{ID: op.GetTaskId(), Mode: store.TaskTargeted})
	}
	t, err := s.change(ctx, op.GetTaskId(), func(t *store.Task) error {
		if s.roles(c, t) == 0 && !s.claimable(c, t) {
			return noTask()
		}
		now := s.o.Now()
		switch {
		case t.Launch != "" && c.is(t.Holder) && (t.State == store.TaskAssigned || t.State == store.TaskStarting):
			return starts(t, now)
		case t.State == store.TaskQueued && s.claimable(c, t):
			if err := Move(t, Assign, "", now); err != nil {
				return err
			}
			t.Launch = ""
		case t.State == store.TaskAssigned && c.is(t.AssignedTo):
			if t.Launch != "" {
				return impossible(Run, t.State) // it says so by connecting
			}
		case t.State == store.TaskAssigned || t.State == store.TaskRunning || t.State == store.TaskStarting:
			return wireerr.New(wireerr.InvalidArgument, "the task is somebody's already")
		}
		if err := Move(t, Run, "", now); err != nil {
			return err
		}
		t.AssignedTo = c.Identity
		t.Holder, t.HolderSession, t.HolderGateway = c.Identity, c.Session, s.o.Presence.Self().ID
		t.Wait = ""
		return nil
	})
	if held && (err != nil || t.State == store.TaskStarting) {
		s.forgetClaim(ctx, c, op.GetTaskId())
	}
	if err == nil && c.Worker != nil && c.Worker.gone() {
		s.chores.add(chore{kind: choreLeft, worker: c.Worker})
	}
	return t, err
}

// starts notes that who has a start in hand is at it: its worker is to come before
// the deadline all the same.
func starts(t *store.Task, now time.Time) error {
	if t.State == store.TaskStarting {
		return ErrUnchanged
	}
	due := t.DueAt
	if err := Move(t, Launch, "", now); err != nil {
		return err
	}
	t.DueAt = due
	return nil
}

// forgetClaim drops a task that the worker tried to claim, unless it is its own
// from before.
func (s *Service) forgetClaim(ctx context.Context, c *Caller, id string) {
	if t, ok, err := s.o.Store.Task(ctx, id); err == nil && ok && t.HolderSession == c.Session && t.Launch == "" && !t.State.Over() {
		return
	}
	s.workers.drop(c.Worker, id)
}

// claimable reports whether a caller may take a task that waits for a worker: it
// is of the pool, or the one that the task is for.
func (s *Service) claimable(c *Caller, t *store.Task) bool {
	if !c.inside(t.Workspace) {
		return false
	}
	switch t.Mode {
	case store.TaskPool:
		switch c.Principal.Kind {
		case acl.Agent, acl.UniqueTask, acl.Task, acl.Service:
			return c.Implementation != "" && c.Implementation == t.Implementation
		}
	case store.TaskTargeted:
		return t.Target == c.Identity
	case store.TaskSelf:
		return c.is(t.Creator)
	}
	return false
}
