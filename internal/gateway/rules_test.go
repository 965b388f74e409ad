package gateway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/policy/policytest"
	"github.com/aether-gateway/gateway/internal/store"
)

// until asks until the answer is yes, for as long as a test waits.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !yes(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func storeRule(r policytest.Rule) store.Rule {
	return store.Rule{Effect: r.Effect, Principal: r.Principal, Action: r.Action, Address: r.Address, Grammar: r.Grammar}
}

// addRule adds a rule at a gateway and returns how to remove it.
func addRule(t *testing.T, g *gatewaytest.Gateway, r policytest.Rule) (remove func(*gatewaytest.Gateway)) {
	t.Helper()
	added, err := g.Router.Rules().Add(context.Background(), storeRule(r))
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return func(g *gatewaytest.Gateway) {
		if _, _, err := g.Router.Rules().Remove(context.Background(), added.Rule.ID); err != nil {
			t.Error(err)
		}
	}
}

// fitting is a message that an address takes, if the sender may send it.
func fitting(to, app, request string) *aetherv1.SendMessage {
	m := send(to, "x", request)
	switch {
	case len(to) > 5 && to[:5] == "event":
		m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
	case len(to) > 6 && to[:6] == "metric":
		m.MessageType, m.AppWorkspace = aetherv1.MessageType_MESSAGE_TYPE_METRIC, app
		m.Payload, _ = proto.Marshal(&aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "n", Qty: 1}}})
	}
	return m
}

// asker is a sender that is connected.
type asker struct {
	policytest.Sender
	peer *gatewaytest.Peer
}

// outcomes sends a message to each address and returns what became of it. What
// could not be stored for the time being, on a busy machine, is sent again.
func (a asker) outcomes(t *testing.T, to []string) []string {
	t.Helper()
	got := make([]string, len(to))
	var open []int
	for i := range to {
		open = append(open, i)
	}
	for tries := 0; len(open) > 0; {
		// As many as a session may have open.
		part := open[:min(200, len(open))]
		open = slices.Clone(open[len(part):])
		for _, i := range part {
			a.peer.Send(fitting(to[i], a.App, strconv.Itoa(i)))
		}
		for range part {
			m := a.peer.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
			request, outcome := m.GetReceipt().GetRequestId(), policytest.Stored
			if e := m.GetError(); e != nil {
				request, outcome = e.GetRequestId(), e.GetCode()
			}
			i, err := strconv.Atoi(request)
			if err != nil || i >= len(to) || got[i] != "" {
				t.Fatalf("%s: an answer to %q: %v", a.Identity, request, m)
			}
			if outcome == "ERR_UNAVAILABLE" && tries < 10*len(to) {
				tries++
				open = append(open, i)
				continue
			}
			got[i] = outcome
		}
	}
	return got
}

