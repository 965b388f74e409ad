package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// grantor asks about grants for a peer.
type grantor struct {
	*gatewaytest.Peer
	t *testing.T
	n int
}

func (g *grantor) ask(op *aetherv1.AuthorityGrantOperation) *aetherv1.AuthorityGrantResponse {
	g.t.Helper()
	g.n++
	op.RequestId = fmt.Sprint("g", g.n)
	g.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_AuthorityGrantOp{AuthorityGrantOp: op}})
	return g.Until(func(m *aetherv1.DownstreamMessage) bool {
		return m.GetAuthorityGrant().GetRequestId() == op.GetRequestId()
	}).GetAuthorityGrant()
}

// must asks and wants a grant.
func (g *grantor) must(op *aetherv1.AuthorityGrantOperation) *aetherv1.ACLAuthorityGrantInfo {
	g.t.Helper()
	answer := g.ask(op)
	if !answer.GetSuccess() || answer.GetGrant().GetGrantId() == "" {
		g.t.Fatalf("%v: %v", op, answer)
	}
	return answer.GetGrant()
}

// exchange makes a grant for an agent that may pass it on twice.
func exchange(agent string) *aetherv1.AuthorityGrantOperation {
	return &aetherv1.AuthorityGrantOperation{
		Op: aetherv1.AuthorityGrantOperation_OP_TYPE_EXCHANGE,
		ExchangeRequest: &aetherv1.AuthorityGrantExchangeRequest{
			WorkspaceScope: []string{"w"}, OperationScope: []string{"send"}, AudienceType: "agent", AudienceId: agent, MayDelegate: true, RemainingHops: 2,
			ResourceScope: []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "address", Patterns: []string{"ag::w::*", "event::w"}}},
		},
	}
}

func deriveFor(parent, agent string) *aetherv1.AuthorityGrantOperation {
	return &aetherv1.AuthorityGrantOperation{
		Op: aetherv1.AuthorityGrantOperation_OP_TYPE_DERIVE,
		DeriveRequest: &aetherv1.AuthorityGrantDeriveRequest{
			ParentGrantId: parent, Delegate: &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: agent},
		},
	}
}

func onGrant(op aetherv1.AuthorityGrantOperation_OpType, id string) *aetherv1.AuthorityGrantOperation {
	return &aetherv1.AuthorityGrantOperation{Op: op, GrantId: id}
}

const (
	getGrant    = aetherv1.AuthorityGrantOperation_OP_TYPE_GET
	revokeGrant = aetherv1.AuthorityGrantOperation_OP_TYPE_REVOKE
	myGrants    = aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_MY_GRANTS
	grantsOnMe  = aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_GRANTS_ON_ME
)

// under is a message under a grant.
func under(grant, to, id string) *aetherv1.SendMessage {
	m := send(to, id, id)
	m.Authorization = &aetherv1.AuthorizationContext{GrantId: grant, AuthorityMode: "on_behalf_of", Subject: &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: "u"}}
	return m
}

