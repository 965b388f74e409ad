package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// outcome is a receipt in short.
func outcome(t *testing.T, p *client.Pending) string {
	t.Helper()
	r, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %d/%d %s", r.Outcome, r.Acked, r.Eligible, r.Reason)
}

// Receivers decide what a sender is told of a broadcast and of a message to one,
// and a client that is behind refuses what it drops.
func TestTrackedSends(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	token := g.AgentToken("w", "echo")
	agent := func(spec string, change func(*client.Options)) *client.Client {
		t.Helper()
		o := client.Options{Addr: g.Addr, Token: token, Identity: client.Agent("w", "echo", spec)}
		if change != nil {
			change(&o)
		}
		return connect(t, o)
	}
	from, one, two := agent("from", nil), agent("1", nil), agent("2", nil)
	send := func(to, text string, opts ...client.SendOption) *client.Pending {
		t.Helper()
		p, err := from.SendAsync(t.Context(), to, []byte(text), opts...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	wants := func(p *client.Pending, want string) {
		t.Helper()
		if got := outcome(t, p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	p := send("ga::w", "all", client.WithAll(time.Minute))
	receive(t, one).Ack()
	receive(t, two).Ack()
	wants(p, "acked 2/2 ")

	p = send("ga::w", "refused", client.WithAll(time.Minute))
	receive(t, one).Nack("busy")
	receive(t, two)
	wants(p, "nacked 0/2 busy")

	p = send("ag::w::echo::1", "own", client.WithFirst(time.Minute))
	receive(t, one).Ack()
	wants(p, "acked 1/1 ")
	wants(send("ag::w::echo::away", "nobody", client.WithFirst(10*time.Millisecond)), "timed_out 0/1 ")
	wants(send("tb::w::echo", "no worker", client.WithFirst(time.Minute)), "nacked 0/0 "+client.NoEligible)
	wants(send("ag::w::echo::1", "stored"), "stored 0/0 ")
	receive(t, one).Ack()

	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := two.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := agent("slow", func(o *client.Options) { o.SharedBuffer = 1 })
	p = send("ga::w", "dropped", client.WithFirst(time.Minute))
	last := send("ga::w", "kept", client.WithFirst(time.Minute))
	wants(p, "nacked 0/1 the receiver is behind")
	receive(t, slow).Drop("not mine")
	wants(last, "nacked 0/1 not mine")
}

// What the gateway would refuse is refused at once.
func TestTrackedRefusals(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	c := connect(t, client.Options{Addr: g.Addr, Token: g.AgentToken("w", "echo"), Identity: client.Agent("w", "echo", "1")})
	for name, opt := range map[string]client.SendOption{
		"negative": client.WithFirst(-1), "too long": client.WithAll(2 * time.Hour),
	} {
		if _, err := c.Send(t.Context(), "ga::w", nil, opt); client.CodeOf(err) != client.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Post(t.Context(), "ga::w", nil, client.WithAll(0)); client.CodeOf(err) != client.CodeInvalidArgument {
		t.Errorf("a post: %v", err)
	}
	if _, err := c.Send(t.Context(), "ag::w::echo::2", nil, client.WithAll(0)); client.CodeOf(err) != client.CodeInvalidArgument {
		t.Errorf("ALL for one: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Send(ctx, "ag::w::echo::2", nil, client.WithFirst(300*time.Millisecond)); client.CodeOf(err) != client.CodeUnknownOutcome {
		t.Errorf("given up: %v", err)
	}
}
