package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// patience is how long a test waits for what must come from a real gateway.
const patience = 30 * time.Second

func receive(t *testing.T, c *client.Client) *client.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := c.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func nothing(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if m, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestMailWaitsForAnAgentThatWasNeverThere(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	const n = 1000
	var sent []*client.Pending
	for i := range n {
		p, err := user.SendAsync(t.Context(), "ag::w::echo::1", fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, p)
	}
	for i, p := range sent {
		if r, err := p.Wait(t.Context()); err != nil || !r.Confirmed || r.Duplicate {
			t.Fatalf("send %d: %+v, %v", i, r, err)
		}
	}
	o := client.Options{Addr: g.Addr, Token: g.AgentToken("w", "echo"), Identity: client.Agent("w", "echo", "1")}
	for _, part := range [][2]int{{0, 400}, {400, n}} { // leaves and comes back
		agent := connect(t, o)
		for i := part[0]; i < part[1]; i++ {
			m := receive(t, agent)
			if string(m.Payload) != fmt.Sprint(i) || m.Source != "us::u::1" || m.ID == "" || m.Workspace != "w" {
				t.Fatalf("message %d is %+v", i, m)
			}
			m.Ack()
		}
		if part[1] == n {
			nothing(t, agent)
		}
		if err := agent.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	nothing(t, connect(t, o))
}

func TestRepeatedIDIsStoredOnce(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	agent := connect(t, client.Options{Addr: g.Addr, Token: g.AgentToken("w", "echo"), Identity: client.Agent("w", "echo", "1")})
	for i := range 3 {
		r, err := user.Send(t.Context(), "ag::w::echo::1", []byte("once"), client.WithMessageID("my-id"))
		if err != nil || r.Duplicate != (i > 0) || r.MessageID != "my-id" {
			t.Errorf("send %d: %+v, %v", i, r, err)
		}
	}
	if m := receive(t, agent); m.ID != "my-id" {
		t.Errorf("%+v", m)
	}
	nothing(t, agent)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	for to, want := range map[string]client.Code{
		"ag::elsewhere::echo::1": client.CodePermissionDenied,
		"event::w":               client.CodePermissionDenied,
		"pg::w":                  client.CodePermissionDenied,
		"ag::w::echo":            client.CodeInvalidTopic,
		"zz::w":                  client.CodeInvalidTopic,
		"ag::w::echo::*":         client.CodeInvalidTopic,
	} {
		_, err := user.Send(t.Context(), to, []byte("x"))
		if client.CodeOf(err) != want || !client.NotStored(err) || client.SafeToRetry(err) || !strings.Contains(err.Error(), to) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := user.Send(t.Context(), "gu::w", []byte("the stream is still open")); err != nil {
		t.Error(err)
	}
	if limit := user.Session().MaxPayload; limit <= 0 {
		t.Errorf("max payload %d", limit)
	} else if _, err := user.Send(t.Context(), "gu::w", make([]byte, limit)); err != nil {
		t.Errorf("a payload of the limit: %v", err)
	}
	for name, o := range map[string]client.Options{
		"claims another": {Identity: client.Agent("w", "other", "1"), Token: g.AgentToken("w", "echo")},
		"no workspace":   {Identity: client.Agent("v", "echo", "1"), Token: g.AgentToken("w", "echo")},
	} {
		o.Addr = g.Addr
		if _, err := client.Connect(t.Context(), o); !client.IsPermission(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, token := range map[string]string{"none": "", "garbage": "garbage"} {
		_, err := client.Connect(t.Context(), client.Options{Addr: g.Addr, Identity: client.User("u", "2"), Token: token})
		if !client.IsUnauthenticated(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := client.Connect(t.Context(), client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	if !client.IsDuplicateIdentity(err) {
		t.Errorf("second holder: %v", err)
	}
	g.Stop()
	_, err = client.Connect(t.Context(), client.Options{Addr: g.Addr, Identity: client.User("u", "1"), ConnectTimeout: time.Second})
	if client.CodeOf(err) != client.CodeConnection {
		t.Errorf("nobody there: %v", err)
	}
}

// The gateway ends the session when its token expires, if there was no new one
// before; the client goes on with the next one, and neither side loses anything
// by it.
func TestTokensExpireAndSessionsGoOn(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	notices := make(chan client.Notice, 100)
	token, ends := "", time.Time{}
	agent := connect(t, client.Options{
		Addr: g.Addr, Identity: client.Agent("w", "echo", "1"),
		OnNotice: func(n client.Notice) {
			if _, warning := n.(client.CredentialExpiring); !warning {
				notices <- n
			}
		},
		// It has no new one as long as the old one is good.
		TokenSource: func(context.Context) (string, error) {
			if now := time.Now(); !now.Before(ends) {
				claims := workspaces(auth.KindAgent, "echo", "w")
				ends = now.Add(4 * time.Second).Truncate(time.Second)
				claims.ExpiresAt = ends
				token = g.Token(claims)
			}
			return token, nil
		},
	})
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	epochs := make(map[uint64]bool)
	for i := range 3 {
		select {
		case n := <-notices:
			begun, ok := n.(client.Connected)
			if !ok || epochs[begun.Session.Epoch] || begun.Session.CredentialExpires.IsZero() {
				t.Fatalf("notice: %+v", n)
			}
			epochs[begun.Session.Epoch] = true
		case <-time.After(patience):
			t.Fatal("no session")
		}
		if _, err := user.Send(t.Context(), agent.Address(), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		m := receive(t, agent)
		if string(m.Payload) != fmt.Sprint(i) {
			t.Errorf("message %d: %s", i, m.Payload)
		}
		m.Ack()
	}
}

// A message whose handler fails comes again, marked, until it succeeds.
func TestFailedMessageComesAgain(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	type attempt struct {
		text        string
		redelivered bool
	}
	attempts := make(chan attempt, 10)
	failures := 2
	agent := connect(t, client.Options{
		Addr: g.Addr, Token: g.AgentToken("w", "echo"), Identity: client.Agent("w", "echo", "1"),
		Handler: func(_ context.Context, m *client.Message) error {
			attempts <- attempt{string(m.Payload), m.Redelivered}
			switch string(m.Payload) {
			case "hopeless":
				return client.Drop(errors.New("no"))
			case "flaky":
				if failures--; failures >= 0 {
					return errors.New("not yet")
				}
			}
			return nil
		},
	})
	for _, text := range []string{"hopeless", "flaky"} {
		if _, err := user.Send(t.Context(), agent.Address(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []attempt{{"hopeless", false}, {"flaky", false}, {"flaky", true}, {"flaky", true}} {
		select {
		case got := <-attempts:
			if got != want {
				t.Errorf("attempt %d: %+v", i, got)
			}
		case <-time.After(patience):
			t.Fatalf("attempt %d did not come", i)
		}
	}
}

// The gateway is restarted in the middle of the traffic. Every send gets its
// receipt and every message arrives once and in order, without a line of code in
// the program for it.
func TestRestartOfTheGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var where place
	g := gatewaytest.StartIn(t, dir)
	where.move(g.Addr)

	const n = 600
	got := make(chan string, n+100)
	o := where.options(client.Agent("w", "echo", "1"), g.AgentToken("w", "echo"))
	o.Handler = func(_ context.Context, m *client.Message) error { got <- string(m.Payload); return nil }
	connect(t, o)
	sessions := make(chan client.Session, 10)
	o = where.options(client.User("u", "1"), g.UserToken("u", "w"))
	o.OnNotice = func(n client.Notice) {
		if n, ok := n.(client.Connected); ok {
			sessions <- n.Session
		}
	}
	user := connect(t, o)

	receipts := make(chan error, 1)
	half := make(chan struct{})
	go func() {
		var sent []*client.Pending
		for i := range n {
			if i == n/2 {
				close(half)
			}
			p, err := user.SendAsync(t.Context(), "ag::w::echo::1", fmt.Append(nil, i))
			if err != nil {
				receipts <- err
				return
			}
			sent = append(sent, p)
		}
		for _, p := range sent {
			if _, err := p.Wait(t.Context()); err != nil {
				receipts <- err
				return
			}
		}
		receipts <- nil
	}()
	<-half
	g.Stop()
	where.move(gatewaytest.StartIn(t, dir).Addr)

	select {
	case err := <-receipts:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("not every send was answered")
	}
	for i := range n {
		select {
		case text := <-got:
			if text != fmt.Sprint(i) {
				t.Fatalf("%s instead of %d", text, i)
			}
		case <-time.After(patience):
			t.Fatalf("message %d did not come", i)
		}
	}
	if _, err := user.Send(t.Context(), "ag::w::echo::1", []byte("last")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "last" {
		t.Errorf("%s came twice", text)
	}
	if first, second := <-sessions, <-sessions; first.ID == second.ID {
		t.Error("the user was not cut off: nothing was shown")
	}
}

// The network swallows everything and says nothing, so that both ends still think
// that they are connected. The client finds out by the silence and takes its own
// session over; what was sent meanwhile arrives once and in order.
func TestNetworkThatSwallowsEverything(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.HeartbeatInterval = 300 * time.Millisecond })
	proxy := faultproxy.New(t, g.Addr)
	var where place
	where.move(proxy.Addr())
	sessions := make(chan client.Session, 10)
	got := make(chan string, 200)
	o := where.options(client.Agent("w", "echo", "1"), g.AgentToken("w", "echo"))
	o.Handler = func(_ context.Context, m *client.Message) error { got <- string(m.Payload); return nil }
	o.OnNotice = func(n client.Notice) {
		if n, ok := n.(client.Connected); ok {
			sessions <- n.Session
		}
	}
	connect(t, o)
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	for i := range 100 {
		if i == 50 {
			proxy.Blackhole(true)
			where.move(g.Addr)
		}
		if _, err := user.Send(t.Context(), "ag::w::echo::1", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		select {
		case text := <-got:
			if text != fmt.Sprint(i) {
				t.Fatalf("%s instead of %d", text, i)
			}
		case <-time.After(patience):
			t.Fatalf("message %d did not come", i)
		}
	}
	first := <-sessions
	if second := <-sessions; first.Resumed || !second.Resumed || first.ID == second.ID {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

func TestEveryKindOfPrincipalConnects(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	for _, test := range []struct {
		identity client.Identity
		claims   auth.Claims
	}{
		{client.Agent("w", "i", "1"), workspaces(auth.KindAgent, "i", "w")},
		{client.UniqueTask("w", "i", "1"), workspaces(auth.KindTask, "i", "w")},
		{client.Task("w", "i"), workspaces(auth.KindTask, "i", "w")},
		{client.User("u", "1"), auth.Claims{Kind: auth.KindUser, User: "u", Workspaces: []string{"w"}}},
		{client.WorkflowEngine("1"), workspaces(auth.KindWorkflowEngine, "", "w")},
		{client.MetricsBridge("1"), workspaces(auth.KindMetricsBridge, "", "w")},
		{client.Orchestrator("i", "1", "*"), workspaces(auth.KindOrchestrator, "i", "w")},
		{client.Service("i", "1"), workspaces(auth.KindService, "i", "w")},
		{client.Bridge("i", "1"), workspaces(auth.KindBridge, "i", "w")},
	} {
		c := connect(t, client.Options{Addr: g.Addr, Identity: test.identity, Token: g.Token(test.claims)})
		if s := c.Session(); s.ID == "" || !s.Extended || s.Heartbeat <= 0 || s.CredentialExpires.IsZero() {
			t.Errorf("%s: %+v", test.identity, s)
		}
		if c.Address() == "" && test.identity == client.Task("w", "i") {
			t.Error("a task got no address")
		}
	}
}