func agentOf(t *testing.T, g *gatewaytest.Gateway, spec string) *grantor {
	t.Helper()
	return &grantor{Peer: gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", spec)), t: t}
}

func userOf(t *testing.T, g *gatewaytest.Gateway, user string) *grantor {
	t.Helper()
	return &grantor{Peer: gatewaytest.MustDial(t, g.Addr, g.UserToken(user, "w"), gatewaytest.UserInit(user, "1")), t: t}
}

// A user lets an agent act for it: who gets the agent's message sees for whom it
// was sent, and never more than both may is done (gateway.md 17).
func Test17ActingOnBehalf(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user, agent, other := userOf(t, g, "u"), agentOf(t, g, "1"), agentOf(t, g, "2")
	grant := user.must(exchange(echo))
	if grant.GetSubject().GetPrincipalId() != "u" || grant.GetDelegate().GetPrincipalId() != echo || grant.GetRootGrantId() != grant.GetGrantId() {
		t.Errorf("made %v", grant)
	}
	if code := answers(agent.Peer, under(grant.GetGrantId(), "ag::w::echo::2", "one")); code != "" {
		t.Fatalf("under the grant: %s", code)
	}
	m := other.Message()
	want := &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: "u"}
	if !proto.Equal(m.GetOnBehalfSubject(), want) || m.GetSourceTopic() != echo {
		t.Errorf("delivered %v", m)
	}
	if code := answers(agent.Peer, send("ag::w::echo::2", "two", "two")); code != "" {
		t.Fatalf("without a grant: %s", code)
	}
	if m := other.Message(); m.GetOnBehalfSubject() != nil {
		t.Errorf("delivered %v", m)
	}
	forged := under(grant.GetGrantId(), "ag::w::echo::2", "x")
	forged.Authorization.Subject.PrincipalId = "somebody"
	direct := under(grant.GetGrantId(), "ag::w::echo::2", "x")
	direct.Authorization.AuthorityMode = "direct"
	none := under("", "ag::w::echo::2", "x")
	for name, c := range map[string]struct {
		as   *grantor
		m    *aetherv1.SendMessage
		code string
	}{
		"what the user may not":     {agent, event(under(grant.GetGrantId(), "event::w", "x")), "ERR_GRANT_INVALID"},
		"what the patterns do not":  {agent, under(grant.GetGrantId(), "ga::w", "x"), "ERR_GRANT_INVALID"},
		"what the agent may not":    {agent, under(grant.GetGrantId(), "sv::i::s", "x"), "ERR_PERMISSION_DENIED"},
		"another workspace":         {agent, under(grant.GetGrantId(), "ag::v::echo::2", "x"), "ERR_PERMISSION_DENIED"},
		"somebody else's grant":     {other, under(grant.GetGrantId(), echo, "x"), "ERR_GRANT_INVALID"},
		"no such grant":             {agent, under("gr_none", echo, "x"), "ERR_GRANT_INVALID"},
		"another subject":           {agent, forged, "ERR_GRANT_INVALID"},
		"for itself":                {agent, direct, "ERR_INVALID_ARGUMENT"},
		"for another without grant": {agent, none, "ERR_GRANT_INVALID"},
	} {
		if code := answers(c.as.Peer, c.m); code != c.code {
			t.Errorf("%s: %q, want %s", name, code, c.code)
		}
	}
	// To others it looks as if it did not exist.
	for _, op := range []*aetherv1.AuthorityGrantOperation{onGrant(getGrant, grant.GetGrantId()), onGrant(revokeGrant, grant.GetGrantId()), deriveFor(grant.GetGrantId(), "ag::w::echo::9")} {
		mine := other.ask(op)
		nothing := proto.CloneOf(op)
		nothing.GrantId = "gr_none"
		if nothing.GetDeriveRequest() != nil {
			nothing.DeriveRequest.ParentGrantId = "gr_none"
		}
		if none := other.ask(nothing); mine.GetSuccess() || mine.GetError() != none.GetError() || mine.GetMessage() != none.GetMessage() {
			t.Errorf("%v: %v, and of none %v", op.GetOp(), mine, none)
		}
	}
	// A grant does not outlast what its subject may: out of the workspace, out of
	// the grant.
	check(t, g.Router.RuleMember(context.Background(), "w", "u", store.RuledOut))
	until(t, "the removal of the user", func() bool {
		return answers(agent.Peer, under(grant.GetGrantId(), "ag::w::echo::2", "late")) == "ERR_GRANT_INVALID"
	})
}

func event(m *aetherv1.SendMessage) *aetherv1.SendMessage {
	m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
	return m
}

