package gateway_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
)

// TestOperatorsStory is a new operator's first hour, on two gateways: a
// workspace, a member, a key, a session that is seen, a send that is refused
// and explained, a key that is revoked at one gateway while its session is at
// the other, and a member who is put out and gets nothing more.
func TestOperatorsStory(t *testing.T) {
	t.Parallel()
	redis, shared := redistest.Aged(t), gatewaytest.Shared(t)
	closed := func(o *gateway.Options) { o.AutoCreate = false }
	var a, b *gatewaytest.Gateway
	var starting sync.WaitGroup
	starting.Go(func() { a = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, redis.URL(), nil), closed) })
	starting.Go(func() { b = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, redis.URL(), nil), closed) })
	starting.Wait()
	if a == nil || b == nil {
		t.FailNow()
	}
	op := gatewaytest.Operator(t, a.Addr, a.OperatorToken("ops"))
	ctx := within(t, 3*patience)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := op.CreateWorkspace(ctx, &adminv1.CreateWorkspaceRequest{Name: "team"})
	must(err)
	_, err = op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "team", User: "alice", Ruling: "in"})
	must(err)
	made, err := op.CreateKey(ctx, &adminv1.CreateKeyRequest{Key: &adminv1.Key{
		Name: "billing", Kind: "agent", Workspaces: []string{"team"}, Implementation: "billing", Specifier: "*",
	}})
	must(err)

	// The key is good at the other gateway; who is in the workspace is known there.
	agent := gatewaytest.MustDial(t, b.Addr, made.GetApiKey(), gatewaytest.AgentInit("team", "billing", "1"))
	alice := gatewaytest.MustDial(t, b.Addr, b.UserToken("alice", "team"), gatewaytest.UserInit("alice", "1"))
	seen, err := op.ListSessions(ctx, &adminv1.ListSessionsRequest{Workspace: "team"})
	must(err)
	if len(seen.GetSessions()) != 2 {
		t.Errorf("sessions: %v", seen)
	}

	alice.Send(send("sv::vault::1", "give", "1"))
	refused := alice.Error()
	why, err := op.ExplainSend(ctx, &adminv1.ExplainSendRequest{Identity: "us::alice::1", Address: "sv::vault::1"})
	must(err)
	if refused.GetCode() != "ERR_PERMISSION_DENIED" || why.GetAllowed() || why.GetReason() != refused.GetMessage() {
		t.Errorf("refused %v, explained %v", refused, why)
	}
	if why.GetWorkspace() != "team" || why.GetWorkspaceFrom() != "session" {
		t.Errorf("her session at the other gateway was not asked: %v", why)
	}

	if _, err := op.CreateKey(ctx, &adminv1.CreateKeyRequest{Key: &adminv1.Key{
		Name: "billing", Kind: "agent", Workspaces: []string{"team"}, Implementation: "other", Specifier: "*",
	}}); status.Code(err) != codes.AlreadyExists || !strings.Contains(status.Convert(err).Message(), made.GetKey().GetKeyId()) {
		t.Errorf("a second key of one name: %v", err)
	}

	began := time.Now()
	_, err = op.RevokeKey(ctx, &adminv1.RevokeKeyRequest{Key: "billing"})
	must(err)
	if err := agent.End(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the key's session ended with %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the key's session lived on for %s", took)
	}
	if _, err := gatewaytest.Dial(t, b.Addr, made.GetApiKey(), gatewaytest.AgentInit("team", "billing", "1")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the revoked key: %v", err)
	}

	// A canary: what is sent to everybody in the workspace after alice was put
	// out reaches bob, and not her.
	bob := gatewaytest.MustDial(t, a.Addr, a.UserToken("bob", "team"), gatewaytest.UserInit("bob", "1"))
	put, err := op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "team", User: "alice", Ruling: "out"})
	must(err)
	if !put.GetWasMember() {
		t.Error("she was no member")
	}
	if err := alice.End(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("alice's session ended with %v", err)
	}
	if _, err := gatewaytest.Dial(t, a.Addr, a.UserToken("alice", "team"), gatewaytest.UserInit("alice", "1")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("alice came back: %v", err)
	}
	if _, err := gatewaytest.Dial(t, b.Addr, b.UserToken("alice", "team"), gatewaytest.UserInit("alice", "2")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("alice came back at the other gateway: %v", err)
	}
	carol := gatewaytest.MustDial(t, b.Addr, b.UserToken("carol", "team"), gatewaytest.UserInit("carol", "1"))
	carol.Send(send("gu::team", "canary", "2"))
	if m := bob.Message(); string(m.GetPayload()) != "canary" {
		t.Errorf("bob got %v", m)
	}
	list, err := op.ListKeys(ctx, &adminv1.ListKeysRequest{})
	must(err)
	if keys := list.GetKeys(); len(keys) != 1 || keys[0].GetRevokedBy() != "ops" || strings.Contains(fmt.Sprint(list), made.GetApiKey()) {
		t.Errorf("keys: %v", list)
	}
}

