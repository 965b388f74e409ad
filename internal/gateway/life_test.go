package gateway_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/store"
)

// mortal is a gateway with a clock of its own.
type mortal struct {
	*gatewaytest.Gateway
	clock *gatewaytest.Clock
}

func newMortal(t *testing.T, options ...gatewaytest.Option) *mortal {
	t.Helper()
	clock := &gatewaytest.Clock{}
	return &mortal{gatewaytest.Start(t, append(options, gatewaytest.WithClock(clock))...), clock}
}

// life is a token's in these tests: long enough for the real clock not to count.
const life = 1000 * time.Second

// token is one for agents that is issued now and lasts for a while.
func (m *mortal) token(spec string, lasts time.Duration) string {
	now := m.clock.Now()
	return m.Token(auth.Claims{
		Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: spec, IssuedAt: now, ExpiresAt: now.Add(lasts),
	})
}

func (m *mortal) agent(t *testing.T, spec, token string) *gatewaytest.Peer {
	t.Helper()
	return gatewaytest.MustDial(t, m.Addr, token, gatewaytest.AgentInit("w", "echo", spec))
}

// expiring waits for the warning, and returns what it says.
func expiring(p *gatewaytest.Peer) int64 {
	return p.Until(func(f *aetherv1.DownstreamMessage) bool { return f.GetCredentialExpiring() != nil }).GetCredentialExpiring().GetExpiresAtMs()
}

// A client is warned after three quarters of its token's life, once and not
// before; when it is over, nothing that it sends is acted on, nothing is
// delivered to it, and the stream ends.
func TestRow10WarningAndExpiry(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	agent := m.agent(t, "1", m.token("1", life))
	other := m.agent(t, "2", m.token("2", 10*life))
	ends := agent.Ack.GetCredentialExpiresAtMs()

	m.clock.Forward(life * 74 / 100)
	warned := false
	agent.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{}}})
	agent.Until(func(f *aetherv1.DownstreamMessage) bool {
		warned = warned || f.GetCredentialExpiring() != nil
		return f.GetHeartbeat() != nil
	})
	if warned {
		t.Error("warned before three quarters of the lifetime")
	}
	m.clock.Forward(life * 2 / 100)
	if at := expiring(agent); at != ends {
		t.Errorf("warned of %d, the token ends at %d", at, ends)
	}
	agent.Send(send("ag::w::echo::2", "before", "before"))
	if r := agent.Receipt(); r.GetRequestId() != "before" {
		t.Fatalf("got %v", r)
	}
	wants(t, other, "before")

	m.clock.Forward(life)
	over := time.Now()
	agent.Send(send("ag::w::echo::2", "after", "after"))
	other.Send(send("ag::w::echo::1", "late", "late"))
	if r := other.Receipt(); r.GetRequestId() != "late" {
		t.Fatalf("got %v", r)
	}
	err := agent.Ended(func(f *aetherv1.DownstreamMessage) {
		if f.GetMsg() != nil || f.GetReceipt() != nil || f.GetCredentialExpiring() != nil {
			t.Errorf("after the expiry came %v", f)
		}
	})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(over); took > 5*time.Second {
		t.Errorf("the stream ended %s after the expiry", took)
	}
	// The message waits for who comes with a good token; what was sent too late
	// is not stored.
	again := m.agent(t, "1", m.token("1", life))
	wants(t, again, "late")
	again.Send(send("ag::w::echo::2", "again", "again"))
	wants(t, other, "again")
}

// Clients that do not know the extension are not warned, and end all the same.
func TestRow10ClientsWithoutTheExtension(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Delivery = nil
	agent := gatewaytest.MustDial(t, m.Addr, m.token("1", life), init)
	m.clock.Forward(2 * life)
	err := agent.Ended(func(f *aetherv1.DownstreamMessage) {
		if f.GetConfig() == nil {
			t.Errorf("got %v", f)
		}
	})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("ended with %v", err)
	}
}

