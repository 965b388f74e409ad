package gateway_test

import (
	"context"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

// shortGrace is the grace window of gateways whose tests let it end.
const shortGrace = 300 * time.Millisecond

// graceEnds lets workers go from tasks that run: the task fails, or is tried
// again as often as its policy says; one whose gateway vanished as well is found
// by the sweep.
func graceEnds(t *testing.T, g *gatewaytest.Gateway) {
	t.Helper()
	boss := agentHand(t, g, "boss", "1")
	running := func(impl string, r *aetherv1.CreateTaskRequest) (*hand, string) {
		t.Helper()
		w := workerHand(t, g, impl)
		r.AssignmentMode, r.TargetImplementation = pooled, impl
		id := boss.create(r).GetTaskId()
		if a := w.assignment(); a.GetTaskId() != id {
			t.Errorf("%v", a)
		}
		done(t, w.op(opClaim, id), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
		return w, id
	}
	worker, once := running("once", &aetherv1.CreateTaskRequest{})
	worker.Cut()
	if u := boss.told(once, "failed"); u.GetSummary() != "its worker did not come back in time" {
		t.Errorf("%v", u)
	}

	worker, twice := running("twice", &aetherv1.CreateTaskRequest{RetryPolicy: &aetherv1.RetryPolicy{MaxAttempts: 2, InitialDelayMs: 1}})
	worker.Cut()
	boss.told(twice, "queued")
	worker = workerHand(t, g, "twice")
	if a := worker.assignment(); a.GetTaskId() != twice {
		t.Errorf("%v", a)
	}
	done(t, worker.op(opClaim, twice), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
	worker.Cut()
	boss.told(twice, "failed")
	if info := boss.get(twice); info.GetAttempt() != 2 {
		t.Errorf("%v", info)
	}

	// What a gateway leaves behind that was killed with its worker: a task that
	// is handed out, and one that runs.
	vanished := func(impl string, events ...task.Event) string {
		t.Helper()
		id := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: impl}).GetTaskId()
		_, err := g.Tasks.Change(context.Background(), id, func(t *store.Task) error {
			for _, e := range events {
				if err := task.Move(t, e, "", time.Now()); err != nil {
					return err
				}
			}
			t.AssignedTo = "ta::w::" + impl + "::vanished"
			t.Holder, t.HolderSession, t.HolderGateway = t.AssignedTo, "none", "vanished"
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", impl, err)
		}
		return id
	}
	handed, ran := vanished("handed", task.Assign), vanished("ran", task.Assign, task.Run)
	worker = workerHand(t, g, "handed")
	if a := worker.assignment(); a.GetTaskId() != handed {
		t.Errorf("%v", a)
	}
	eventually(t, "the task of the worker that vanished has failed", func() bool {
		return boss.get(ran).GetStatus() == aetherv1.TaskStatus_TASK_STATUS_FAILED
	})
}

// lasting is a task that a worker is at while its database goes and comes back.
type lasting struct {
	boss, worker *hand
	id           string
}

func newLasting(t *testing.T, g *gatewaytest.Gateway) *lasting {
	t.Helper()
	l := &lasting{boss: agentHand(t, g, "boss", "2"), worker: agentHand(t, g, "worker", "2")}
	l.id = l.boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: l.worker.name}).GetTaskId()
	l.worker.assignment()
	done(t, l.worker.op(opClaim, l.id), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
	return l
}

// refused wants what needs the database to be refused as something to repeat.
func (l *lasting) refused(t *testing.T) {
	t.Helper()
	refusedOp(t, l.worker.op(opComplete, l.id), "ERR_UNAVAILABLE")
	if r := l.boss.create(&aetherv1.CreateTaskRequest{IdempotencyKey: "later"}); r.GetSuccess() || r.GetErrorCode() != "ERR_UNAVAILABLE" {
		t.Errorf("%v", r)
	}
}

// goesOn wants the same, repeated, to succeed.
func (l *lasting) goesOn(t *testing.T) {
	t.Helper()
	var r *aetherv1.TaskOperationResponse
	eventually(t, "the task is completed", func() bool {
		r = l.worker.op(opComplete, l.id)
		return r.GetSuccess()
	})
	done(t, r, aetherv1.TaskStatus_TASK_STATUS_COMPLETED)
	l.boss.told(l.id, "completed")
	if r := l.boss.create(&aetherv1.CreateTaskRequest{IdempotencyKey: "later"}); !r.GetSuccess() {
		t.Errorf("%v", r)
	}
	if info := l.boss.get(l.id); info.GetAttempt() != 1 {
		t.Errorf("%v", info)
	}
}
