package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// hand is a client of tasks.
type hand struct {
	*gatewaytest.Peer
	name string
	n    int
}

func agentHand(t *testing.T, g *gatewaytest.Gateway, impl, spec string) *hand {
	t.Helper()
	return &hand{Peer: gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", impl), gatewaytest.AgentInit("w", impl, spec)), name: "ag::w::" + impl + "::" + spec}
}

// workerHand is a worker whose id the gateway draws.
func workerHand(t *testing.T, g *gatewaytest.Gateway, impl string) *hand {
	t.Helper()
	p := gatewaytest.MustDial(t, g.Addr, g.Token(auth.Claims{Kind: auth.KindTask, Workspaces: []string{"w"}, Impl: impl}), &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: impl}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	})
	return &hand{Peer: p, name: "ta::w::" + impl + "::" + p.Ack.GetAssignedId()}
}

func (h *hand) next() string {
	h.n++
	return fmt.Sprint(h.n)
}

// create creates a task and returns the answer.
func (h *hand) create(r *aetherv1.CreateTaskRequest) *aetherv1.CreateTaskResponse {
	r.RequestId = h.next()
	h.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_CreateTask{CreateTask: r}})
	return h.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetCreateTask().GetRequestId() == r.RequestId }).GetCreateTask()
}

func (h *hand) op(op aetherv1.TaskOperation_OpType, id string) *aetherv1.TaskOperationResponse {
	request := h.next()
	h.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskOp{TaskOp: &aetherv1.TaskOperation{Op: op, TaskId: id, RequestId: request}}})
	return h.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskOp().GetRequestId() == request }).GetTaskOp()
}

func (h *hand) query(q *aetherv1.TaskQuery) *aetherv1.TaskQueryResponse {
	q.RequestId = h.next()
	h.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskQuery{TaskQuery: q}})
	return h.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskQuery().GetRequestId() == q.RequestId }).GetTaskQuery()
}

func (h *hand) get(id string) *aetherv1.TaskInfo {
	return h.query(&aetherv1.TaskQuery{Op: aetherv1.TaskQuery_OP_TYPE_GET, TaskId: id}).GetTask()
}

func (h *hand) assignment() *aetherv1.TaskAssignment {
	return h.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskAssignment() != nil }).GetTaskAssignment()
}

// told reads until the gateway has told the creator of a state of a task.
// Progress comes as a frame of its own, or as a message of the workspace.
func (h *hand) told(id, state string) *aetherv1.ProgressUpdate {
	return h.Until(func(m *aetherv1.DownstreamMessage) bool {
		u := m.GetProgressUpdate()
		return u.GetTaskId() == id && u.GetMetadata()["status"] == state && u.GetKind() == aetherv1.ProgressKind_PROGRESS_KIND_TASK
	}).GetProgressUpdate()
}

const (
	selfAssign = aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_SELF_ASSIGN
	targeted   = aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_TARGETED
	pooled     = aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_POOL

	opRetry    = aetherv1.TaskOperation_OP_TYPE_RETRY
	opCancel   = aetherv1.TaskOperation_OP_TYPE_CANCEL
	opComplete = aetherv1.TaskOperation_OP_TYPE_COMPLETE
	opFail     = aetherv1.TaskOperation_OP_TYPE_FAIL
	opPause    = aetherv1.TaskOperation_OP_TYPE_PAUSE
	opResume   = aetherv1.TaskOperation_OP_TYPE_RESUME
	opReject   = aetherv1.TaskOperation_OP_TYPE_REJECT
	opClaim    = aetherv1.TaskOperation_OP_TYPE_CLAIM
)

// done checks that an operation succeeded and the status after it.
func done(t *testing.T, r *aetherv1.TaskOperationResponse, want aetherv1.TaskStatus) {
	t.Helper()
	if !r.GetSuccess() || r.GetTask().GetStatus() != want {
		t.Errorf("%v, want %v", r, want)
	}
}

// refusedOp checks that an operation was refused with a code.
func refusedOp(t *testing.T, r *aetherv1.TaskOperationResponse, code string) {
	t.Helper()
	if r.GetSuccess() || !strings.HasPrefix(r.GetError(), code+": ") || r.GetTask() != nil {
		t.Errorf("%v, want %s", r, code)
	}
}

