package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// cluster is two gateways on one log, one store and one Redis.
type cluster struct {
	redis *testservices.RedisServer
	a, b  *gatewaytest.Gateway
	token string // of every agent that is called echo
}

func newCluster(t *testing.T, changes ...func(*redis.Options)) *cluster {
	t.Helper()
	c := &cluster{redis: redistest.Aged(t)}
	shared := gatewaytest.Shared(t)
	change := func(i int) func(*redis.Options) {
		if i < len(changes) {
			return changes[i]
		}
		return nil
	}
	var starting sync.WaitGroup
	starting.Go(func() { c.a = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, c.redis.URL(), change(0))) })
	starting.Go(func() { c.b = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, c.redis.URL(), change(1))) })
	starting.Wait()
	if c.a == nil || c.b == nil {
		t.FailNow()
	}
	c.token = c.a.AgentToken("w", "echo")
	return c
}

func (c *cluster) user(t *testing.T, g *gatewaytest.Gateway) *gatewaytest.Peer {
	t.Helper()
	return gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
}

// agent connects an agent, in place of a predecessor if there is one.
func (c *cluster) agent(t *testing.T, g *gatewaytest.Gateway, old *gatewaytest.Peer) *gatewaytest.Peer {
	t.Helper()
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Delivery.MaxUnacked = 10_000
	init.ResumeSessionId = old.SessionID()
	return gatewaytest.MustDial(t, g.Addr, c.token, init)
}

const echo = "ag::w::echo::1"

// sendAll sends numbered messages and waits until all are stored.
func sendAll(user *gatewaytest.Peer, from, to int) {
	for i := from; i <= to; i++ {
		user.Send(send(echo, fmt.Sprint(i), fmt.Sprint(i)))
	}
	for range to - from + 1 {
		user.Receipt()
	}
}

// reads wants the messages in their order.
func reads(t *testing.T, peer *gatewaytest.Peer, from, to int) (last *aetherv1.IncomingMessage) {
	t.Helper()
	for i := from; i <= to; i++ {
		if last = peer.Message(); string(last.GetPayload()) != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", last.GetPayload(), i)
		}
	}
	return last
}

// Two gateways do not hand out one identity twice, and say nothing of who has
// it.
func TestIdentityIsHeldElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	holder := c.agent(t, c.a, nil)
	_, err := gatewaytest.Dial(t, c.b.Addr, c.token, gatewaytest.AgentInit("w", "echo", "1"))
	if status.Code(err) != codes.AlreadyExists {
		t.Fatalf("got %v", err)
	}
	if text := err.Error(); strings.Contains(text, holder.SessionID()) {
		t.Fatalf("the holder's session id is told: %s", text)
	}
	user := c.user(t, c.b)
	stale := gatewaytest.AgentInit("w", "echo", "1")
	stale.ResumeSessionId = user.SessionID()
	if _, err := gatewaytest.Dial(t, c.b.Addr, c.token, stale); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("with somebody else's session: %v", err)
	}
	// A message from the other gateway reaches it all the same.
	sendAll(user, 1, 1)
	reads(t, holder, 1, 1)
}

// A reader that has acknowledged 500 of 2,000 and comes back on another gateway
// while the first still takes its connection for alive goes on with 501 at
// once; what it had been given is flagged (delivery rules L4, L5, S7).
func TestL4ResumeElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	old := c.agent(t, c.a, nil)
	user := c.user(t, c.b)
	sendAll(user, 1, 2000)
	at := reads(t, old, 1, 500)
	old.Acknowledge(&aetherv1.DeliveryAck{UpTo: at.GetDeliveryId()})
	reads(t, old, 501, 600)
	old.Heartbeat() // the acknowledgement is known
	began := time.Now()
	agent := c.agent(t, c.b, old)
	if !agent.Ack.GetResumed() || agent.SessionID() == old.SessionID() || agent.Ack.GetEpoch() <= old.Ack.GetEpoch() {
		t.Errorf("got %v after %v", agent.Ack, old.Ack)
	}
	if m := reads(t, agent, 501, 501); !m.GetRedelivered() {
		t.Errorf("a repeat is not flagged: %v", m)
	}
	t.Logf("the first message came after %v", time.Since(began))
	signal := old.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetSignal() != nil }).GetSignal()
	if signal.GetCode() != "SUPERSEDED" || signal.GetType() != aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT {
		t.Errorf("got %v", signal)
	}
	if _, err := old.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the old stream ended with %v", err)
	}
	reads(t, agent, 502, 2000)
	sendAll(user, 2001, 2001)
	if m := reads(t, agent, 2001, 2001); m.GetRedelivered() {
		t.Errorf("a first delivery is flagged: %v", m)
	}
}

// Whether somebody is connected is answered on every gateway, and only to who
// may write to them.
func TestConnectionStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	holder := c.agent(t, c.a, nil)
	user := c.user(t, c.b)
	ask := func(kind, id string) *aetherv1.ConnectionStatusResponse {
		t.Helper()
		user.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_ConnectionStatusRequest{
			ConnectionStatusRequest: &aetherv1.ConnectionStatusRequest{
				RequestId: id, Principal: &aetherv1.PrincipalRef{PrincipalType: kind, PrincipalId: id},
			},
		}})
		answer := user.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetConnectionStatusResponse() != nil }).GetConnectionStatusResponse()
		if answer.GetRequestId() != id {
			t.Errorf("got %v for %s", answer, id)
		}
		return answer
	}
	until := func(id string, connected bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			answer := ask("agent", id)
			if answer.GetOk() && answer.GetConnected() == connected && (answer.GetLastSeenAt() > 0) == connected {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", id, answer)
			}
		}
	}
	until(echo, true)
	until("ag::w::echo::2", false)
	if answer := ask("USER", "us::u::1"); !answer.GetConnected() {
		t.Errorf("itself: %v", answer)
	}
	for _, refused := range []struct{ kind, id, code string }{
		{"agent", "ag::other::echo::1", "ERR_PERMISSION_DENIED"},
		{"service", "sv::i::s", "ERR_PERMISSION_DENIED"},
		{"orchestrator", "orc::i::s", "ERR_PERMISSION_DENIED"},
		{"user", echo, "ERR_INVALID_ARGUMENT"},
		{"agent", "ga::w", "ERR_INVALID_ARGUMENT"},
		{"agent", "", "ERR_INVALID_ARGUMENT"},
		{"", "ag::w::echo::2", "ERR_INVALID_ARGUMENT"},
		{"user", "somebody", "ERR_INVALID_ARGUMENT"},
	} {
		answer := ask(refused.kind, refused.id)
		if answer.GetOk() || answer.GetConnected() || !strings.HasPrefix(answer.GetError(), refused.code+": ") {
			t.Errorf("%v: %v", refused, answer)
		}
	}
	_ = holder.Leave()
	until(echo, false)
}