// askers connects a sender of each kind to a gateway, in its workspace.
func askers(t *testing.T, g *gatewaytest.Gateway, own string) (list []asker) {
	t.Helper()
	both := []string{own}
	dial := func(s policytest.Sender, c auth.Claims, init *aetherv1.InitConnection) {
		t.Helper()
		p := gatewaytest.MustDial(t, g.Addr, g.Token(c), init)
		if s.Kind == "non_unique_task" {
			s.Identity = "ta::" + own + "::impl::" + p.Ack.GetAssignedId()
		}
		list = append(list, asker{s, p})
	}
	dial(policytest.Sender{Kind: "agent", Identity: "ag::" + own + "::impl::1", Workspace: own},
		auth.Claims{Kind: auth.KindAgent, Workspaces: both, Impl: "impl", Spec: "*"}, gatewaytest.AgentInit(own, "impl", "1"))
	task := func(spec string) *aetherv1.InitConnection {
		return &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: own, Implementation: "impl", UniqueSpecifier: spec}}}
	}
	tasks := auth.Claims{Kind: auth.KindTask, Workspaces: both, Impl: "impl", Spec: "*"}
	dial(policytest.Sender{Kind: "unique_task", Identity: "tu::" + own + "::impl::1", Workspace: own}, tasks, task("1"))
	dial(policytest.Sender{Kind: "non_unique_task", Workspace: own}, tasks, task(""))
	dial(policytest.Sender{Kind: "user", Identity: "us::in-" + own + "::1", Workspace: own},
		auth.Claims{Kind: auth.KindUser, User: "in-" + own, Workspaces: both}, gatewaytest.UserInit("in-"+own, "1"))
	dial(policytest.Sender{Kind: "user", Identity: "us::nowhere-" + own + "::1"},
		auth.Claims{Kind: auth.KindUser, User: "nowhere-" + own, Workspaces: []string{own, "x-" + own}}, gatewaytest.UserInit("nowhere-"+own, "1"))
	dial(policytest.Sender{Kind: "workflow_engine", Identity: "wfe::" + own, Covers: both, App: own},
		auth.Claims{Kind: auth.KindWorkflowEngine, Spec: own, Workspaces: both},
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_WorkflowEngine{WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: own}}})
	dial(policytest.Sender{Kind: "metrics_bridge", Identity: "metrics::" + own, Covers: both, App: own},
		auth.Claims{Kind: auth.KindMetricsBridge, Spec: own, Workspaces: both},
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_MetricsBridge{MetricsBridge: &aetherv1.MetricsBridgeIdentity{InstanceId: own}}})
	dial(policytest.Sender{Kind: "orchestrator", Identity: "orc::impl::" + own, Covers: both, App: own},
		auth.Claims{Kind: auth.KindOrchestrator, Impl: "impl", Spec: "*", Workspaces: both},
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Orchestrator{Orchestrator: &aetherv1.OrchestratorIdentity{Implementation: "impl", Specifier: own}}})
	dial(policytest.Sender{Kind: "service", Identity: "sv::impl::" + own, Covers: both, App: own},
		auth.Claims{Kind: auth.KindService, Impl: "impl", Spec: "*", Workspaces: both},
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Service{Service: &aetherv1.ServiceIdentity{Implementation: "impl", Specifier: own}}})
	dial(policytest.Sender{Kind: "bridge", Identity: "br::impl::" + own, Covers: both, App: own},
		auth.Claims{Kind: auth.KindBridge, Impl: "impl", Spec: "*", Workspaces: both},
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Bridge{Bridge: &aetherv1.BridgeIdentity{Implementation: "impl", Specifier: own}}})
	return list
}

// Row 18: senders of each kind on two gateways × prefixes × workspaces ×
// malformed addresses × rules, each asked by a send through Connect: all
// answers are those of an oracle, and what was refused was not stored.
func TestRow18MatrixOfTwoGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	gateways := []*gatewaytest.Gateway{c.a, c.b}
	owns := []string{"wa", "wb"}
	world := policytest.World{
		Members: map[string][]string{"in-wa": {"wa"}, "in-wb": {"wb"}, "nowhere-wa": {"wa", "x-wa"}, "nowhere-wb": {"wb", "x-wb"}, "out": {"wa", "wb"}},
		Barred:  map[string][]string{"out": {"wa"}},
	}
	gatewaytest.MustDial(t, c.a.Addr, c.a.UserToken("out", "wa", "wb"), gatewaytest.UserInit("out", "1")).Cut()
	if err := c.a.Members.RuleMembership(context.Background(), "out", "wa", store.RuledOut); err != nil {
		t.Fatal(err)
	}
	var all []asker
	for i, g := range gateways {
		all = append(all, askers(t, g, owns[i])...)
	}
	for _, g := range gateways {
		until(t, "the memberships", func() bool {
			m := g.Router.Members()
			return m.InWorkspace("in-wa", "wa") && m.InWorkspace("in-wb", "wb") && m.Barred("out", "wa") && m.InWorkspace("out", "wb") &&
				m.InWorkspace("nowhere-wa", "x-wa") && m.InWorkspace("nowhere-wb", "x-wb")
		})
	}
	good := policytest.Addresses([]string{"wa", "wb", "third"}, []string{"in-wa", "in-wb", "out", "unknown"})
	malformed := policytest.Malformed("wa")
	var names []string
	for _, a := range all {
		names = append(names, a.Identity)
	}

	r := rand.New(rand.NewPCG(18, 4))
	stored := map[string]int{} // by address
	asked, yes := 0, 0
	for round := range 7 {
		rules := policytest.Rules(r, 9*round, names, good)
		var removes []func(*gatewaytest.Gateway)
		for i, rule := range rules {
			removes = append(removes, addRule(t, gateways[i%2], rule))
		}
		for _, g := range gateways {
			if err := g.Router.Rules().Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		to := good
		if round < 2 {
			to = slices.Concat(good, malformed)
		}
		answers := make([][]string, len(all))
		var wg sync.WaitGroup
		for i, a := range all {
			wg.Go(func() { answers[i] = a.outcomes(t, to) })
		}
		wg.Wait()
		for i, a := range all {
			for k, address := range to {
				want := world.Outcome(a.Sender, address, rules)
				if got := answers[i][k]; got != want {
					t.Errorf("round %d: %s to %q: %s, the oracle says %s", round, a.Identity, address, got, want)
				}
				asked++
				if want == policytest.Stored {
					stored[address]++
					yes++
				}
			}
		}
		if t.Failed() {
			t.Fatalf("with the rules %+v", rules)
		}
		for i, remove := range removes {
			remove(gateways[i%2])
		}
	}
	t.Logf("%d decisions, %d of them stored", asked, yes)

	// The readers of exclusive addresses get what was stored, and no more.
	for _, ws := range append(owns, "third") {
		to := policytest.Address("ag", ws, "")
		bridge := all[len(all)-1].peer
		bridge.Send(send(to, "last", "last"))
		bridge.Receipt()
		init := gatewaytest.AgentInit(ws, "reader", "r")
		init.Delivery.MaxUnacked = 10_000
		reader := gatewaytest.MustDial(t, c.b.Addr, c.b.AgentToken(ws, "reader"), init)
		n := 0
		for string(reader.Message().GetPayload()) != "last" {
			n++
		}
		if n != stored[to] {
			t.Errorf("%s has %d messages, %d sends were allowed", to, n, stored[to])
		}
	}
}

