package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// Who follows a task is told of its states and its progress, until it does not.
func TestFollowTask(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes := make(chan client.TaskChanged, 16)
	c, err := client.Connect(ctx, client.Options{
		Addr: g.Addr, Token: g.AgentToken("demo", "boss"), Identity: client.Agent("demo", "boss", "1"),
		OnNotice: func(n client.Notice) {
			if x, ok := n.(client.TaskChanged); ok {
				changes <- x
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background()) //nolint:errcheck // nothing of it is under way
	next := func() client.TaskChanged {
		t.Helper()
		select {
		case x := <-changes:
			return x
		case <-ctx.Done():
			t.Fatal("no notice came")
			panic("unreachable")
		}
	}
	id, err := c.CreateTask(ctx, client.TaskSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.FollowTask(ctx, "none", false); client.CodeOf(err) != client.CodeNotFound {
		t.Errorf("a task that is none: %v", err)
	}
	sub, err := c.FollowTask(ctx, id, true)
	if err != nil || sub == "" {
		t.Fatal(sub, err)
	}
	if err := c.Report(ctx, client.Progress{TaskID: id, State: "reading", Completion: 0.5, Summary: "half"}); err != nil {
		t.Fatal(err)
	}
	x := next()
	for x.Progress == nil { // that it runs may come first
		x = next()
	}
	if p := x.Progress; x.ID != id || x.Subscription != sub || p.TaskID != id || p.State != "reading" || p.Completion != 0.5 || p.Summary != "half" || x.Status != "" {
		t.Errorf("%+v", x)
	}
	if _, err := c.FailTask(ctx, id, "for the test"); err != nil {
		t.Fatal(err)
	}
	if x := next(); x.Status != client.TaskFailed || x.Before != client.TaskRunning || x.Reason != "for the test" || x.Progress != nil || time.Since(x.At).Abs() > time.Hour {
		t.Errorf("%+v", x)
	}
	if err := c.UnfollowTask(ctx, id, sub); err != nil {
		t.Error(err)
	}
	if err := c.UnfollowTask(ctx, id, sub); client.CodeOf(err) != client.CodeNotFound {
		t.Errorf("once more: %v", err)
	}
}

// Who follows a task goes on doing so when its connection broke, under the same
// subscription, and is told what has changed meanwhile.
func TestFollowTaskOverABreak(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	way := faultproxy.New(t, g.Addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes, connected := make(chan client.TaskChanged, 16), make(chan struct{}, 16)
	connect := func(addr, spec string, heard func(client.Notice)) *client.Client {
		t.Helper()
		c, err := client.Connect(ctx, client.Options{
			Addr: addr, Token: g.AgentToken("demo", "boss"), Identity: client.Agent("demo", "boss", spec), OnNotice: heard,
			MinBackoff: time.Millisecond, WaitForIdentity: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	worker := connect(g.Addr, "worker", func(client.Notice) {})
	boss := connect(way.Addr(), "1", func(n client.Notice) {
		switch x := n.(type) {
		case client.TaskChanged:
			changes <- x
		case client.Connected:
			connected <- struct{}{}
		}
	})
	wait := func(what string) {
		t.Helper()
		select {
		case <-connected:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
	wait("the boss is not connected")
	id, err := boss.CreateTask(ctx, client.TaskSpec{For: "ag::demo::boss::worker"})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := boss.FollowTask(ctx, id, false)
	if err != nil {
		t.Fatal(err)
	}
	until := func(status client.TaskStatus) {
		t.Helper()
		for {
			select {
			case x := <-changes:
				if x.ID != id || x.Subscription != sub {
					t.Errorf("%+v", x)
				}
				if x.Status == status {
					return
				}
			case <-ctx.Done():
				t.Fatalf("it is not told that it is %s", status)
			}
		}
	}
	way.Refuse(true)
	way.Cut()
	if _, err := worker.ClaimTask(ctx, id); err != nil {
		t.Fatal(err)
	}
	way.Refuse(false)
	wait("the boss does not come back")
	until(client.TaskRunning)
	if _, err := worker.CompleteTask(ctx, id); err != nil {
		t.Fatal(err)
	}
	until(client.TaskCompleted)
	if err := boss.UnfollowTask(ctx, id, sub); err != nil {
		t.Error(err)
	}
}
