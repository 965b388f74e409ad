package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

type pair struct {
	g     *gatewaytest.Gateway
	token string
	user  *gatewaytest.Peer
}

func newPair(t *testing.T, options ...gatewaytest.Option) *pair {
	t.Helper()
	g := gatewaytest.Start(t, options...)
	return &pair{
		g: g, token: g.AgentToken("w", "echo"),
		user: gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1")),
	}
}

func (p *pair) agent(t *testing.T) *gatewaytest.Peer {
	t.Helper()
	return gatewaytest.MustDial(t, p.g.Addr, p.token, gatewaytest.AgentInit("w", "echo", "1"))
}

// auto connects the agent as a client that knows no acknowledgements.
func (p *pair) auto(t *testing.T) *gatewaytest.Peer {
	t.Helper()
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Delivery = nil
	return p.retry(t, init)
}

// retry dials until the identity's lease is free.
func (p *pair) retry(t *testing.T, init *aetherv1.InitConnection) *gatewaytest.Peer {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		peer, err := gatewaytest.Dial(t, p.g.Addr, p.token, init)
		if err == nil {
			return peer
		}
		if status.Code(err) != codes.AlreadyExists || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (p *pair) send(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		p.user.Send(send("ag::w::echo::1", text, text))
		if r := p.user.Receipt(); r.GetRequestId() != text {
			t.Fatalf("got %v", r)
		}
	}
}

func wants(t *testing.T, peer *gatewaytest.Peer, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if m := peer.Message(); string(m.GetPayload()) != text {
			t.Fatalf("got %q, want %q", m.GetPayload(), text)
		}
	}
}

// Delivery rule A: a client that half-closes and reads to the end is done with
// all that was written.
func TestAutoHalfClose(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.send(t, "1", "2")
	agent := p.auto(t)
	wants(t, agent, "1", "2")
	_ = agent.Leave()
	p.send(t, "3")
	wants(t, p.auto(t), "3")
}

// Delivery rule A: what a connection that is closed had not proved to have
// taken comes again.
func TestAutoConnectionClosed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.send(t, "1", "2")
	agent := p.auto(t)
	wants(t, agent, "1", "2")
	agent.Cut()
	wants(t, p.auto(t), "1", "2")
}

// Delivery rule A: a stream that is cancelled on a live connection is done
// with what was written more than a second before.
func TestAutoCancel(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.send(t, "1")
	agent := p.auto(t)
	wants(t, agent, "1")
	agent.Cancel() // at once: too early
	agent = p.auto(t)
	wants(t, agent, "1")
	// The gateway counts only time in which it ran, so that on a busy machine
	// more than the second may have to pass: a session that was too short gets
	// the message again, and the next one lasts longer.
	for lasts := 3 * time.Second; ; lasts *= 2 {
		hold(agent, lasts)
		agent.Cancel()
		agent = p.auto(t)
		p.send(t, "2")
		first := string(agent.Message().GetPayload())
		if first == "2" {
			return
		}
		if lasts > patience || first != "1" {
			t.Fatalf("after %v on the stream, %q came again", lasts, first)
		}
		wants(t, agent, "2")
	}
}

// patience is longer than a gateway may need to notice that time went on.
const patience = 40 * time.Second

// hold keeps a stream open: heartbeats are answered meanwhile.
func hold(peer *gatewaytest.Peer, lasts time.Duration) {
	for start := time.Now(); time.Since(start) < lasts; {
		peer.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{}}})
		peer.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetHeartbeat() != nil })
	}
}

func TestDuplicateIdentity(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.agent(t)
	_, err := gatewaytest.Dial(t, p.g.Addr, p.token, gatewaytest.AgentInit("w", "echo", "1"))
	if status.Code(err) != codes.AlreadyExists || !strings.HasPrefix(status.Convert(err).Message(), "DuplicateIdentityError: identity (") {
		t.Fatalf("got %v", err)
	}
}

// A session that names its predecessor takes its place at once; the old stream
// is told why it ends.
func TestResume(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	old := p.agent(t)
	p.send(t, "1")
	wants(t, old, "1")

	wrong := gatewaytest.AgentInit("w", "echo", "1")
	wrong.ResumeSessionId = p.user.Ack.GetSessionId()
	if _, err := gatewaytest.Dial(t, p.g.Addr, p.token, wrong); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("somebody else's session id: %v", err)
	}
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.ResumeSessionId = old.Ack.GetSessionId()
	agent := gatewaytest.MustDial(t, p.g.Addr, p.token, init)
	if !agent.Ack.GetResumed() || agent.Ack.GetSessionId() == old.Ack.GetSessionId() || agent.Ack.GetEpoch() <= old.Ack.GetEpoch() {
		t.Fatalf("got %v after %v", agent.Ack, old.Ack)
	}
	signal := old.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetSignal() != nil }).GetSignal()
	if signal.GetCode() != "SUPERSEDED" {
		t.Fatalf("got %v", signal)
	}
	if _, err := old.Recv(); status.Code(err) != codes.Aborted {
		t.Fatalf("the old stream ended with %v", err)
	}
	wants(t, agent, "1")
}

func TestCredentialExpires(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.token = p.g.Token(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "1", ExpiresAt: time.Now().Add(2 * time.Second)})
	agent := p.agent(t)
	if err := agent.Ended(nil); status.Code(err) != codes.Unauthenticated {
		t.Fatalf("ended with %v", err)
	}
}

func TestNoInit(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(o *gateway.Options) { o.InitTimeout = 50 * time.Millisecond })
	st := gatewaytest.Open(t, p.g.Addr)
	if _, err := st.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("got %v", err)
	}
}

