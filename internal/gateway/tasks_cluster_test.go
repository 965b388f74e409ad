package gateway_test

import (
	"fmt"
	"sync"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// Rows 21 and 22 with two gateways: tasks created at one are handed to workers
// of the other, over again if one vanishes; of many who claim and complete from
// both one wins.
func TestRow21TasksAcrossGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	boss := agentHand(t, c.a, "boss", "1")

	target := agentHand(t, c.b, "worker", "1")
	id := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: targeted, TargetAgentId: target.name}).GetTaskId()
	if a := target.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
	done(t, target.op(opClaim, id), aetherv1.TaskStatus_TASK_STATUS_RUNNING)
	boss.told(id, "running")
	boss.follow(t, id)
	target.report(&aetherv1.ProgressReport{TaskId: id, Completion: 0.5})
	boss.event(func(e *aetherv1.TaskEvent) bool { return e.GetTaskId() == id && e.GetProgress().GetProgress() == 0.5 })
	done(t, target.op(opComplete, id), aetherv1.TaskStatus_TASK_STATUS_COMPLETED)
	boss.told(id, "completed")

	first := workerHand(t, c.b, "job")
	id = boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: "job"}).GetTaskId()
	if a := first.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
	second := workerHand(t, c.a, "job")
	first.Cut()
	if a := second.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
	done(t, second.op(opComplete, id), aetherv1.TaskStatus_TASK_STATUS_COMPLETED)

	// The gateway of a worker vanishes with it.
	third := workerHand(t, c.b, "night")
	id = boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: "night"}).GetTaskId()
	if a := third.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}

	race(t, boss, []*gatewaytest.Gateway{c.a, c.b})
	fourth := workerHand(t, c.a, "night")
	c.b.Stop()
	if a := fourth.assignment(); a.GetTaskId() != id {
		t.Errorf("%v", a)
	}
}

// race has 50 agents on several gateways claim one task, and complete it.
func race(t *testing.T, boss *hand, gateways []*gatewaytest.Gateway) {
	t.Helper()
	var racers []*hand
	for i := range 50 {
		racers = append(racers, agentHand(t, gateways[i%len(gateways)], "racer", fmt.Sprint(i)))
	}
	id := boss.create(&aetherv1.CreateTaskRequest{AssignmentMode: pooled, TargetImplementation: "racer"}).GetTaskId()
	for _, op := range []aetherv1.TaskOperation_OpType{opClaim, opComplete} {
		var mu sync.Mutex
		var wg sync.WaitGroup
		won := 0
		for _, r := range racers {
			wg.Go(func() {
				if r.op(op, id).GetSuccess() {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%v: %d have won", op, won)
		}
	}
	if info := boss.get(id); info.GetStatus() != aetherv1.TaskStatus_TASK_STATUS_COMPLETED || info.GetAttempt() != 1 {
		t.Errorf("%v", info)
	}
}
