package gateway_test

import (
	"strings"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// A task that waits for another one goes on when that has ended; who subscribes
// sees it.
func Test13TaskWaitsForAnother(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss := agentHand(t, g, "boss", "1")
	first := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()
	second := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()
	wait := func(id, on string) *aetherv1.TaskOperationResponse {
		request := boss.next()
		boss.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskOp{TaskOp: &aetherv1.TaskOperation{
			Op: aetherv1.TaskOperation_OP_TYPE_WAIT_FOR, TaskId: id, RequestId: request,
			WaitSpec: &aetherv1.WaitSpec{Reason: aetherv1.WaitReason_WAIT_REASON_DEPENDENCY, DependsOn: []string{on}},
		}}})
		return boss.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskOp().GetRequestId() == request }).GetTaskOp()
	}
	done(t, wait(second, first), aetherv1.TaskStatus_TASK_STATUS_WAITING_DEPENDENCY)
	refusedOp(t, wait(first, second), "ERR_INVALID_ARGUMENT") // a circle
	refusedOp(t, wait(first, "none"), "ERR_NOT_FOUND")
	boss.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskSubscriptionOp{TaskSubscriptionOp: &aetherv1.TaskSubscriptionOperation{
		Op: aetherv1.TaskSubscriptionOperation_OP_TYPE_SUBSCRIBE, TaskId: second, ClientRequestId: "s",
	}}})
	sub := boss.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskSubscriptionResponse() != nil }).GetTaskSubscriptionResponse()
	if !sub.GetSuccess() || sub.GetSubscriptionId() == "" || sub.GetClientRequestId() != "s" {
		t.Fatalf("%v", sub)
	}
	done(t, boss.op(opComplete, first), aetherv1.TaskStatus_TASK_STATUS_COMPLETED)
	e := boss.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskEvent() != nil }).GetTaskEvent()
	if c := e.GetStatusChanged(); e.GetTaskId() != second || e.GetSubscriptionId() != sub.GetSubscriptionId() ||
		c.GetFromStatus() != aetherv1.TaskStatus_TASK_STATUS_WAITING_DEPENDENCY || c.GetToStatus() != aetherv1.TaskStatus_TASK_STATUS_RUNNING {
		t.Errorf("%v", e)
	}
	done(t, boss.op(opPause, second), aetherv1.TaskStatus_TASK_STATUS_WAITING_INPUT)
	if info := boss.get(second); info.GetPausedAt() == 0 {
		t.Errorf("%v", info)
	}
	refusedOp(t, boss.op(opComplete, second), "ERR_INVALID_ARGUMENT")
	done(t, boss.op(opResume, second), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
}

// What cannot be a task is refused with a code that says why, and nothing is
// half-done.
func TestTaskBadInput(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss := agentHand(t, g, "boss", "1")
	for name, x := range map[string]struct {
		r    *aetherv1.CreateTaskRequest
		code string
	}{
		"no target":         {&aetherv1.CreateTaskRequest{AssignmentMode: targeted}, "ERR_INVALID_ARGUMENT"},
		"an orchestrator":   {&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: "orc::i::s"}, "ERR_INVALID_ARGUMENT"},
		"a broadcast":       {&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: "ga::w"}, "ERR_INVALID_ARGUMENT"},
		"elsewhere":         {&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: "ag::v::i::s"}, "ERR_INVALID_ARGUMENT"},
		"another workspace": {&aetherv1.CreateTaskRequest{Workspace: "v"}, "ERR_PERMISSION_DENIED"},
		"no pool":           {&aetherv1.CreateTaskRequest{AssignmentMode: pooled}, "ERR_INVALID_ARGUMENT"},
		"a mode":            {&aetherv1.CreateTaskRequest{AssignmentMode: 9}, "ERR_INVALID_ARGUMENT"},
		"a priority":        {&aetherv1.CreateTaskRequest{Priority: 7}, "ERR_INVALID_ARGUMENT"},
		"attempts":          {&aetherv1.CreateTaskRequest{RetryPolicy: &aetherv1.RetryPolicy{MaxAttempts: -1}}, "ERR_INVALID_ARGUMENT"},
		"a delay":           {&aetherv1.CreateTaskRequest{RetryPolicy: &aetherv1.RetryPolicy{InitialDelayMs: 1 << 62}}, "ERR_INVALID_ARGUMENT"},
		"the token":         {&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: "ag::w::i::s", LaunchParamOverrides: map[string]string{"auth_token": "x"}}, "ERR_INVALID_ARGUMENT"},
		"metadata":          {&aetherv1.CreateTaskRequest{Metadata: map[string]string{"k": strings.Repeat("x", 17<<10)}}, "ERR_INVALID_ARGUMENT"},
		"a foreign root":    {&aetherv1.CreateTaskRequest{RootTaskId: "none"}, "ERR_NOT_FOUND"},
		"somebody's token":  {&aetherv1.CreateTaskRequest{TargetIdentity: "ag::w::i::s"}, "ERR_PERMISSION_DENIED"},
		"a grant":           {&aetherv1.CreateTaskRequest{Authorization: &aetherv1.AuthorizationContext{GrantId: "none"}}, "ERR_GRANT_INVALID"},
	} {
		if got := boss.create(x.r); got.GetSuccess() || got.GetErrorCode() != x.code || got.GetTaskId() != "" {
			t.Errorf("%s: %v, want %s", name, got, x.code)
		}
	}
	if list := boss.query(&aetherv1.TaskQuery{}); list.GetTotalCount() != 0 {
		t.Errorf("something was created: %v", list)
	}
	for range 3 {
		boss.create(&aetherv1.CreateTaskRequest{})
	}
	page := boss.query(&aetherv1.TaskQuery{Filter: &aetherv1.TaskFilter{Limit: 2}})
	if len(page.GetTasks()) != 2 || page.GetNextPageToken() == "" || page.GetTotalCount() != 3 {
		t.Errorf("%v", page)
	}
	rest := boss.query(&aetherv1.TaskQuery{Filter: &aetherv1.TaskFilter{Limit: 2, PageToken: page.GetNextPageToken()}})
	if len(rest.GetTasks()) != 1 || rest.GetNextPageToken() != "" {
		t.Errorf("%v", rest)
	}
	for name, f := range map[string]*aetherv1.TaskFilter{
		"another list": {PageToken: page.GetNextPageToken(), TaskType: "x"}, "no token": {PageToken: "x"}, "limit": {Limit: -1},
		"offset": {Offset: -1}, "status": {Status: 99},
	} {
		if got := boss.query(&aetherv1.TaskQuery{Filter: f}); got.GetSuccess() || !strings.HasPrefix(got.GetError(), "ERR_INVALID_ARGUMENT: ") {
			t.Errorf("%s: %v", name, got)
		}
	}
}
