package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// within is a context for what must not hang.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Nobody but an operator gets anything from the operators' service, by any of
// its methods.
func TestOperatorsOnly(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	expired := g.Token(auth.Claims{
		Kind: auth.KindOperator, Workspaces: []string{auth.AllWorkspaces}, ExpiresAt: time.Now().Add(-time.Hour),
	})
	for name, x := range map[string]struct {
		token string
		want  codes.Code
	}{
		"nothing": {"", codes.Unauthenticated},
		"garbage": {"x.y.z", codes.Unauthenticated},
		"agent":   {g.AgentToken("w", "echo"), codes.PermissionDenied},
		"bridge":  {g.Token(auth.Claims{Kind: auth.KindBridge, Workspaces: []string{"*"}, Impl: "i", Spec: "*"}), codes.PermissionDenied},
		"expired": {expired, codes.Unauthenticated},
		"good":    {g.OperatorToken("ops"), codes.OK},
	} {
		c := gatewaytest.Operator(t, g.Addr, x.token)
		ctx := within(t, patience)
		if _, err := c.ServerInfo(ctx, &adminv1.ServerInfoRequest{}); status.Code(err) != x.want {
			t.Errorf("%s: a call: %v", name, err)
		}
		st, err := c.Tail(ctx, &adminv1.TailRequest{Address: "ga::w"})
		if err == nil {
			_, err = st.Recv()
		}
		if status.Code(err) != x.want {
			t.Errorf("%s: a stream: %v", name, err)
		}
	}
}

// An operator sees the sessions of all gateways at any of them, page by page.
func TestListSessions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var want []string
	for i := range 7 {
		g := []*gatewaytest.Gateway{c.a, c.b}[i%2]
		gatewaytest.MustDial(t, g.Addr, c.token, gatewaytest.AgentInit("w", "echo", fmt.Sprint(i)))
		want = append(want, fmt.Sprintf("ag::w::echo::%d", i))
	}
	user := c.user(t, c.b)
	want = append(want, "us::u::1")
	for _, g := range []*gatewaytest.Gateway{c.a, c.b} {
		op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
		for _, size := range []int32{0, 1, 3} {
			var got []string
			for r := (&adminv1.ListSessionsRequest{PageSize: size}); ; {
				page, err := op.ListSessions(within(t, patience), r)
				if err != nil || len(page.GetUnanswered()) > 0 {
					t.Fatalf("%v, %v", page, err)
				}
				if size > 0 && len(page.GetSessions()) > int(size) {
					t.Errorf("a page of %d has %d", size, len(page.GetSessions()))
				}
				for _, s := range page.GetSessions() {
					got = append(got, s.GetIdentity())
					if s.GetSessionId() == "" || s.GetWorkspace() != "w" || s.GetGateway() == "" || s.GetConnectedAt() == 0 || s.GetPeer() == "" {
						t.Errorf("not described: %v", s)
					}
				}
				if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("in pages of %d: %q", size, got)
			}
		}
		page, err := op.ListSessions(within(t, patience), &adminv1.ListSessionsRequest{Kind: "user"})
		if err != nil || len(page.GetSessions()) != 1 || page.GetSessions()[0].GetSessionId() != user.SessionID() {
			t.Errorf("users: %v, %v", page, err)
		}
		page, err = op.ListSessions(within(t, patience), &adminv1.ListSessionsRequest{Workspace: "other"})
		if err != nil || len(page.GetSessions()) != 0 {
			t.Errorf("another workspace: %v, %v", page, err)
		}
	}
}