// Tokens are revoked by operators too: one by its id, and an operator's own,
// whose stream ends.
func TestRevokeTokens(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	ctx := within(t, patience)
	token := g.Token(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "*", ID: "the-id"})
	agent := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "1"))
	other := gatewaytest.Operator(t, g.Addr, g.Token(auth.Claims{Kind: auth.KindOperator, Subject: "other", Workspaces: []string{"*"}}))
	st, err := other.Tail(ctx, &adminv1.TailRequest{Address: "ga::w"})
	if err == nil {
		_, err = st.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*adminv1.RevokeRequest{
		{},
		{What: "everything", Id: "x"},
		{What: "token"},
		{What: "token", Id: token},
		{What: "user", Id: strings.Repeat("x", 2000)},
		// Such a time wrapped, and the revocation was forgotten within the hour.
		{What: "token", Id: "the-id", Until: math.MaxInt64},
		{What: "token", Id: "the-id", Until: -1},
	} {
		if _, err := op.Revoke(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.40v: %v", r, err)
		}
	}
	if _, err := op.Revoke(ctx, &adminv1.RevokeRequest{What: "token", Id: "the-id"}); err != nil {
		t.Fatal(err)
	}
	if s := agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetSignal() != nil }).GetSignal(); s.GetCode() != "REVOKED" {
		t.Errorf("told %v", s)
	}
	if _, err := op.Revoke(ctx, &adminv1.RevokeRequest{What: "subject", Id: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the revoked operator's stream ended with %v", err)
	}
	if _, err := other.ServerInfo(ctx, &adminv1.ServerInfoRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the revoked operator: %v", err)
	}
	for _, k := range []*adminv1.Key{
		nil,
		{Name: "x"},
		{Name: "x", Kind: "agent"},
		{Name: "x", Kind: "god", Workspaces: []string{"*"}},
		{Name: "x", Kind: "user", User: "u", Workspaces: []string{"w"}},
		{Name: "x", Kind: "operator", Workspaces: []string{"*"}, ExpiresAt: 1},
		{Name: "x", Kind: "operator", Workspaces: []string{"*"}, ExpiresAt: -1},
		{Name: "x", Kind: "operator", Workspaces: []string{"*"}, ExpiresAt: math.MaxInt64},
	} {
		if _, err := op.CreateKey(ctx, &adminv1.CreateKeyRequest{Key: k}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", k, err)
		}
	}
	if _, err := op.RevokeKey(ctx, &adminv1.RevokeKeyRequest{Key: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("no such key: %v", err)
	}
}

// fickleKeys are keys that are all withdrawn at once.
type fickleKeys struct {
	auth.KeySource
	gone atomic.Bool
}

func (f *fickleKeys) Holds(k auth.Key) bool { return !f.gone.Load() && f.KeySource.Holds(k) }

// An operator's stream ends when the key that has signed the token is withdrawn,
// as sessions do.
func TestTailEndsWithTheKey(t *testing.T) {
	t.Parallel()
	keys := &fickleKeys{}
	g := gatewaytest.Start(t, verifying(t, func(o *auth.Options) { keys.KeySource, o.Keys = o.Keys, keys }))
	st, err := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops")).Tail(within(t, patience), &adminv1.TailRequest{Address: "ga::w"})
	if err == nil {
		_, err = st.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	keys.gone.Store(true)
	if _, err := st.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v", err)
	}
}