// A task for an agent that is connected is handed to it; its creator hears how
// it goes, and nobody else sees it.
func Test13TargetedTask(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss, worker, stranger := agentHand(t, g, "boss", "1"), agentHand(t, g, "worker", "1"), agentHand(t, g, "boss", "2")
	created := boss.create(&aetherv1.CreateTaskRequest{
		TaskType: "review", AssignmentMode: targeted, TargetAgentId: worker.name, Payload: []byte("read this"),
		Metadata: map[string]string{"k": "v"}, ContextId: "ctx",
	})
	id := created.GetTaskId()
	if !created.GetSuccess() || created.GetStatus() != "assigned" || created.GetAssignedTo() != worker.name {
		t.Fatalf("%v", created)
	}
	a := worker.assignment()
	if a.GetTaskId() != id || string(a.GetPayload()) != "read this" || a.GetMetadata()["k"] != "v" || a.GetWorkspace() != "w" ||
		a.GetAssignedTo() != worker.name || a.GetSpecifier() != "1" || a.GetTargetImplementation() != "worker" || a.GetTaskType() != "review" {
		t.Errorf("%v", a)
	}
	done(t, worker.op(opClaim, id), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
	if u := boss.told(id, "running"); u.GetSource() != worker.name || u.GetRecipient() != boss.name || u.GetMetadata()["task_type"] != "review" || u.GetMetadata()["started_at_ms"] == "0" {
		t.Errorf("%v", u)
	}
	for _, op := range []aetherv1.TaskOperation_OpType{opRetry, opCancel, opComplete, opFail, opPause, opResume, opReject, opClaim} {
		refusedOp(t, stranger.op(op, id), "ERR_NOT_FOUND")
	}
	none := stranger.query(&aetherv1.TaskQuery{Op: aetherv1.TaskQuery_OP_TYPE_GET, TaskId: "none"})
	foreign := stranger.query(&aetherv1.TaskQuery{Op: aetherv1.TaskQuery_OP_TYPE_GET, TaskId: id})
	if none.GetSuccess() || foreign.GetSuccess() || none.GetError() != foreign.GetError() {
		t.Errorf("a foreign task: %v, none: %v", foreign, none)
	}
	if list := stranger.query(&aetherv1.TaskQuery{}); !list.GetSuccess() || list.GetTotalCount() != 0 {
		t.Errorf("%v", list)
	}
	done(t, worker.op(opComplete, id), aetherv1.TaskStatus_TASK_STATUS_COMPLETED)
	boss.told(id, "completed")
	refusedOp(t, worker.op(opComplete, id), "ERR_INVALID_ARGUMENT")
	refusedOp(t, worker.op(opRetry, id), "ERR_PERMISSION_DENIED")
	info := boss.get(id)
	if info.GetStatus() != aetherv1.TaskStatus_TASK_STATUS_COMPLETED || info.GetAttempt() != 1 || info.GetCreatorActorId() != boss.name ||
		info.GetCompletedAt() == 0 || info.GetStartedAt() == 0 || info.GetContextId() != "ctx" || info.GetAssignedTo() != worker.name {
		t.Errorf("%v", info)
	}
	// A new attempt of what has ended is the creator's to ask for.
	done(t, boss.op(opRetry, id), aetherv1.TaskStatus_TASK_STATUS_QUEUED)
	if a := worker.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
	if info := boss.get(id); info.GetAttempt() != 2 {
		t.Errorf("%v", info)
	}
	// A creator that completes it itself has the worker told to stop.
	done(t, worker.op(opClaim, id), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
	done(t, boss.op(opComplete, id), aetherv1.TaskStatus_TASK_STATUS_COMPLETED)
	if u := worker.told(id, "completed"); u.GetSource() != boss.name {
		t.Errorf("%v", u)
	}
}

// What is created for somebody who is not there waits, and is handed over when
// they come.
func Test13TargetedTaskWaits(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss := agentHand(t, g, "boss", "1")
	created := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: "ag::w::worker::1"})
	if !created.GetSuccess() || created.GetAssignedTo() != "" {
		t.Fatalf("%v", created)
	}
	worker := agentHand(t, g, "worker", "1")
	if a := worker.assignment(); a.GetTaskId() != created.GetTaskId() {
		t.Errorf("%v", a)
	}
	// A worker that goes before it has begun is handed it again.
	if err := worker.Leave(); err == nil {
		t.Fatal("it does not leave")
	}
	boss.told(created.GetTaskId(), "queued")
	worker = agentHand(t, g, "worker", "1")
	if a := worker.assignment(); a.GetTaskId() != created.GetTaskId() {
		t.Errorf("%v", a)
	}
	done(t, worker.op(opFail, created.GetTaskId()), aetherv1.TaskStatus_TASK_STATUS_FAILED)
	boss.told(created.GetTaskId(), "failed")
}

// A task of a pool has one worker; one that refuses it, or goes, is followed by
// another.
func TestRow21PoolHandsOver(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss := agentHand(t, g, "boss", "1")
	first := workerHand(t, g, "worker")
	created := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: "worker", Payload: []byte("p")})
	if !created.GetSuccess() || created.GetStatus() != "pending_pool" {
		t.Fatalf("%v", created)
	}
	id := created.GetTaskId()
	if a := first.assignment(); a.GetTaskId() != id || string(a.GetPayload()) != "p" || a.GetAssignedTo() != first.name {
		t.Errorf("%v", a)
	}
	second := workerHand(t, g, "worker")
	done(t, first.op(opReject, id), aetherv1.TaskStatus_TASK_STATUS_QUEUED)
	if a := second.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
	refusedOp(t, first.op(opComplete, id), "ERR_NOT_FOUND") // late
	third := workerHand(t, g, "worker")
	second.Cut()
	if a := third.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
	done(t, third.op(opComplete, id), aetherv1.TaskStatus_TASK_STATUS_COMPLETED)
	boss.told(id, "completed")
}

// Row 22: of many who claim a task at the same time one has it, and of many who
// complete it one does.
func TestRow22OneWinner(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	boss := agentHand(t, g, "boss", "1")
	const n = 20
	var workers []*hand
	for i := range n {
		workers = append(workers, agentHand(t, g, "worker", fmt.Sprint(i)))
	}
	id := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: "worker"}).GetTaskId()
	race := func(op aetherv1.TaskOperation_OpType) (won int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, w := range workers {
			wg.Go(func() {
				if w.op(op, id).GetSuccess() {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return won
	}
	if won := race(opClaim); won != 1 {
		t.Errorf("%d have claimed it", won)
	}
	if won := race(opComplete); won != 1 {
		t.Errorf("%d have completed it", won)
	}
	if won := race(opComplete); won != 0 {
		t.Errorf("%d have completed it once more", won)
	}
	if info := boss.get(id); info.GetStatus() != aetherv1.TaskStatus_TASK_STATUS_COMPLETED || info.GetAttempt() != 1 {
		t.Errorf("%v", info)
	}
}