// Grants are shared through PostgreSQL: one of a moment ago counts at the other
// gateway, in the order of the sends, and what is revoked at one, with all that
// derives from it, counts nowhere within two seconds.
func Test17TwoGateways(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database := testservices.PostgresLike(t, migrateUp)
	start := func() *gatewaytest.Gateway {
		s, err := postgres.Open(ctx, database.URL(), postgres.Options{})
		check(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return gatewaytest.Start(t, gatewaytest.Shared(t), func(o *gateway.Options) {
			o.Grants, o.Feed, o.Members, o.Credentials = s, s, s, s
		})
	}
	a, b := start(), start()
	user := userOf(t, a, "u")
	first, second, reader := agentOf(t, b, "1"), agentOf(t, b, "2"), agentOf(t, b, "3")
	third := agentOf(t, a, "3")
	const to = "ag::w::echo::3"

	// The message under the grant waits until that has been looked up; what comes
	// behind it waits, too.
	grant := user.must(exchange(echo))
	first.Send(under(grant.GetGrantId(), to, "1"))
	first.Send(send(to, "2", "2"))
	first.Send(under(grant.GetGrantId(), to, "3"))
	for i := 1; i <= 3; i++ {
		m := reader.Message()
		if string(m.GetPayload()) != fmt.Sprint(i) || (m.GetOnBehalfSubject() == nil) != (i == 2) {
			t.Fatalf("message %d: %v", i, m)
		}
	}
	passOn := deriveFor(grant.GetGrantId(), "ag::w::echo::2")
	passOn.DeriveRequest.MayDelegate = true
	derived := first.must(passOn)
	last := second.must(deriveFor(derived.GetGrantId(), to))
	if last.GetSubject().GetPrincipalId() != "u" || last.GetRootGrantId() != grant.GetGrantId() || last.GetMayDelegate() {
		t.Errorf("derived %v", last)
	}
	if code := answers(third.Peer, under(last.GetGrantId(), "ag::w::echo::7", "at the other gateway")); code != "" {
		t.Errorf("derived at the other gateway: %s", code)
	}
	if answer := third.ask(deriveFor(last.GetGrantId(), "ag::w::echo::8")); answer.GetError() != "ERR_GRANT_INVALID" {
		t.Errorf("a hop too many: %v", answer)
	}
	if answer := second.ask(deriveFor(derived.GetGrantId(), echo)); answer.GetError() != "ERR_GRANT_INVALID" {
		t.Errorf("back to whom it came from: %v", answer)
	}

	if revoked := user.must(onGrant(revokeGrant, grant.GetGrantId())); !revoked.GetRevoked() {
		t.Errorf("revoked %v", revoked)
	}
	// The next look at the store has all of it: what derives is not found out about
	// later. How soon that is, is the feed's promise, and tested with it.
	for _, g := range []*gatewaytest.Gateway{a, b} {
		check(t, g.Grants.Look(ctx))
	}
	for peer, id := range map[*grantor]string{first: grant.GetGrantId(), second: derived.GetGrantId(), third: last.GetGrantId()} {
		peer.Send(under(id, "ag::w::echo::7", "revoked"))
		var told *aetherv1.AuthorityGrantRevocation
		code := ""
		peer.Until(func(m *aetherv1.DownstreamMessage) bool {
			if m.GetAuthorityGrantRevocation().GetGrantId() == id {
				told = m.GetAuthorityGrantRevocation()
			}
			if m.GetReceipt() != nil || m.GetError() != nil {
				code = cmp.Or(m.GetError().GetCode(), "stored")
			}
			return told != nil && code != ""
		})
		if code != "ERR_GRANT_INVALID" {
			t.Errorf("revoked, and looked up: %s", code)
		}
		if !told.GetCascade() || told.GetRootGrantId() != grant.GetGrantId() || told.GetRevokedAt() == 0 {
			t.Errorf("told %v", told)
		}
	}
	if answer := user.ask(onGrant(revokeGrant, grant.GetGrantId())); !answer.GetSuccess() {
		t.Errorf("revoked once more: %v", answer)
	}

	// What the user was connected with is revoked: so is what was made of it.
	other := user.must(exchange(echo))
	until(t, "the grant is known", func() bool { return answers(first.Peer, under(other.GetGrantId(), "ag::w::echo::7", "before")) == "" })
	check(t, a.Trust.Revoke(ctx, store.Revocation{What: store.RevokedUser, ID: "u"}))
	until(t, "the grant is void", func() bool {
		return answers(first.Peer, under(other.GetGrantId(), "ag::w::echo::7", fmt.Sprint(time.Now().UnixNano()))) == "ERR_GRANT_INVALID"
	})
}

// A grant for a session ends with it, and all that derives from it.
func Test17AudienceIsGone(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user, first, second := userOf(t, g, "u"), agentOf(t, g, "1"), agentOf(t, g, "2")
	op := exchange("")
	op.ExchangeRequest.AudienceType, op.ExchangeRequest.AudienceId = "session", first.SessionID()
	op.ExchangeRequest.ValidWhileAudienceActive = true
	grant := user.must(op)
	if grant.GetDelegate().GetPrincipalId() != echo {
		t.Errorf("made %v", grant)
	}
	derived := first.must(deriveFor(grant.GetGrantId(), "ag::w::echo::2"))
	if code := answers(second.Peer, under(derived.GetGrantId(), "ag::w::echo::7", "1")); code != "" {
		t.Errorf("while the session lasts: %s", code)
	}
	_ = first.Leave()
	second.Until(func(m *aetherv1.DownstreamMessage) bool {
		return m.GetAuthorityGrantRevocation().GetGrantId() == derived.GetGrantId()
	})
	if code := answers(second.Peer, under(derived.GetGrantId(), "ag::w::echo::7", "2")); code != "ERR_GRANT_INVALID" {
		t.Errorf("when it has ended: %q", code)
	}
	again := agentOf(t, g, "1")
	if code := answers(again.Peer, under(grant.GetGrantId(), "ag::w::echo::7", "3")); code != "ERR_GRANT_INVALID" {
		t.Errorf("another session: %q", code)
	}
	own := user.ask(&aetherv1.AuthorityGrantOperation{Op: grantsOnMe, ListRequest: &aetherv1.AuthorityGrantListRequest{IncludeRevoked: true, Limit: 1}})
	if own.GetTotal() != 2 || len(own.GetGrants()) != 1 || !own.GetGrants()[0].GetRevoked() {
		t.Errorf("listed %v", own)
	}
	if mine := again.ask(&aetherv1.AuthorityGrantOperation{Op: myGrants}); mine.GetTotal() != 0 {
		t.Errorf("listed %v", mine)
	}
}

// A rule can forbid to issue grants, and ends nothing that was issued.
func Test17RuleForbids(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := userOf(t, g, "u")
	_, err := g.Router.Rules().Add(context.Background(), store.Rule{Effect: "deny", Principal: "us::*::*", Action: "grant:issue", Address: "ag::w::echo::*", Grammar: "strict"})
	check(t, err)
	if answer := user.ask(exchange(echo)); answer.GetError() != "ERR_PERMISSION_DENIED" {
		t.Errorf("%v", answer)
	}
	if answer := user.ask(exchange("ag::w::other::1")); !answer.GetSuccess() {
		t.Errorf("another delegate: %v", answer)
	}
	stolen := exchange("ag::w::other::1")
	stolen.ExchangeRequest.SourceSessionId = userOf(t, g, "v").SessionID()
	if answer := user.ask(stolen); answer.GetError() != "ERR_PERMISSION_DENIED" {
		t.Errorf("somebody else's session: %v", answer)
	}
	batch := &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_BATCH_EXCHANGE, BatchExchangeRequest: &aetherv1.AuthorityGrantBatchExchangeRequest{
		Requests: []*aetherv1.AuthorityGrantExchangeRequest{exchange("ag::w::other::1").GetExchangeRequest(), exchange(echo).GetExchangeRequest(), exchange("ag::w::other::2").GetExchangeRequest()},
	}}
	if answer := user.ask(batch); answer.GetSuccess() || len(answer.GetGrants()) != 2 || answer.GetError() != "ERR_PERMISSION_DENIED" {
		t.Errorf("%v", answer)
	}
	batch.BatchExchangeRequest.StopOnFirstError = true
	if answer := user.ask(batch); answer.GetSuccess() || len(answer.GetGrants()) != 1 {
		t.Errorf("%v", answer)
	}
}