// An operator at one gateway ends a session of another one: its client is told,
// and its stream ends, within two seconds.
func TestKickElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	op := gatewaytest.Operator(t, c.b.Addr, c.b.OperatorToken("ops"))
	for _, by := range []func(*gatewaytest.Peer) string{
		func(*gatewaytest.Peer) string { return echo }, (*gatewaytest.Peer).SessionID,
	} {
		agent := c.agent(t, c.a, nil)
		began := time.Now()
		done, err := op.KickSession(within(t, patience), &adminv1.KickSessionRequest{Target: by(agent), Reason: "lunch"})
		if err != nil || len(done.GetSessions()) != 1 || done.GetSessions()[0].GetIdentity() != echo {
			t.Fatalf("%v, %v", done, err)
		}
		signal := agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetSignal() != nil }).GetSignal()
		if signal.GetType() != aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT || signal.GetCode() != "KICKED" || !strings.HasSuffix(signal.GetReason(), "lunch") {
			t.Errorf("told %v", signal)
		}
		if err := agent.End(); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "an operator has ended the session: lunch") {
			t.Errorf("ended by %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	}
	for _, target := range []string{"", "ag::w::echo::none", strings.Repeat("x", 5000)} {
		_, err := op.KickSession(within(t, patience), &adminv1.KickSessionRequest{Target: target})
		if code := status.Code(err); code != codes.NotFound && (target != "" || code != codes.InvalidArgument) {
			t.Errorf("%.20q: %v", target, err)
		}
	}
}

// An observer on another gateway sees what is stored, and its reader gets all of
// it just the same.
func TestTailTakesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	op := gatewaytest.Operator(t, c.b.Addr, c.b.OperatorToken("ops"))
	st, err := op.Tail(within(t, patience), &adminv1.TailRequest{Address: echo})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := st.Recv(); err != nil || first.GetMessage() != nil {
		t.Fatalf("%v, %v", first, err)
	}
	user := c.user(t, c.a)
	sendAll(user, 1, 20)
	var last uint64
	for i := 1; i <= 20; i++ {
		r, err := st.Recv()
		m := r.GetMessage()
		if err != nil || r.GetDropped() != 0 || string(m.GetPayload()) != fmt.Sprint(i) || m.GetSource() != "us::u::1" || m.GetTopic() != echo ||
			m.GetMessageId() == "" || m.GetWorkspace() != "w" || m.GetTimestampMs() == 0 || m.GetPosition() <= last {
			t.Fatalf("message %d: %v, %v", i, r, err)
		}
		last = m.GetPosition()
	}
	agent := c.agent(t, c.a, nil)
	reads(t, agent, 1, 20)
	if bad, err := op.Tail(within(t, patience), &adminv1.TailRequest{Address: "no address"}); err == nil {
		if _, err = bad.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("no address: %v", err)
		}
	}
}

// A gateway that shuts down does not wait for its observers.
func TestTailEndsWithTheGateway(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	st, err := op.Tail(within(t, patience), &adminv1.TailRequest{Address: "ga::w"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.Stop()
	}()
	if _, err := st.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("ended by %v", err)
	}
	<-stopped
}

// Who connected, who was refused and why, and what operators did can be read
// afterwards: every one of many refusals counts.
func TestAudited(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	const refused = 300
	for i := range refused {
		user.Send(send(fmt.Sprint("event::w", i), "secret-payload", fmt.Sprint(i)))
	}
	for range refused {
		user.Error()
	}
	if _, err := gatewaytest.Dial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.AgentInit("w", "i", "s")); err == nil {
		t.Error("a user became an agent")
	}
	if _, err := gatewaytest.Operator(t, g.Addr, "").ServerInfo(within(t, patience), &adminv1.ServerInfoRequest{}); err == nil {
		t.Error("without a credential")
	}
	if _, err := op.KickSession(within(t, patience), &adminv1.KickSessionRequest{Target: "us::u::1"}); err != nil {
		t.Error(err)
	}
	_ = user.End()
	if _, err := op.KickSession(within(t, patience), &adminv1.KickSessionRequest{Target: "us::u::1"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	type want struct{ kind, actor, action, outcome, reason string }
	counts := map[want]int64{}
	expected := map[want]int64{
		{"connect", "us::u::1", "connect", "ok", ""}:                        1,
		{"connect", "us::u::1", "disconnect", "ok", "Aborted"}:              1,
		{"refusal", "us::u::1", "send", "refused", "ERR_PERMISSION_DENIED"}: refused,
		{"refusal", "127.0.0.1", "connect", "refused", "PermissionDenied"}:  1,
		{"refusal", "127.0.0.1", "operate", "refused", "Unauthenticated"}:   1,
		{"operator", "ops", "sessions kick", "ok", ""}:                      1,
		{"operator", "ops", "sessions kick", "failed", "NotFound"}:          1,
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		clear(counts)
		for r := (&adminv1.ListAuditRequest{PageSize: 2}); ; {
			page, err := op.ListAudit(within(t, patience), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range page.GetRecords() {
				counts[want{x.GetKind(), x.GetActor(), x.GetAction(), x.GetOutcome(), x.GetReason()}] += x.GetCount()
				if strings.Contains(x.String(), "secret-payload") {
					t.Errorf("a payload is recorded: %v", x)
				}
			}
			if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
				break
			}
		}
		missing := ""
		for w, n := range expected {
			if counts[w] != n {
				missing += fmt.Sprintf("\n%+v: %d times, want %d", w, counts[w], n)
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\nall: %v", missing, counts)
		}
	}
	if _, err := op.ListAudit(within(t, patience), &adminv1.ListAuditRequest{Kind: "gossip"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown kind: %v", err)
	}
	if _, err := op.ListAudit(within(t, patience), &adminv1.ListAuditRequest{PageToken: "?"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a foreign token: %v", err)
	}
}
