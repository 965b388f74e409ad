package client_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// A user's window goes from one workspace into another.
func ExampleClient_SwitchWorkspace() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	user, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.UserToken("ada", "sales", "support"),
		Identity: client.User("ada", "window-1"), Workspace: "sales",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer user.Close(ctx)

	if _, err := user.Send(ctx, "ag::support::desk::1", []byte("too early")); client.IsPermission(err) {
		fmt.Println("not from", user.Workspace())
	}
	if err := user.SwitchWorkspace(ctx, "support"); err != nil {
		log.Fatal(err)
	}
	if _, err := user.Send(ctx, "ag::support::desk::1", []byte("hello")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("from", user.Workspace())
	err = user.SwitchWorkspace(ctx, "board")
	fmt.Println(client.CodeOf(err), "and still in", user.Workspace())
	// Output:
	// not from sales
	// from support
	// ERR_PERMISSION_DENIED and still in support
}

// A worker tells one user how far it is.
func ExampleClient_Report() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	done := make(chan struct{})
	user, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.UserToken("ada", "demo"), Identity: client.User("ada", "window-1"),
		OnNotice: func(n client.Notice) {
			if p, ok := n.(client.Progressed); ok {
				fmt.Printf("%s: %.0f %% %s\n", p.Progress.Source, 100*p.Progress.Completion, p.Progress.Summary)
				if p.Progress.Completion == 1 {
					close(done)
				}
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer user.Close(ctx)

	worker, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.AgentToken("demo", "painter"), Identity: client.Agent("demo", "painter", "1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close(ctx)
	for _, part := range []client.Progress{
		{Completion: 0.5, Summary: "one side"},
		{Completion: 1, Summary: "both sides"},
	} {
		part.Recipient = "us::ada"
		if err := worker.Report(ctx, part); err != nil {
			log.Fatal(err)
		}
	}
	<-done
	// Output:
	// ag::demo::painter::1: 50 % one side
	// ag::demo::painter::1: 100 % both sides
}

// What waits in the client of the old workspace is not handed out after a
// change, and a session that follows begins in the new one.
func TestSwitchWorkspace(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := connect(t, client.Options{
		Addr: g.Addr, Token: g.UserToken("u", "w", "v"), Identity: client.User("u", "1"), Workspace: "w",
	})
	agents := map[string]*client.Client{}
	for _, ws := range []string{"w", "v"} {
		agents[ws] = connect(t, client.Options{Addr: g.Addr, Token: g.AgentToken(ws, "i"), Identity: client.Agent(ws, "i", "1")})
	}
	say := func(ws, to, text string) {
		t.Helper()
		if _, err := agents[ws].Send(t.Context(), to, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	say("w", "gu::w", "first")
	if m := receive(t, user); string(m.Payload) != "first" {
		t.Fatalf("got %q", m.Payload)
	}
	say("w", "gu::w", "waits in the client, perhaps")
	say("w", "us::u::1", "mail")
	if err := user.SwitchWorkspace(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	say("w", "gu::w", "late")
	say("v", "gu::v", "new")
	for range 2 {
		switch m := receive(t, user); string(m.Payload) {
		case "mail":
			m.Ack()
		case "new":
		default:
			t.Errorf("got %q", m.Payload)
		}
	}
}

// A session after a break begins in the workspace into which the user has changed.
func TestReconnectAfterSwitch(t *testing.T) {
	t.Parallel()
	first := gatewaytest.Start(t)
	second := gatewaytest.Start(t)
	user := connect(t, client.Options{
		Addr: first.Addr, Others: []string{second.Addr}, Token: first.UserToken("u", "w", "v"), Identity: client.User("u", "1"), Workspace: "w",
	})
	if err := user.SwitchWorkspace(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	first.Stop()
	agent := connect(t, client.Options{Addr: second.Addr, Token: second.AgentToken("v", "i"), Identity: client.Agent("v", "i", "1")})
	if _, err := user.Send(t.Context(), agent.Address(), []byte("from v")); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, agent); m.Workspace != "v" {
		t.Errorf("sent from %q", m.Workspace)
	}
}

func TestSwitchAndReportRefused(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	notices := make(chan client.Notice, 100)
	agent := connect(t, client.Options{
		Addr: g.Addr, Token: g.AgentToken("w", "i"), Identity: client.Agent("w", "i", "1"), OnNotice: func(n client.Notice) { notices <- n },
	})
	if err := agent.SwitchWorkspace(t.Context(), "v"); client.CodeOf(err) != client.CodeInvalidPrincipal {
		t.Errorf("an agent: %v", err)
	}
	for _, p := range []client.Progress{
		{Completion: 1.1},
		{Completion: math.NaN()},
		{Step: client.Step{Number: -1}},
		{Summary: "\xff"},
		{Metadata: map[string]string{"\xff": ""}},
	} {
		if err := agent.Report(t.Context(), p); client.CodeOf(err) != client.CodeInvalidArgument {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := agent.Report(t.Context(), client.Progress{TaskID: "nobody's"}); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case n := <-notices:
			if r, ok := n.(client.Refused); ok {
				if r.Err.Code != client.CodeNotFound {
					t.Errorf("got %v", r)
				}
				return
			}
		case <-time.After(patience):
			t.Fatal("the refusal does not come")
		}
	}
}

// Raw frames go on working beside the methods.
func TestRawSwitch(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	notices := make(chan client.Notice, 100)
	user := connect(t, client.Options{
		Addr: g.Addr, Token: g.UserToken("u", "w", "v"), Identity: client.User("u", "1"), OnNotice: func(n client.Notice) { notices <- n },
	})
	err := user.SendFrame(t.Context(), &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_SwitchWorkspace{
		SwitchWorkspace: &aetherv1.SwitchWorkspace{NewWorkspaceId: "v"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for user.Workspace() != "v" {
		select {
		case <-notices:
		case <-time.After(10 * time.Millisecond):
		}
	}
}