// Spec clause 4.3: a rule change reaches every gateway within 2 s, in the midst
// of a session.
func Test43RulesReachEveryGateway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	here, there := c.user(t, c.a), gatewaytest.MustDial(t, c.b.Addr, c.token, gatewaytest.AgentInit("w", "echo", "2"))
	n := 0
	outcome := func(p *gatewaytest.Peer, to string) string {
		n++
		p.Send(send(to, "x", fmt.Sprint(n)))
		m := p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
		return m.GetError().GetCode()
	}
	const denied = "ERR_PERMISSION_DENIED"
	becomes := func(p *gatewaytest.Peer, to, want string) {
		t.Helper()
		begun := time.Now()
		until(t, fmt.Sprintf("%q at %s", want, to), func() bool { return outcome(p, to) == want })
		t.Logf("%q at %s after %v", want, to, time.Since(begun))
	}
	if got := outcome(there, "br::slack::1"); got != denied {
		t.Fatalf("an agent to a bridge: %q", got)
	}
	remove := addRule(t, c.a, policytest.Rule{Effect: "allow", Principal: "ag::w::echo::2", Action: "send", Address: "br::slack::*", Grammar: "strict"})
	becomes(there, "br::slack::1", "")
	if got := outcome(here, "br::slack::1"); got != denied {
		t.Errorf("a user whom the rule does not name: %q", got)
	}
	// A denial wins, whichever came first.
	addRule(t, c.b, policytest.Rule{Effect: "deny", Principal: "*::*", Action: "send", Address: "br::slack::1", Grammar: "subtree"})
	if got := outcome(there, "br::slack::1"); got != denied {
		t.Errorf("with a rule that denies: %q", got)
	}
	if got := outcome(there, "br::slack::2"); got != "" {
		t.Errorf("another bridge: %q", got)
	}
	remove(c.b)
	if got := outcome(there, "br::slack::2"); got != denied {
		t.Errorf("without the rule: %q", got)
	}
	deny := addRule(t, c.b, policytest.Rule{Effect: "deny", Principal: "us::u::*", Action: "send", Address: "ga::w", Grammar: "subtree"})
	becomes(here, "ga::w", denied)
	deny(c.a)
	if got := outcome(here, "ga::w"); got != "" {
		t.Errorf("after the denial was removed: %q", got)
	}
}