// A stream that takes nothing is ended, its messages stay.
func TestWriteTimeout(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(o *gateway.Options) { o.WriteTimeout = 2 * time.Second })
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Delivery.MaxUnacked = 10_000
	stuck := gatewaytest.MustDial(t, p.g.Addr, p.token, init)
	big := strings.Repeat("x", 100_000)
	const n = 100
	for i := range n {
		p.user.Send(send("ag::w::echo::1", fmt.Sprintf("%d %s", i, big), "r"))
		p.user.Receipt()
	}
	agent := p.retry(t, gatewaytest.AgentInit("w", "echo", "1"))
	for i := range n {
		m := agent.Message()
		if got, _, _ := strings.Cut(string(m.GetPayload()), " "); got != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, got)
		}
		agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	}
	stuck.Cut()
}

// Shutting down tells every client when to come back, and stores what was
// accepted.
func TestStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := gatewaytest.StartIn(t, dir)
	agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	for i := range 100 {
		agent.Send(send("ag::w::echo::2", fmt.Sprint(i), fmt.Sprint(i)))
	}
	agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt().GetRequestId() == "10" })
	g.Stop()
	accepted := 10
	signalled := false
	for {
		m, err := agent.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("the stream ended with %v", err)
			}
			break
		}
		if m.GetReceipt() != nil {
			accepted++
		}
		if s := m.GetSignal(); s != nil {
			signalled = s.GetType() == aetherv1.Signal_SIGNAL_TYPE_GRACEFUL_DISCONNECT
		}
	}
	if !signalled {
		t.Fatal("the client was not told")
	}
	g = gatewaytest.StartIn(t, dir)
	init := gatewaytest.AgentInit("w", "echo", "2")
	other := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), init)
	for i := range accepted + 1 {
		wants(t, other, fmt.Sprint(i))
	}
}

// What the gateway cannot do is said for each frame, and the stream stays
// open.
func TestFrameErrors(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	long := strings.Repeat("x", 65)
	for _, c := range []struct {
		name  string
		frame *aetherv1.UpstreamMessage
		want  string
		id    string
	}{
		{"nothing", &aetherv1.UpstreamMessage{}, "ERR_INVALID_ARGUMENT", ""},
		{"keys of a user", &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_KvOp{KvOp: &aetherv1.KVOperation{Key: "k", RequestId: "k"}}}, "KV_ERROR", "k"},
		{"token", &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TokenOp{TokenOp: &aetherv1.TokenOperation{RequestId: "t"}}}, "ERR_NOT_IMPLEMENTED", "t"},
		{"tunnel", &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TunnelOpen{TunnelOpen: &aetherv1.TunnelOpen{}}}, "ERR_NOT_IMPLEMENTED", ""},
		{"batch", &aetherv1.UpstreamMessage{Batch: []*aetherv1.UpstreamMessage{{}}}, "ERR_INVALID_ARGUMENT", ""},
		{"empty ack", &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Ack{Ack: &aetherv1.DeliveryAck{}}}, "ERR_INVALID_ARGUMENT", ""},
		{"ack of nothing", &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Ack{Ack: &aetherv1.DeliveryAck{UpTo: 7}}}, "ERR_INVALID_ARGUMENT", ""},
		{"topic", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w", RequestId: "1"}), "ERR_INVALID_TOPIC", "1"},
		{"denied", sendFrame(&aetherv1.SendMessage{TargetTopic: "event::w", RequestId: "2"}), "ERR_PERMISSION_DENIED", "2"},
		{"type", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", MessageType: 99, RequestId: "3"}), "ERR_INVALID_ARGUMENT", "3"},
		{"payload", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", Payload: make([]byte, 1_000_001), RequestId: "4"}), "ERR_PAYLOAD_TOO_LARGE", "4"},
		{"message id", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", MessageId: long, RequestId: "5"}), "ERR_INVALID_ARGUMENT", "5"},
		{"metadata", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", Metadata: map[string]string{"aether-x": ""}, RequestId: "6"}), "ERR_INVALID_ARGUMENT", "6"},
		{"subject", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", Subject: "a..b", RequestId: "7"}), "ERR_INVALID_TOPIC", "7"},
		{"ttl", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", TtlMs: -1, RequestId: "8"}), "ERR_INVALID_ARGUMENT", "8"},
		{"tracking", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", Tracking: &aetherv1.Tracking{Mode: aetherv1.TrackingMode_TRACKING_MODE_ALL}}), "ERR_INVALID_ARGUMENT", ""},
		{"tracking mode", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", Tracking: &aetherv1.Tracking{Mode: 9}, RequestId: "9"}), "ERR_INVALID_ARGUMENT", "9"},
		{"grant", sendFrame(&aetherv1.SendMessage{TargetTopic: "ag::w::echo::1", Authorization: &aetherv1.AuthorizationContext{GrantId: "g"}, RequestId: "10"}), "ERR_GRANT_INVALID", "10"},
	} {
		p.user.Up(c.frame)
		if e := p.user.Error(); e.GetCode() != c.want || e.GetRequestId() != c.id {
			t.Errorf("%s: got %v", c.name, e)
		}
	}
	p.send(t, "still open")
	wants(t, p.agent(t), "still open")
}

func sendFrame(m *aetherv1.SendMessage) *aetherv1.UpstreamMessage {
	return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: m}}
}

// A gateway whose sessions do not go in time says so.
func TestStopTimeout(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	if err := g.Sessions.Drain(ctx); err == nil {
		t.Fatal("it says that all have gone")
	}
}
