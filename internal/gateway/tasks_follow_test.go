package gateway_test

import (
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// follow subscribes to a task.
func (h *hand) follow(t *testing.T, id string) {
	t.Helper()
	h.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskSubscriptionOp{TaskSubscriptionOp: &aetherv1.TaskSubscriptionOperation{
		Op: aetherv1.TaskSubscriptionOperation_OP_TYPE_SUBSCRIBE, TaskId: id,
	}}})
	r := h.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskSubscriptionResponse() != nil }).GetTaskSubscriptionResponse()
	if !r.GetSuccess() {
		t.Fatalf("%v", r)
	}
}

// event returns the next event of a subscription that want takes.
func (h *hand) event(want func(*aetherv1.TaskEvent) bool) *aetherv1.TaskEvent {
	return h.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskEvent() != nil && want(m.GetTaskEvent()) }).GetTaskEvent()
}

func (h *hand) report(r *aetherv1.ProgressReport) {
	h.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Progress{Progress: r}})
}

// What a worker creates while it works on one task belongs to that task, and who
// follows that sees it, and how far the worker is; what it reports to one alone
// is not seen.
func Test13FollowsAWorker(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss, worker := agentHand(t, g, "boss", "1"), workerHand(t, g, "worker")
	id := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: "worker"}).GetTaskId()
	worker.assignment()
	boss.follow(t, id)
	worker.report(&aetherv1.ProgressReport{TaskId: id, Completion: 0.25, Recipient: "ag::w::boss::2"})
	worker.Heartbeat()
	worker.report(&aetherv1.ProgressReport{TaskId: id, State: "reading", Completion: 0.5, Summary: "half", Metadata: map[string]string{"k": "v"}})
	e := boss.event(func(e *aetherv1.TaskEvent) bool { return e.GetProgress() != nil })
	if p := e.GetProgress(); e.GetTaskId() != id || e.GetWorkspace() != "w" || e.GetSubscriptionId() == "" ||
		p.GetState() != "reading" || p.GetProgress() != 0.5 || p.GetMessage() != "half" || p.GetMetadata()["k"] != "v" {
		t.Errorf("%v", e)
	}
	child := worker.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()
	if info := worker.get(child); info.GetParentTaskId() != id || info.GetRootTaskId() != id {
		t.Errorf("the child: %v", info)
	}
	e = boss.event(func(e *aetherv1.TaskEvent) bool { return e.GetChildLifecycle() != nil })
	if c := e.GetChildLifecycle(); e.GetTaskId() != id || c.GetChildTaskId() != child || c.GetLifecycle() != "created" {
		t.Errorf("%v", e)
	}
	// It works on two now: of which of them a third one is, nobody knows. Nor is
	// what an agent does beside a task part of it.
	other := worker.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()
	if info := worker.get(other); info.GetParentTaskId() != "" {
		t.Errorf("one of two: %v", info)
	}
	own := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()
	beside := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()
	if info := boss.get(beside); own == beside || info.GetParentTaskId() != "" {
		t.Errorf("an agent's: %v", info)
	}
}
