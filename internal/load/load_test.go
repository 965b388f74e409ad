package load_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/client"
	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// to is a way to connect agents to a gateway.
func to(g *gatewaytest.Gateway) func(context.Context, string, client.Options) (*client.Client, error) {
	token := g.Token(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "bench", Spec: "*"})
	return func(ctx context.Context, specifier string, o client.Options) (*client.Client, error) {
		o.Addr, o.Token, o.Identity = g.Addr, token, client.Agent("w", "bench", specifier)
		return client.Connect(ctx, o)
	}
}

// until makes connections by which so many messages, in all, end the context
// that is returned: however slow the machine is, so many are measured.
func until(t *testing.T, g *gatewaytest.Gateway, messages int64) (context.Context, func(context.Context, string, client.Options) (*client.Client, error)) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	var came atomic.Int64
	return ctx, func(ctx context.Context, specifier string, o client.Options) (*client.Client, error) {
		if handle := o.Handler; handle != nil {
			o.Handler = func(ctx context.Context, m *client.Message) error {
				defer func() {
					if came.Add(1) == messages {
						cancel()
					}
				}()
				return handle(ctx, m)
			}
		}
		return to(g)(ctx, specifier, o)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	for name, o := range map[string]load.Options{
		"saturated": {Pairs: 3, Window: 32},
		"at a rate": {Rate: 200, Payload: 1000, Window: 16},
	} {
		o.Duration, o.Warmup = time.Hour, -1
		var ctx context.Context
		ctx, o.Connect = until(t, g, 600/int64(1+o.Rate/40))
		r, err := load.Run(ctx, o)
		if err != nil || r.Messages == 0 || r.Faulty() || r.Limited > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if r.PerSecond() <= 0 || r.OneWay.Samples == 0 || r.OneWay.P50 <= 0 || r.OneWay.P99 < r.OneWay.P50 || r.Receipt.Samples == 0 || r.Receipt.Max < r.Receipt.P99 {
			t.Errorf("%s: %+v", name, r)
		}
		if o.Rate > 0 && r.PerSecond() > 1.1*float64(o.Rate) {
			t.Errorf("%s: %.0f messages per second", name, r.PerSecond())
		}
	}
}

// A limit of the deployment slows the senders, and is no fault.
func TestLimited(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.Limits.Identity = limits.Rate{Messages: 20} })
	ctx, connect := until(t, g, 25) // more than a second's worth, of which a few are let through at once
	r, err := load.Run(ctx, load.Options{Connect: connect, Duration: time.Hour, Warmup: -1})
	if err != nil || r.Limited == 0 || r.Faulty() || !strings.Contains(r.Refusal, "ERR_RATE_LIMITED") {
		t.Errorf("%+v, %v", r, err)
	}
}

// Who ends the measurement early gets what was measured; a session that ends is
// an error, and what is not allowed is not tried.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	first := make(chan string, 1)
	connect := func(ctx context.Context, specifier string, o client.Options) (*client.Client, error) {
		c, err := to(g)(ctx, specifier, o)
		select {
		case first <- specifier:
		default:
		}
		return c, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-first
		cancel()
	}()
	began := time.Now()
	if r, err := load.Run(ctx, load.Options{Connect: connect, Duration: time.Hour}); time.Since(began) > time.Minute {
		t.Errorf("not ended early: %+v, %v", r, err)
	}

	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	first = make(chan string, 1)
	go func() {
		_, _ = op.KickSession(t.Context(), &adminv1.KickSessionRequest{Target: "ag::w::bench::" + <-first})
	}()
	if r, err := load.Run(t.Context(), load.Options{Connect: connect, Duration: time.Hour}); client.CodeOf(err) != client.CodeDisconnected {
		t.Errorf("kicked: %+v, %v", r, err)
	}

	for _, o := range []load.Options{{Pairs: -1}, {Pairs: 1000}, {Payload: 8}, {Payload: 2 << 20}, {Window: 5000}, {Rate: -1}, {Duration: -1}} {
		if _, err := load.Run(t.Context(), o); err == nil {
			t.Errorf("%+v is allowed", o)
		}
	}
}