// An agent keeps what it keeps of a user in the user's name, as far as the grant
// goes, which does not make the agents' own keys the user's.
func Test17KeysOnBehalf(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user, agent := userOf(t, g, "u"), agentOf(t, g, "1")
	op := exchange(echo)
	op.ExchangeRequest.OperationScope, op.ExchangeRequest.ResourceScope = []string{"kv:read", "kv:write"}, nil
	grant := user.must(op).GetGrantId()
	under := func(op *aetherv1.KVOperation) *aetherv1.KVOperation {
		op.Authorization = &aetherv1.AuthorizationContext{AuthorityMode: "on_behalf_of", GrantId: grant}
		return op
	}
	write, read := under(kvPut("colour", "red")), under(&aetherv1.KVOperation{Key: "colour", RequestId: "r"})
	for _, op := range []*aetherv1.KVOperation{write, read} {
		op.Scope, op.UserId = aetherv1.KVOperation_SCOPE_USER_WORKSPACE, "u"
	}
	keys(t, agent.Peer, write)
	if answer, err := keys(t, agent.Peer, read); err != nil || string(answer.GetValue()) != "red" {
		t.Errorf("read %v, %v", answer, err)
	}
	if _, err := keys(t, agent.Peer, under(kvPut("own", "x"))); err.GetDetails()["code"] != "ERR_GRANT_INVALID" {
		t.Errorf("the agents' own keys: %v", err)
	}
	user.must(onGrant(aetherv1.AuthorityGrantOperation_OP_TYPE_REVOKE, grant))
	if _, err := keys(t, agent.Peer, read); err.GetDetails()["code"] != "ERR_GRANT_INVALID" {
		t.Errorf("when it is revoked: %v", err)
	}
}