// A session goes on with a new token of the same identity. One that is bad, or of
// another identity, is refused, and the session goes on with the old one.
func TestRow10Reauthenticate(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	agent := m.agent(t, "1", m.token("1", life))
	user := gatewaytest.MustDial(t, m.Addr, m.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))

	good := m.token("1", 2*life)
	for _, c := range []struct{ what, token, code string }{
		{"no token", "", "ERR_UNAUTHENTICATED"},
		{"no JWT", "x.y.z", "ERR_UNAUTHENTICATED"},
		{"a broken signature", good[:len(good)-8] + "AAAAAAAA", "ERR_UNAUTHENTICATED"},
		{"an expired one", m.token("1", -time.Minute), "ERR_UNAUTHENTICATED"},
		{"one within the leeway of a connect", m.token("1", -time.Second), "ERR_UNAUTHENTICATED"},
		{"another specifier", m.token("2", life), "ERR_PERMISSION_DENIED"},
		{"another kind", m.UserToken("u", "w"), "ERR_PERMISSION_DENIED"},
		{"another workspace", m.AgentToken("v", "echo"), "ERR_PERMISSION_DENIED"},
	} {
		if done, refusal := agent.Reauthenticate(c.token); done != nil || refusal.GetCode() != c.code {
			t.Errorf("%s: %v, %v, want %s", c.what, done, refusal, c.code)
		}
	}
	user.Send(send("ag::w::echo::1", "still", "still"))
	wants(t, agent, "still")

	done, refusal := agent.Reauthenticate(good)
	if refusal != nil || done.GetExpiresAtMs() <= agent.Ack.GetCredentialExpiresAtMs() {
		t.Fatalf("got %v, %v", done, refusal)
	}
	m.clock.Forward(life + time.Minute) // the old one is over
	agent.Heartbeat()
	user.Send(send("ag::w::echo::1", "on", "on"))
	wants(t, agent, "on")
	m.clock.Forward(life / 2)
	if at := expiring(agent); at != done.GetExpiresAtMs() {
		t.Errorf("warned of %d, want %d", at, done.GetExpiresAtMs())
	}
}

// What a new token covers, no more and no less, counts from the answer on.
func TestReauthenticateChangesWhatIsCovered(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	token := func(workspaces ...string) string {
		return g.Token(auth.Claims{Kind: auth.KindService, Workspaces: workspaces, Impl: "mail", Spec: "1"})
	}
	service := gatewaytest.MustDial(t, g.Addr, token("a"), &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Service{Service: &aetherv1.ServiceIdentity{Implementation: "mail", Specifier: "1"}},
		Delivery: &aetherv1.DeliveryOptions{},
	})
	reaches := func(workspace string) bool {
		service.Send(send("ag::"+workspace+"::echo::1", "r", "x"))
		f := service.Until(func(f *aetherv1.DownstreamMessage) bool { return f.GetReceipt() != nil || f.GetError() != nil })
		return f.GetReceipt() != nil
	}
	for _, covered := range [][]string{{"a"}, {"a", "b"}, {"b"}} {
		if _, refusal := service.Reauthenticate(token(covered...)); refusal != nil {
			t.Fatal(refusal)
		}
		for _, ws := range []string{"a", "b"} {
			want := ws == covered[0] || ws == covered[len(covered)-1]
			if got := reaches(ws); got != want {
				t.Errorf("with a token for %v, %s is reached: %v", covered, ws, got)
			}
		}
	}
}

// A user who has not said in which workspace to begin is in one all the same: a
// new token has to cover that one. It was taken for another, and the session
// stayed in a workspace that no credential covered any more.
func TestReauthenticateOfAUserCoversItsWorkspace(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("ann", "a"), gatewaytest.UserInit("ann", "1"))
	if done, refusal := user.Reauthenticate(g.UserToken("ann", "b")); done != nil || refusal.GetCode() != "ERR_PERMISSION_DENIED" {
		t.Errorf("a token for another workspace: %v, %v", done, refusal)
	}
	for _, workspaces := range [][]string{{"a"}, {"b", "a"}} {
		if _, refusal := user.Reauthenticate(g.UserToken("ann", workspaces...)); refusal != nil {
			t.Errorf("a token for %v: %v", workspaces, refusal)
		}
	}
}

