package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// renewing is an agent whose tokens last for a thousand seconds of the gateway's
// clock.
type renewing struct {
	*client.Client
	sealed atomic.Bool        // there are no more tokens
	lost   chan client.Notice // connections lost, and warnings
}

const tokenLife = 1000 * time.Second

func connectRenewing(t *testing.T, g *gatewaytest.Gateway, clock *gatewaytest.Clock, spec string) *renewing {
	t.Helper()
	r := &renewing{lost: make(chan client.Notice, 100)}
	r.Client = connect(t, client.Options{
		Addr: g.Addr, Identity: client.Agent("w", "echo", spec), MaxUnacked: 10_000,
		TokenSource: func(context.Context) (string, error) {
			if r.sealed.Load() {
				return "", errors.New("vault is sealed")
			}
			now := clock.Now()
			return g.Token(auth.Claims{
				Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "*", IssuedAt: now, ExpiresAt: now.Add(tokenLife),
			}), nil
		},
		OnNotice: func(n client.Notice) {
			switch n.(type) {
			case client.Disconnected, client.CredentialExpiring, client.Refused:
				r.lost <- n
			}
		},
	})
	return r
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// Ten refreshes while 500 messages a second go from one agent to another: none is
// lost or doubled, no session ends, each is preceded by its warning. Without a
// new token the stream ends within 5 s of the expiry.
func TestRow10TenRefreshesUnderLoad(t *testing.T) {
	t.Parallel()
	clock := &gatewaytest.Clock{}
	g := gatewaytest.Start(t, gatewaytest.WithClock(clock))
	from, to := connectRenewing(t, g, clock, "1"), connectRenewing(t, g, clock, "2")
	sessions := []string{from.Session().ID, to.Session().ID}

	stop, sent := make(chan struct{}), make(chan int, 1)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		var last *client.Pending
		n, begun := 0, time.Now()
		for {
			select {
			case <-stop:
				if _, err := last.Wait(context.Background()); err != nil {
					t.Error(err)
				}
				sent <- n
				return
			case <-tick.C:
			}
			for due := int(time.Since(begun).Seconds() * 500); n < due; n++ {
				p, err := from.SendAsync(context.Background(), to.Address(), fmt.Append(nil, n))
				if err != nil {
					t.Error(err)
					sent <- n
					return
				}
				last = p
			}
		}
	}()
	var received atomic.Int64
	go func() {
		for m := range to.Messages(context.Background()) {
			if n := received.Load(); string(m.Payload) != fmt.Sprint(n) {
				t.Errorf("got %s, want %d", m.Payload, n)
			}
			m.Ack()
			received.Add(1)
		}
	}()

	const refreshes = 10
	for range refreshes {
		before := [2]time.Time{from.Session().CredentialExpires, to.Session().CredentialExpires}
		clock.Forward(tokenLife * 76 / 100)
		for i, c := range []*renewing{from, to} {
			eventually(t, "a new credential", func() bool { return c.Session().CredentialExpires.After(before[i]) })
		}
		at := received.Load()
		eventually(t, "traffic between two refreshes", func() bool { return received.Load() > at+50 })
	}
	close(stop)
	total := <-sent
	eventually(t, "the last message", func() bool { return received.Load() == int64(total) })
	t.Logf("%d messages", total)
	for i, c := range []*renewing{from, to} {
		if c.Session().ID != sessions[i] {
			t.Error("a session ended")
		}
		warned := 0
		for len(c.lost) > 0 {
			switch n := (<-c.lost).(type) {
			case client.CredentialExpiring:
				warned++
			default:
				t.Errorf("notice: %+v", n)
			}
		}
		if warned != refreshes {
			t.Errorf("%d warnings for %d refreshes", warned, refreshes)
		}
	}

	from.sealed.Store(true)
	clock.Forward(tokenLife)
	over := time.Now()
	for n := range from.lost {
		if d, ok := n.(client.Disconnected); ok {
			// Its end was UNAUTHENTICATED, and for another session there was no token.
			if client.CodeOf(d.Err) != client.CodeTokenSource {
				t.Errorf("ended with %v", d.Err)
			}
			break
		}
	}
	if took := time.Since(over); took > 5*time.Second {
		t.Errorf("the stream ended after %s", took)
	}
}
