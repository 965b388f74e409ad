package gateway_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
)

func limited(o limits.Options) gatewaytest.Option {
	return func(g *gateway.Options) { g.Limits = o }
}

// limitedPair is two gateways on one log, one store and one Redis.
func limitedPair(t *testing.T, o limits.Options) (a, b *gatewaytest.Gateway) {
	t.Helper()
	redis, shared := redistest.Aged(t), gatewaytest.Shared(t)
	var starting sync.WaitGroup
	starting.Go(func() { a = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, redis.URL(), nil), limited(o)) })
	starting.Go(func() { b = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, redis.URL(), nil), limited(o)) })
	starting.Wait()
	if a == nil || b == nil {
		t.FailNow()
	}
	return a, b
}

// outcome is the answer to one send.
type outcome struct {
	stored bool
	err    *aetherv1.ErrorResponse
}

// sendSome sends n messages and waits for the answer of each.
func sendSome(p *gatewaytest.Peer, to string, n int) []outcome {
	for i := range n {
		p.Send(send(to, fmt.Sprint(i), fmt.Sprint(i)))
	}
	list := make([]outcome, n)
	for range n {
		m := p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
		if r := m.GetReceipt(); r != nil {
			i, _ := strconv.Atoi(r.GetRequestId())
			list[i].stored = true
		} else {
			i, _ := strconv.Atoi(m.GetError().GetRequestId())
			list[i].err = m.GetError()
		}
	}
	return list
}

// Row 19 of what others are complained of: the limit holds over two gateways,
// only the offender is refused, with a code and a time, and nothing that was
// refused is stored.
func TestRow19LimitOverTwoGateways(t *testing.T) {
	t.Parallel()
	const rate = 100
	a, b := limitedPair(t, limits.Options{Source: limits.Rate{Messages: rate}})
	const sink = "ag::w::sink::1"
	var senders sync.WaitGroup
	var mu sync.Mutex
	stored, steady := 0, 0
	// What is saved up is spent; then the rate is measured.
	spent := make(chan struct{}, 2)
	measure, stop := make(chan struct{}), make(chan struct{})
	for i, g := range []*gatewaytest.Gateway{a, b} {
		window := gatewaytest.MustDial(t, g.Addr, g.UserToken("noisy", "w"), gatewaytest.UserInit("noisy", fmt.Sprint(i)))
		senders.Go(func() {
			measuring, told := false, false
			for {
				select {
				case <-stop:
					return
				case <-measure:
					measuring = true
				default:
				}
				ok := 0
				for _, o := range sendSome(window, sink, 10) {
					if o.stored {
						ok++
						continue
					}
					if e := o.err; e.GetCode() != "ERR_RATE_LIMITED" || !e.GetRetryable() || e.GetRetryAfterMs() < 1 || e.GetRetryAfterMs() > 10_000 ||
						e.GetDetails()["scope"] != "credential" || e.GetDetails()["unit"] != "messages" || e.GetDetails()["limit"] != fmt.Sprint(rate) {
						t.Errorf("refused with %v", e)
					}
					if !told {
						told = true
						spent <- struct{}{}
					}
				}
				mu.Lock()
				stored += ok
				if measuring {
					steady += ok
				}
				mu.Unlock()
			}
		})
	}
	quiet := gatewaytest.MustDial(t, a.Addr, a.UserToken("quiet", "w"), gatewaytest.UserInit("quiet", "1"))
	for range 2 {
		<-spent
	}
	// Meanwhile what both have begun with is paid back.
	settled := time.Now().Add(3 * time.Second)
	for n := 0; time.Now().Before(settled); n++ {
		if n < rate {
			if o := sendSome(quiet, sink, 1)[0]; !o.stored {
				t.Errorf("somebody else is refused: %v", o.err)
			}
			mu.Lock()
			stored++
			mu.Unlock()
		}
		quiet.Heartbeat()
	}
	close(measure)
	began := time.Now()
	<-time.After(5 * time.Second)
	close(stop)
	senders.Wait()
	took := time.Since(began).Seconds()
	if got := float64(steady); got < 0.9*rate*took-20 || got > 1.1*rate*took+20 {
		t.Errorf("%d messages were stored in %.2f s, at a limit of %d per second", steady, took, rate)
	}
	t.Logf("%d messages in %.2f s: %.1f per second, %d in all", steady, took, float64(steady)/took, stored)

	init := gatewaytest.AgentInit("w", "sink", "1")
	init.Delivery.MaxUnacked = 10_000
	reader := gatewaytest.MustDial(t, b.Addr, b.AgentToken("w", "sink"), init)
	quiet.Send(send(sink, "last", "last"))
	got := 0
	for {
		m := reader.Message()
		if string(m.GetPayload()) == "last" {
			break
		}
		got++
	}
	if got != stored {
		t.Errorf("%d messages arrived, %d were stored", got, stored)
	}
}