// Where an operator has put a user in, a token need not cover it, also a new one;
// the session ends when that is taken back.
func TestReauthenticateWhereAnOperatorHasPutTheUser(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	rule := func(ruling string) {
		t.Helper()
		if _, err := op.RuleMember(within(t, patience), &adminv1.RuleMemberRequest{Workspace: "b", User: "u", Ruling: ruling}); err != nil {
			t.Fatal(err)
		}
	}
	gatewaytest.MustDial(t, g.Addr, g.AgentToken("b", "echo"), gatewaytest.AgentInit("b", "echo", "1")) // creates it
	rule("in")
	user := window(t, g, "1", "a", "a")
	for start := time.Now(); ; <-time.After(20 * time.Millisecond) {
		code := switched(t, user, "b", nil)
		if code == "" {
			break
		}
		if time.Since(start) > patience {
			t.Fatal("not switched: ", code)
		}
	}
	if _, refusal := user.Reauthenticate(g.UserToken("u", "a")); refusal != nil {
		t.Errorf("a token like the first one: %v", refusal)
	}
	rule("none")
	ended(t, user, "MEMBERSHIP_REVOKED")
}

// An engine's leases are on the workspaces of its token: it cannot change them
// in place.
func TestReauthenticateOfAnEngine(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	token := func(workspaces ...string) string {
		return g.Token(auth.Claims{Kind: auth.KindWorkflowEngine, Workspaces: workspaces, Spec: "1"})
	}
	engine := gatewaytest.MustDial(t, g.Addr, token("a", "b"), &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_WorkflowEngine{WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: "1"}},
		Delivery: &aetherv1.DeliveryOptions{},
	})
	for _, other := range [][]string{{"a"}, {"a", "b", "c"}, {"*"}} {
		if done, refusal := engine.Reauthenticate(token(other...)); done != nil || refusal.GetCode() != "ERR_PERMISSION_DENIED" {
			t.Errorf("%v: %v, %v", other, done, refusal)
		}
	}
	if _, refusal := engine.Reauthenticate(token("b", "a")); refusal != nil {
		t.Error(refusal)
	}
}

// slowMembers hang once they are told to, until the test lets them go on.
type slowMembers struct {
	store.Members
	hang    chan struct{} // closed: from now on
	release chan struct{}
}

func (s *slowMembers) LearnMembership(ctx context.Context, user string, workspaces []string, until time.Time) error {
	select {
	case <-s.hang:
		select {
		case <-s.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	default:
	}
	return s.Members.LearnMembership(ctx, user, workspaces, until)
}

// A credential that takes its time does not hold up what the client sends, and
// there are never more than a few under way.
func TestReauthenticateDoesNotStallReceive(t *testing.T) {
	t.Parallel()
	slow := &slowMembers{hang: make(chan struct{}), release: make(chan struct{})}
	g := gatewaytest.Start(t, gatewaytest.Shared(t), func(o *gateway.Options) {
		slow.Members, o.Members = o.Members, slow
	})
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	close(slow.hang)
	const asked = 20
	for range asked {
		user.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Reauthenticate{
			Reauthenticate: &aetherv1.Reauthenticate{Credentials: map[string]string{"authorization": g.UserToken("u", "w")}},
		}})
	}
	for i := range 10 {
		user.Send(send("gu::w", fmt.Sprint(i), "x"))
	}
	refused, receipts := 0, 0
	count := func(f *aetherv1.DownstreamMessage) {
		switch {
		case f.GetReceipt() != nil:
			receipts++
		case f.GetError().GetCode() == "ERR_RATE_LIMITED" && f.GetError().GetRetryAfterMs() > 0:
			refused++
		case f.GetError() != nil || f.GetReauthenticated() != nil:
			t.Errorf("got %v", f)
		}
	}
	user.Until(func(f *aetherv1.DownstreamMessage) bool { count(f); return receipts == 10 })
	close(slow.release)
	done := 0
	user.Until(func(f *aetherv1.DownstreamMessage) bool {
		if f.GetReauthenticated() != nil {
			done++
			return done+refused == asked
		}
		count(f)
		return false
	})
	if done == 0 || done > 6 {
		t.Errorf("%d of %d were under way", done, asked)
	}
}
