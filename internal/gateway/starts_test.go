package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// register has an implementation be started.
func register(t *testing.T, g *gatewaytest.Gateway, implementation, profile string) {
	t.Helper()
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	_, err := op.RegisterImplementation(within(t, patience), &adminv1.RegisterImplementationRequest{Implementation: &adminv1.Implementation{
		Implementation: implementation, Profile: profile, LaunchParams: map[string]string{"model": "m"},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// orchestrator connects one that starts what it is given.
func orchestrator(t *testing.T, g *gatewaytest.Gateway, name string, profiles ...string) *gatewaytest.Peer {
	t.Helper()
	token := g.Token(auth.Claims{Kind: auth.KindOrchestrator, Impl: "local", Spec: "*", Workspaces: []string{auth.AllWorkspaces}})
	return gatewaytest.MustDial(t, g.Addr, token, &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Orchestrator{
		Orchestrator: &aetherv1.OrchestratorIdentity{Implementation: "local", Specifier: name, SupportedProfiles: profiles},
	}})
}

// assignment returns the next one.
func assignment(p *gatewaytest.Peer) *aetherv1.TaskAssignment {
	return p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetTaskAssignment() != nil }).GetTaskAssignment()
}

// worker connects who is to be started, with the token of an assignment.
func worker(t *testing.T, g *gatewaytest.Gateway, a *aetherv1.TaskAssignment) (*gatewaytest.Peer, error) {
	t.Helper()
	init := gatewaytest.AgentInit(a.GetWorkspace(), a.GetTargetImplementation(), a.GetSpecifier())
	init.Credentials = map[string]string{"token": a.GetLaunchParams()["auth_token"]}
	return gatewaytest.Dial(t, g.Addr, "", init)
}

// TestRow20OneStart: 200 senders on two gateways write to one agent that is not
// there: one start, at an orchestrator on one of them; the agent gets all of it.
// When the orchestrator is gone before the agent has come, another one gets the
// start at once, as a second attempt, and the first token is worth nothing.
func TestRow20OneStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	register(t, c.a, "echo", "process")
	first := orchestrator(t, c.b, "1", "process")
	const senders = 200
	var all sync.WaitGroup
	for i := range senders {
		g := []*gatewaytest.Gateway{c.a, c.b}[i%2]
		all.Go(func() {
			user, err := gatewaytest.Dial(t, g.Addr, g.UserToken(fmt.Sprint("u", i), "w"), gatewaytest.UserInit(fmt.Sprint("u", i), "1"))
			// So many at once keep a busy machine from telling Redis in time that the gateway lives.
			for deadline := time.Now().Add(patience); status.Code(err) == codes.Unavailable && time.Now().Before(deadline); {
				user, err = gatewaytest.Dial(t, g.Addr, g.UserToken(fmt.Sprint("u", i), "w"), gatewaytest.UserInit(fmt.Sprint("u", i), "1"))
			}
			if err != nil {
				t.Error(err)
				return
			}
			user.Send(send(echo, fmt.Sprint(i), "r"))
			user.Receipt()
		})
	}
	a := assignment(first)
	if a.GetAssignedTo() != echo || a.GetProfile() != "process" || a.GetLaunchParams()["model"] != "m" || a.GetWorkspace() != "w" || a.GetSpecifier() != "1" || a.GetTargetImplementation() != "echo" {
		t.Errorf("assigned %v", a)
	}
	all.Wait()
	second := orchestrator(t, c.a, "2", "*")
	first.Cut()
	b := assignment(second)
	if b.GetTaskId() != a.GetTaskId() || b.GetLaunchParams()["auth_token"] == a.GetLaunchParams()["auth_token"] {
		t.Errorf("assigned again: %s after %s", b.GetTaskId(), a.GetTaskId())
	}
	if _, err := worker(t, c.a, a); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the first token: %v", err)
	}
	other := proxyOf(b)
	other.Specifier = "2"
	if _, err := worker(t, c.a, other); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another identity: %v", err)
	}
	agent, err := worker(t, c.b, b)
	if err != nil {
		t.Fatal(err)
	}
	config := agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetConfig() != nil }).GetConfig()
	if tc := config.GetTaskContext(); tc["task_id"] != b.GetTaskId() || tc["lp.model"] != "m" || tc["specifier"] != "1" || tc["profile"] != "process" || tc["lp.auth_token"] != "" {
		t.Errorf("told %v", tc)
	}
	seen := map[string]bool{}
	for range senders {
		m := agent.Message()
		seen[m.GetSourceTopic()] = true
		agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	}
	if len(seen) != senders {
		t.Errorf("messages of %d senders", len(seen))
	}
	// What it creates belongs to the task that its token is for.
	works := &hand{Peer: agent}
	if child := works.get(works.create(&aetherv1.CreateTaskRequest{AssignmentMode: selfAssign}).GetTaskId()); child.GetParentTaskId() != b.GetTaskId() {
		t.Errorf("a child of the start: %v", child)
	}
	if n := c.a.Orchestration.Stats().Started.Load() + c.b.Orchestration.Stats().Started.Load(); n != 1 {
		t.Errorf("%d starts", n)
	}
}

func proxyOf(a *aetherv1.TaskAssignment) *aetherv1.TaskAssignment {
	return &aetherv1.TaskAssignment{
		TaskId: a.GetTaskId(), Workspace: a.GetWorkspace(), TargetImplementation: a.GetTargetImplementation(), Specifier: a.GetSpecifier(), LaunchParams: a.GetLaunchParams(),
	}
}

// A worker that ends its stream has done its work; mail that comes afterwards
// starts it anew.
func TestStartEndsAndBeginsAnew(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	register(t, g, "echo", "process")
	orc := orchestrator(t, g, "1", "process")
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	last := ""
	for i := range 3 {
		user.Send(send(echo, fmt.Sprint(i), "r"))
		user.Receipt()
		a := assignment(orc)
		if a.GetTaskId() == last {
			t.Fatalf("round %d: the same start again", i)
		}
		last = a.GetTaskId()
		claims := &hand{Peer: orc, n: 100 * i}
		for range 2 { // it says, and says again, that it is at it
			done(t, claims.op(opClaim, last), aetherv1.TaskStatus_TASK_STATUS_QUEUED)
		}
		agent, err := worker(t, g, a)
		if err != nil {
			t.Fatal(err)
		}
		m := agent.Message()
		if string(m.GetPayload()) != fmt.Sprint(i) {
			t.Errorf("got %q", m.GetPayload())
		}
		agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
		if err := agent.Leave(); !errors.Is(err, io.EOF) {
			t.Errorf("the worker's end: %v", err)
		}
		if _, err := worker(t, g, a); status.Code(err) == codes.OK {
			t.Error("the token is good after the end")
		}
	}
}

// What waits for nobody who can be started stays where it is; when its
// implementation is registered, it is started.
func TestStartWhenRegistered(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	orc := orchestrator(t, g, "1", "process")
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	user.Send(send(echo, "1", "r"))
	user.Receipt()
	register(t, g, "echo", "process")
	if a := assignment(orc); a.GetAssignedTo() != echo {
		t.Errorf("assigned %v", a)
	}
}
