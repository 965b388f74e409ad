package gateway_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/trust"
)

// effect is within which a revocation takes effect on every gateway.
const effect = 2 * time.Second

// revokedSession wants the end of a session whose credential was revoked.
func revokedSession(t *testing.T, p *gatewaytest.Peer, since time.Time, within time.Duration) {
	t.Helper()
	var signal *aetherv1.Signal
	err := p.Ended(func(f *aetherv1.DownstreamMessage) {
		if f.GetSignal() != nil {
			signal = f.GetSignal()
		}
		if f.GetMsg() != nil {
			t.Errorf("delivered to a revoked session: %v", f)
		}
	})
	if took := time.Since(since); took > within {
		t.Errorf("the session ended %s after the revocation", took)
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the session ended with %v", err)
	}
	if signal.GetType() != aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT || signal.GetCode() != "REVOKED" {
		t.Errorf("the client was told %v", signal)
	}
}

// A key that was made at one gateway connects at the other at once, and ends
// there when the first one revokes it. Others go on, and what is sent meanwhile
// waits for who comes with a good credential.
func TestKeyIsRevokedOnAnotherGateway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	text, key, err := c.a.Trust.CreateKey(t.Context(), trust.NewKey{
		Name: "build", ExpiresAt: time.Now().Add(time.Hour),
		Claims: auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Credentials = map[string]string{"x-api-key": text}
	agent := gatewaytest.MustDial(t, c.b.Addr, "", init)
	if got := agent.Ack.GetCredentialExpiresAtMs(); got != key.ExpiresAt.UnixMilli() {
		t.Errorf("expires at %d, want %d", got, key.ExpiresAt.UnixMilli())
	}
	user := c.user(t, c.b)
	sendAll(user, 1, 1)
	last := reads(t, agent, 1, 1)
	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: last.GetDeliveryId()})
	agent.Heartbeat()

	if _, _, err := c.a.Trust.RevokeKey(t.Context(), "build", "op"); err != nil {
		t.Fatal(err)
	}
	revokedSession(t, agent, time.Now(), effect)
	for _, g := range []*gatewaytest.Gateway{c.a, c.b} {
		init := gatewaytest.AgentInit("w", "echo", "1")
		init.Credentials = map[string]string{"x-api-key": text}
		if _, err := gatewaytest.Dial(t, g.Addr, "", init); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a revoked key connects: %v", err)
		}
	}
	sendAll(user, 2, 2)
	reads(t, c.agent(t, c.a, nil), 2, 2)
}

// Tokens are revoked by their id, subject, user or identity, on every gateway,
// and only those that are meant.
func TestTokensAreRevoked(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const subject = "somebody"
	long := time.Now().Add(-time.Hour)
	agent := func(g *gatewaytest.Gateway, spec, id, subject string) *gatewaytest.Peer {
		return gatewaytest.MustDial(t, g.Addr, g.Token(auth.Claims{
			Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: spec, ID: id, Subject: subject, IssuedAt: long,
		}), gatewaytest.AgentInit("w", "echo", spec))
	}
	user := func(g *gatewaytest.Gateway, user, window string) *gatewaytest.Peer {
		return gatewaytest.MustDial(t, g.Addr, g.Token(auth.Claims{Kind: auth.KindUser, Workspaces: []string{"w"}, User: user, IssuedAt: long}),
			gatewaytest.UserInit(user, window))
	}
	byID, other := agent(c.b, "1", "jti-1", "a"), agent(c.b, "2", "jti-2", "b")
	bySubject, alsoBySubject := agent(c.a, "3", "jti-3", subject), agent(c.b, "4", "jti-4", subject)
	byIdentity := agent(c.b, "5", "jti-5", "c")
	alice, aliceToo, bob := user(c.a, "alice", "1"), user(c.b, "alice", "2"), user(c.b, "bob", "1")

	for _, r := range []struct {
		revocation store.Revocation
		ended      []*gatewaytest.Peer
	}{
		{store.Revocation{What: store.RevokedToken, ID: "jti-1"}, []*gatewaytest.Peer{byID}},
		{store.Revocation{What: store.RevokedSubject, ID: subject}, []*gatewaytest.Peer{bySubject, alsoBySubject}},
		{store.Revocation{What: store.RevokedIdentity, ID: "ag::w::echo::5"}, []*gatewaytest.Peer{byIdentity}},
		{store.Revocation{What: store.RevokedUser, ID: "alice"}, []*gatewaytest.Peer{alice, aliceToo}},
	} {
		if err := c.a.Trust.Revoke(t.Context(), r.revocation); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for _, p := range r.ended {
			revokedSession(t, p, begun, effect)
		}
	}
	other.Heartbeat()
	bob.Heartbeat()
	// A new token of the same subject is good; the old one is not, not even to go
	// on with.
	init := func() *aetherv1.InitConnection { return gatewaytest.AgentInit("w", "echo", "3") }
	claims := auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "3", Subject: subject, IssuedAt: long}
	old := c.b.Token(claims)
	if _, err := gatewaytest.Dial(t, c.b.Addr, old, init()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked token connects: %v", err)
	}
	claims.IssuedAt = time.Now().Add(2 * time.Second)
	again := gatewaytest.MustDial(t, c.b.Addr, c.b.Token(claims), init())
	if done, refusal := again.Reauthenticate(old); done != nil || refusal.GetCode() != "ERR_UNAUTHENTICATED" {
		t.Errorf("went on with a revoked token: %v, %v", done, refusal)
	}
	again.Heartbeat()
}