// Row 18: who calls itself by a wildcard is not let in, and a rule for an
// address is none for another that begins like it.
func TestRow18WildcardsAtConnect(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	token := g.AgentToken("w", "echo")
	for _, name := range []string{"*", "#", ">", "a*", "**"} {
		if _, err := gatewaytest.Dial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", name)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("an agent called %q: %v", name, err)
		}
	}
	addRule(t, g, policytest.Rule{Effect: "allow", Principal: "ag::w::echo", Action: "send", Address: "br::slack", Grammar: "strict"})
	addRule(t, g, policytest.Rule{Effect: "allow", Principal: "ag::w::echo::1", Action: "send", Address: "br::slack::1", Grammar: "strict"})
	one, eleven := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "1")), gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "11"))
	for _, p := range []*gatewaytest.Peer{one, eleven} {
		for _, to := range []string{"br::slack::11", "br::slack::2", "br::slack2::1"} {
			p.Send(send(to, "x", to))
			if e := p.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" || e.GetRequestId() != to {
				t.Errorf("to %s: %v", to, e)
			}
		}
	}
	one.Send(send("br::slack::1", "x", "r"))
	if r := one.Receipt(); r.GetRequestId() != "r" {
		t.Errorf("%v", r)
	}
	eleven.Send(send("br::slack::1", "x", "r"))
	if e := eleven.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" {
		t.Errorf("%v", e)
	}
}

// A rule about status:read decides who learns where a message is.
func Test43StatusReadOfMessages(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	token := g.AgentToken("w", "echo")
	sender := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "1"))
	other := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "2"))
	sender.Send(withID(send("ag::w::echo::3", "x", "r"), "m1"))
	sender.Receipt()
	where(t, sender, "m1", aetherv1.MessageStatus_STATE_STORED)
	where(t, other, "m1", aetherv1.MessageStatus_STATE_UNKNOWN)
	addRule(t, g, policytest.Rule{Effect: "allow", Principal: "ag::w::echo::2", Action: "status:read", Address: "ag::w::echo::*", Grammar: "strict"})
	where(t, other, "m1", aetherv1.MessageStatus_STATE_STORED)
	addRule(t, g, policytest.Rule{Effect: "deny", Principal: "ag::w::*", Action: "status:read", Address: "ag::w::echo::3", Grammar: "subtree"})
	where(t, other, "m1", aetherv1.MessageStatus_STATE_UNKNOWN)
	where(t, sender, "m1", aetherv1.MessageStatus_STATE_UNKNOWN)
}

// A rule about status:read decides who learns whether somebody is connected.
func Test43StatusRead(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	asker := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	gatewaytest.MustDial(t, g.Addr, g.AgentToken("v", "echo"), gatewaytest.AgentInit("v", "echo", "1"))
	ask := func(id string) *aetherv1.ConnectionStatusResponse {
		asker.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_ConnectionStatusRequest{ConnectionStatusRequest: &aetherv1.ConnectionStatusRequest{
			RequestId: "r", Principal: &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: id},
		}}})
		return asker.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetConnectionStatusResponse() != nil }).GetConnectionStatusResponse()
	}
	if r := ask("ag::v::echo::1"); r.GetOk() {
		t.Errorf("another workspace: %v", r)
	}
	addRule(t, g, policytest.Rule{Effect: "allow", Principal: "ag::w::*", Action: "status:read", Address: "ag::v::*", Grammar: "subtree"})
	if r := ask("ag::v::echo::1"); !r.GetOk() || !r.GetConnected() {
		t.Errorf("with a rule: %v", r)
	}
	asker.Send(send("ag::v::echo::1", "x", "r"))
	if e := asker.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" {
		t.Errorf("a rule about one action holds for another: %v", e)
	}
	addRule(t, g, policytest.Rule{Effect: "deny", Principal: "ag::w::echo::1", Action: "status:read", Address: "*::*", Grammar: "subtree"})
	for _, id := range []string{"ag::v::echo::1", "ag::w::echo::2"} {
		if r := ask(id); r.GetOk() {
			t.Errorf("denied: %s: %v", id, r)
		}
	}
}