// The limit of a workspace has a code of its own; a reconnect on the other
// gateway brings nothing back.
func TestWorkspaceRate(t *testing.T) {
	t.Parallel()
	a, b := limitedPair(t, limits.Options{Workspace: limits.Rate{Messages: 10}})
	try := func(g *gatewaytest.Gateway, user, workspace string) (stored int) {
		p := gatewaytest.MustDial(t, g.Addr, g.UserToken(user, workspace), gatewaytest.UserInit(user, "1"))
		for _, o := range sendSome(p, "ag::"+workspace+"::i::s", 30) {
			if o.stored {
				stored++
			} else if e := o.err; e.GetCode() != "ERR_WORKSPACE_RATE_LIMITED" || e.GetRetryAfterMs() < 1 || e.GetDetails()["scope"] != "workspace" {
				t.Errorf("refused with %v", e)
			}
		}
		if err := p.Leave(); status.Code(err) != codes.Unknown && err.Error() != "EOF" {
			t.Errorf("the stream ended with %v", err)
		}
		return stored
	}
	began := time.Now()
	total := try(a, "one", "w") + try(b, "two", "w") + try(a, "three", "w")
	// What one gateway has not told yet when the other is asked may pass twice;
	// it is paid back.
	const untold = 10
	if most := 20 + 10*time.Since(began).Seconds()*1.1 + untold; float64(total) > most || total < 20 {
		t.Errorf("%d messages passed, at most %.0f should", total, most)
	}
	if n := try(b, "four", "other"); n < 20 {
		t.Errorf("another workspace is limited to %d", n)
	}
}

// Sessions are counted over both gateways.
func TestSessionsOverTwoGateways(t *testing.T) {
	t.Parallel()
	a, b := limitedPair(t, limits.Options{WorkspaceSessions: 4, SourceSessions: 3})
	var peers []*gatewaytest.Peer
	for i, g := range []*gatewaytest.Gateway{a, b, a} {
		peers = append(peers, gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", fmt.Sprint(i))))
	}
	refused := func(g *gatewaytest.Gateway, user string) {
		t.Helper()
		_, err := gatewaytest.Dial(t, g.Addr, g.UserToken(user, "w"), gatewaytest.UserInit(user, "x"))
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("got %v", err)
		}
	}
	refused(b, "u")
	peers = append(peers, gatewaytest.MustDial(t, b.Addr, b.UserToken("v", "w"), gatewaytest.UserInit("v", "1")))
	refused(a, "w")
	if n := b.Sessions.Stats().Crowded.Load() + a.Sessions.Stats().Crowded.Load(); n != 2 {
		t.Errorf("%d are counted as turned away", n)
	}
	// Who resumes takes the place of the session before.
	init := gatewaytest.UserInit("v", "1")
	init.ResumeSessionId = peers[3].SessionID()
	gatewaytest.MustDial(t, a.Addr, a.UserToken("v", "w"), init)
	_ = peers[0].Leave()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := gatewaytest.Dial(t, b.Addr, b.UserToken("w", "w"), gatewaytest.UserInit("w", "x"))
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is room again, and yet: %v", err)
		}
	}
}
