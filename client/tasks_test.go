package client_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// A worker takes tasks of its pool, reports how far it is, and ends them; who
// created them hears of it.
func ExampleClient_CreateTask() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	tasks := make(chan client.TaskAssigned, 1)
	worker, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.Token(auth.Claims{Kind: auth.KindTask, Workspaces: []string{"demo"}, Impl: "reader"}),
		Identity: client.Task("demo", "reader"),
		OnNotice: func(n client.Notice) {
			if t, ok := n.(client.TaskAssigned); ok {
				tasks <- t
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close(ctx)
	ended := make(chan client.Progress, 1)
	boss, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.AgentToken("demo", "boss"), Identity: client.Agent("demo", "boss", "1"),
		OnNotice: func(n client.Notice) {
			if p, ok := n.(client.Progressed); ok && client.TaskStatus(p.Progress.State).Over() {
				ended <- p.Progress
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer boss.Close(ctx)

	id, err := boss.CreateTask(ctx, client.TaskSpec{Pool: "reader", Type: "summary", Payload: []byte("a long text")})
	if err != nil {
		log.Fatal(err)
	}
	t := <-tasks
	if _, err := worker.ClaimTask(ctx, t.ID); err != nil {
		log.Fatal(err)
	}
	if err := worker.Report(ctx, client.Progress{TaskID: t.ID, State: "reading", Completion: 0.5}); err != nil {
		log.Fatal(err)
	}
	if _, err := worker.CompleteTask(ctx, t.ID); err != nil {
		log.Fatal(err)
	}
	p := <-ended
	fmt.Println(t.Type, string(t.Payload), p.TaskID == id, p.State)
	// Output: summary a long text true completed
}

// What may not be done is a typed error; what is somebody else's does not exist.
func TestTasksOfOthers(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connect := func(impl string) *client.Client {
		c, err := client.Connect(ctx, client.Options{Addr: g.Addr, Token: g.AgentToken("demo", impl), Identity: client.Agent("demo", impl, "1")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	boss, other := connect("boss"), connect("other")
	spec := client.TaskSpec{Type: "own", Key: "once"}
	id, err := boss.CreateTask(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := boss.CreateTask(ctx, spec); err != nil || again != id {
		t.Errorf("the same key: %v, %v", again, err)
	}
	if _, err := other.Task(ctx, id); client.CodeOf(err) != client.CodeNotFound {
		t.Errorf("a foreign task: %v", err)
	}
	if _, err := other.CancelTask(ctx, id, ""); client.CodeOf(err) != client.CodeNotFound {
		t.Errorf("a foreign task: %v", err)
	}
	if _, err := boss.CreateTask(ctx, client.TaskSpec{For: "ag::elsewhere::i::1"}); client.CodeOf(err) == "" {
		t.Error("a task was created in another workspace")
	}
	if x, err := boss.CompleteTask(ctx, id); err != nil || x.Status != client.TaskCompleted || x.Worker != boss.Address() {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := boss.CompleteTask(ctx, id); client.CodeOf(err) != client.CodeInvalidArgument {
		t.Errorf("completed twice: %v", err)
	}
	list, next, err := boss.Tasks(ctx, client.TaskFilter{Statuses: []client.TaskStatus{client.TaskCompleted}})
	if err != nil || len(list) != 1 || list[0].ID != id || next != "" {
		t.Errorf("%v, %q, %v", list, next, err)
	}
	if _, _, err := boss.Tasks(ctx, client.TaskFilter{Statuses: []client.TaskStatus{"lost"}}); client.CodeOf(err) != client.CodeInvalidArgument {
		t.Error(err)
	}
}