// A task that an agent creates for a user carries a grant, by which whoever gets
// the task acts for the user, until it ends.
func Test17TaskActsForItsSubject(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user, agent, other := userOf(t, g, "u"), agentOf(t, g, "1"), agentOf(t, g, "2")
	op := exchange(echo)
	op.ExchangeRequest.OperationScope = nil
	grant := user.must(op)
	create := &aetherv1.CreateTaskRequest{
		TaskType: "job", Workspace: "w", AssignmentMode: aetherv1.TaskAssignmentMode_TASK_ASSIGNMENT_MODE_TARGETED, TargetAgentId: "ag::w::echo::2", RequestId: "t",
		Authorization: &aetherv1.AuthorizationContext{AuthorityMode: "on_behalf_of", GrantId: grant.GetGrantId()},
	}
	agent.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_CreateTask{CreateTask: create}})
	made := agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetCreateTask() != nil }).GetCreateTask()
	if !made.GetSuccess() || made.GetAuthorityGrantId() == "" || made.GetAuthorityGrantId() == grant.GetGrantId() {
		t.Fatalf("created %v", made)
	}
	if code := answers(other.Peer, under(made.GetAuthorityGrantId(), "ag::w::echo::7", "at work")); code != "" {
		t.Errorf("who has the task: %s", code)
	}
	if code := answers(agent.Peer, under(made.GetAuthorityGrantId(), "ag::w::echo::7", "not its own")); code != "ERR_GRANT_INVALID" {
		t.Errorf("who has made it: %q", code)
	}
	// The user sees the task that is done for it, and ends it.
	user.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskOp{TaskOp: &aetherv1.TaskOperation{
		Op: aetherv1.TaskOperation_OP_TYPE_CANCEL, TaskId: made.GetTaskId(), RequestId: "c",
	}}})
	if done := user.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskOp() != nil }).GetTaskOp(); !done.GetSuccess() || done.GetTask().GetSubjectId() != "u" {
		t.Errorf("cancelled %v", done)
	}
	other.Until(func(m *aetherv1.DownstreamMessage) bool {
		return m.GetAuthorityGrantRevocation().GetGrantId() == made.GetAuthorityGrantId()
	})
	if code := answers(other.Peer, under(made.GetAuthorityGrantId(), "ag::w::echo::7", "when it has ended")); code != "ERR_GRANT_INVALID" {
		t.Errorf("when it has ended: %q", code)
	}
	// It had a grant of its own, which is over: it is not done again without one.
	refusedOp(t, (&hand{Peer: agent.Peer}).op(opRetry, made.GetTaskId()), "ERR_GRANT_INVALID")
	create.RequestId, create.TargetAgentId, create.Authorization.GrantId = "u", "ag::w::echo::3", "gr_none"
	agent.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_CreateTask{CreateTask: create}})
	if refused := agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetCreateTask() != nil }).GetCreateTask(); refused.GetErrorCode() != "ERR_GRANT_INVALID" {
		t.Errorf("under no grant: %v", refused)
	}
}
