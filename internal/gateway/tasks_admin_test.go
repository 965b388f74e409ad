package gateway_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// An operator sees all tasks, follows one with its progress, and moves it.
func TestOperatorsSeeTasks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("op"))
	boss, worker := agentHand(t, g, "boss", "1"), agentHand(t, g, "worker", "1")
	id := boss.create(&aetherv1.CreateTaskRequest{TaskType: "review", AssignmentMode: targeted, TargetAgentId: worker.name}).GetTaskId()
	worker.assignment()

	watch, err := op.WatchTask(ctx, &adminv1.WatchTaskRequest{TaskId: id})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetTask().GetStatus() != "queued" {
		t.Fatal(r, err)
	}
	worker.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Progress{Progress: &aetherv1.ProgressReport{
		TaskId: id, State: "reading", Completion: 0.5, Summary: "half of it",
	}}})
	reported, ran := false, false
	for !reported || !ran {
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		reported = reported || r.GetProgress().GetCompletion() == 0.5 && r.GetProgress().GetSummary() == "half of it"
		ran = ran || r.GetTask().GetStatus() == "running" // by its first report
	}
	list, err := op.ListTasks(ctx, &adminv1.ListTasksRequest{Workspace: "w", Statuses: []string{"running"}, Identity: boss.name})
	if err != nil || len(list.GetTasks()) != 1 || list.GetTasks()[0].GetTaskId() != id || list.GetTasks()[0].GetTaskType() != "review" {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := op.MoveTask(ctx, &adminv1.MoveTaskRequest{TaskId: id, Action: "retry"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a running task is retried: %v", err)
	}
	moved, err := op.MoveTask(ctx, &adminv1.MoveTaskRequest{TaskId: id, Action: "cancel", Reason: "not needed"})
	if err != nil || moved.GetTask().GetStatus() != "cancelled" || moved.GetTask().GetError() != "not needed" {
		t.Errorf("%v, %v", moved, err)
	}
	boss.told(id, "cancelled")
	worker.told(id, "cancelled")
	for last := ""; ; {
		r, err := watch.Recv()
		if err != nil {
			if last != "cancelled" {
				t.Errorf("the last that was seen: %s, %v", last, err)
			}
			break
		}
		if r.GetTask() != nil {
			last = r.GetTask().GetStatus()
		}
	}
	for _, bad := range []error{
		second(op.GetTask(ctx, &adminv1.GetTaskRequest{TaskId: "none"})),
		second(op.MoveTask(ctx, &adminv1.MoveTaskRequest{TaskId: "none", Action: "cancel"})),
	} {
		if status.Code(bad) != codes.NotFound {
			t.Errorf("%v", bad)
		}
	}
	if _, err := op.ListTasks(ctx, &adminv1.ListTasksRequest{Statuses: []string{"lost"}}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }
