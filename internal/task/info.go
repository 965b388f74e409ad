package task

import (
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
)

// statuses are the states as they are on the wire.
var statuses = map[store.TaskState]aetherv1.TaskStatus{
	store.TaskQueued:            aetherv1.TaskStatus_TASK_STATUS_QUEUED,
	store.TaskAssigned:          aetherv1.TaskStatus_TASK_STATUS_QUEUED,
	store.TaskStarting:          aetherv1.TaskStatus_TASK_STATUS_QUEUED,
	store.TaskRunning:           aetherv1.TaskStatus_TASK_STATUS_RUNNING,
	store.TaskWaitingInput:      aetherv1.TaskStatus_TASK_STATUS_WAITING_INPUT,
	store.TaskWaitingAuthority:  aetherv1.TaskStatus_TASK_STATUS_WAITING_AUTHORITY,
	store.TaskWaitingDependency: aetherv1.TaskStatus_TASK_STATUS_WAITING_DEPENDENCY,
	store.TaskHibernated:        aetherv1.TaskStatus_TASK_STATUS_HIBERNATED,
	store.TaskCompleted:         aetherv1.TaskStatus_TASK_STATUS_COMPLETED,
	store.TaskFailed:            aetherv1.TaskStatus_TASK_STATUS_FAILED,
	store.TaskCancelled:         aetherv1.TaskStatus_TASK_STATUS_CANCELLED,
	store.TaskRejected:          aetherv1.TaskStatus_TASK_STATUS_REJECTED,
}

// Status is a state as it is on the wire.
func Status(s store.TaskState) aetherv1.TaskStatus { return statuses[s] }

// statesOf are the states that a status stands for.
func statesOf(status aetherv1.TaskStatus) (states []store.TaskState) {
	for _, s := range States() {
		if statuses[s] == status {
			states = append(states, s)
		}
	}
	return states
}

// Info is a task as it is shown. Tokens, payloads and launch parameters are not.
func (s *Service) Info(t *store.Task) *aetherv1.TaskInfo {
	g := &t.Grant
	info := &aetherv1.TaskInfo{
		TaskId: t.ID, TaskType: t.Type, Status: Status(t.State), Workspace: t.Workspace, TargetTopic: t.Target, AssignedTo: t.AssignedTo,
		CreatedAt: seconds(t.CreatedAt), StartedAt: seconds(t.StartedAt), CompletedAt: seconds(t.EndedAt),
		Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Error: t.Reason,
		AuthorityMode: g.Mode, SubjectType: g.SubjectType, SubjectId: g.SubjectID, RootSubjectType: g.RootSubjectType, RootSubjectId: g.RootSubjectID,
		AuthorityGrantId: g.GrantID, RootAuthorityGrantId: g.RootGrantID, ParentAuthorityGrantId: g.ParentGrantID,
		CreatorActorId: t.Creator, ParentTaskId: t.ParentID, TaskClass: aetherv1.TaskClass(t.Class),
		DisconnectedAt: seconds(t.DisconnectedAt), GraceWindowMs: s.o.Grace.Milliseconds(), ContextId: t.ContextID,
		PausedAt: seconds(t.PausedAt), Priority: aetherv1.TaskPriority(t.Priority), CorrelationId: t.CorrelationID, RootTaskId: t.RootID,
	}
	if t.Mode == store.TaskPool {
		info.TargetTopic = pooled(t)
	}
	if spec, err := DecodeSpec(t.Spec); err == nil {
		info.Metadata = spec.Metadata
		if spec.Done != nil {
			info.CompletionEvent = spec.Done.wire()
		}
	}
	if w := decodeWait(t.Wait); w != nil {
		info.WaitSpec, info.DependsOn = w.wire(), w.DependsOn
	}
	return info
}

func (d *Done) wire() *aetherv1.TaskCompletionEvent {
	e := &aetherv1.TaskCompletionEvent{Enabled: true, EventName: d.Name}
	for _, on := range d.On {
		e.OnStatuses = append(e.OnStatuses, aetherv1.TaskStatus(on))
	}
	return e
}

// seconds is a time on the wire; 0 is none.
func seconds(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.Unix()
}
