package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/policy/policytest"
)

func takes(kind string, subjects ...string) *aetherv1.TopicFilter {
	return &aetherv1.TopicFilter{TopicPrefix: kind, Subjects: subjects}
}

// hearer connects an agent with filters.
func hearer(t *testing.T, g *gatewaytest.Gateway, spec string, filters ...*aetherv1.TopicFilter) (*gatewaytest.Peer, error) {
	t.Helper()
	init := gatewaytest.AgentInit("w", "echo", spec)
	init.Delivery.Filters = filters
	return gatewaytest.Dial(t, g.Addr, g.AgentToken("w", "echo"), init)
}

// refilter replaces the filters and returns the code of the refusal, "" for none.
func refilter(t *testing.T, p *gatewaytest.Peer, o *aetherv1.DeliveryOptions) string {
	t.Helper()
	p.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_UpdateFilters{UpdateFilters: o}})
	p.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_ConnectionStatusRequest{
		ConnectionStatusRequest: &aetherv1.ConnectionStatusRequest{RequestId: "updated"},
	}})
	refusal := ""
	p.Until(func(m *aetherv1.DownstreamMessage) bool {
		if m.GetError().GetDetails()["frame"] == "update_filters" {
			refusal = m.GetError().GetCode()
		}
		return m.GetConnectionStatusResponse().GetRequestId() == "updated"
	})
	return refusal
}

func says(t *testing.T, from *gatewaytest.Peer, to, subject, text string) {
	t.Helper()
	m := fitting(to, "w", text)
	m.Payload, m.Subject = []byte(text), subject
	if code := answers(from, m); code != "" {
		t.Fatalf("%s: %s", text, code)
	}
}

func gets(t *testing.T, p *gatewaytest.Peer, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if m := p.Message(); string(m.GetPayload()) != text {
			t.Fatalf("got %q, want %q", m.GetPayload(), text)
		}
	}
}

// Runtime rule 2: filters at connect and by update are all accepted or all
// refused; who has none, or does not know of them, gets everything; a session
// that goes on has what it asks for itself.
func TestFilters(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	_, err := hearer(t, g, "bad", takes("ga", "a"), takes("pg", "a.b*"))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "ERR_INVALID_FILTER: ") {
		t.Fatalf("got %v", err)
	}
	if _, err := hearer(t, g, "bad"); err != nil { // the refused one holds nothing
		t.Fatal(err)
	}
	from := bridge(t, g)
	init := gatewaytest.AgentInit("w", "echo", "old")
	init.Delivery = nil
	old := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), init)
	some, err := hearer(t, g, "some", takes("ga", "order.*.created", "bill.#"))
	if err != nil {
		t.Fatal(err)
	}
	says(t, from, "ga::w", "order.v1.created", "1")
	says(t, from, "ga::w", "order.v1.gone", "2")
	gets(t, some, "1")
	says(t, from, "ag::w::echo::some", "order.v1.gone", "to itself")
	own := some.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetMsg().GetDeliveryId() != 0 }).GetMsg()
	if string(own.GetPayload()) != "to itself" {
		t.Errorf("got %v", own)
	}
	some.Acknowledge(&aetherv1.DeliveryAck{UpTo: own.GetDeliveryId()})
	says(t, from, "ga::w", "bill", "3")
	gets(t, some, "3")
	gets(t, old, "1", "2", "3")

	client := aetherv1.AckMode_ACK_MODE_CLIENT
	for name, o := range map[string]*aetherv1.DeliveryOptions{
		"ERR_INVALID_FILTER":   {Filters: []*aetherv1.TopicFilter{takes("ga", "other"), takes("ga", "#.x")}},
		"ERR_INVALID_ARGUMENT": {AckMode: aetherv1.AckMode_ACK_MODE_AUTO},
	} {
		if code := refilter(t, some, o); code != name {
			t.Errorf("got %q, want %q", code, name)
		}
	}
	says(t, from, "ga::w", "other", "4")
	says(t, from, "ga::w", "bill", "5")
	gets(t, some, "5") // as before the refused updates
	if code := refilter(t, some, &aetherv1.DeliveryOptions{AckMode: client, Filters: []*aetherv1.TopicFilter{takes("ga", "other")}}); code != "" {
		t.Fatal(code)
	}
	says(t, from, "ga::w", "bill", "6")
	says(t, from, "ga::w", "other", "7")
	gets(t, some, "7")

	// What goes on elsewhere takes what it says there.
	next := gatewaytest.AgentInit("w", "echo", "some")
	next.ResumeSessionId = some.SessionID()
	some = gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), next)
	says(t, from, "ga::w", "bill", "8")
	gets(t, some, "8")
	gets(t, old, "4", "5", "6", "7", "8")

	// A message that carries no right subject is not stored.
	for _, subject := range []string{"a..b", ".", "a.", strings.Repeat("a.", 20) + "a", strings.Repeat("x", 257)} {
		m := fitting("ga::w", "w", "bad")
		m.Subject = subject
		if code := answers(from, m); code != "ERR_INVALID_TOPIC" {
			t.Errorf("%.20q: %q", subject, code)
		}
	}
}

// A user's filters go with them into another workspace.
func TestFiltersGoAlong(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	from := bridge(t, g)
	init := gatewaytest.UserInit("u", "1")
	init.Workspace = "a"
	init.Delivery.Filters = []*aetherv1.TopicFilter{takes("gu", "mine"), takes("uw", "mine")}
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "a", "b"), init)
	for _, ws := range []string{"a", "b"} {
		if code := switched(t, user, ws, nil); code != "" {
			t.Fatal(code)
		}
		for _, to := range []string{"gu::" + ws, "uw::u::" + ws} {
			says(t, from, to, "foreign", "no")
			says(t, from, to, "mine", to)
			gets(t, user, to)
		}
	}
}

// Who observes workers' addresses needs a rule, sees everything that the rule and
// its filter let it see, and takes nothing.
func TestObserversOfWorkers(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	if _, err := hearer(t, g, "eye", takes("tb")); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("without a rule: %v", err)
	}
	remove := addRule(t, g, policytest.Rule{Effect: "allow", Principal: "ag::w::echo::eye", Action: "observe", Address: "tb::w::i", Grammar: "strict"})
	if _, err := hearer(t, g, "other", takes("tb")); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("by the rule of another: %v", err)
	}
	eye, err := hearer(t, g, "eye", takes("tb", "job.#"))
	if err != nil {
		t.Fatal(err)
	}
	worker := gatewaytest.MustDial(t, g.Addr, g.Token(auth.Claims{Kind: auth.KindTask, Workspaces: []string{"w"}, Impl: "i", Spec: "*"}), &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "i"}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	})
	from := bridge(t, g)
	says(t, from, "tb::w::i", "job.v1", "1")
	says(t, from, "tb::w::i", "other", "2")
	says(t, from, "tb::w::j", "job.v1", "3") // no rule
	says(t, from, "tb::w::i", "job.v2", "4")
	gets(t, worker, "1", "2", "4")
	m := eye.Message()
	if string(m.GetPayload()) != "1" || m.GetDeliveryId() != 0 || m.GetTopic() != "tb::w::i" || m.GetSubject() != "job.v1" || m.Position == nil {
		t.Fatalf("got %v", m)
	}
	gets(t, eye, "4")
	remove(g)
	if err := g.Router.Rules().Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(t, from, "tb::w::i", "job.v1", "5")
	if code := refilter(t, eye, &aetherv1.DeliveryOptions{Filters: []*aetherv1.TopicFilter{takes("tb")}}); code != "ERR_PERMISSION_DENIED" {
		t.Errorf("an update without a rule: %q", code)
	}
	if code := refilter(t, eye, &aetherv1.DeliveryOptions{}); code != "" {
		t.Error(code)
	}
	says(t, from, "ga::w", "", "6")
	gets(t, eye, "6")
}

// Filters work wherever a message comes from, and an engine's place in the log
// goes on at another gateway, also past what its filter has left out.
func TestFiltersOnTwoGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	from := bridge(t, c.a)
	some, err := hearer(t, c.b, "some", takes("ga", "order.#"))
	if err != nil {
		t.Fatal(err)
	}
	says(t, from, "ga::w", "bill", "1")
	says(t, from, "ga::w", "order.v1", "2")
	gets(t, some, "2")

	token := c.a.Token(auth.Claims{Kind: auth.KindWorkflowEngine, Workspaces: []string{"w"}, Spec: "*"})
	engine := func(g *gatewaytest.Gateway, old *gatewaytest.Peer, filters ...*aetherv1.TopicFilter) *gatewaytest.Peer {
		return gatewaytest.MustDial(t, g.Addr, token, &aetherv1.InitConnection{
			Identity:        &aetherv1.InitConnection_WorkflowEngine{WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: "1"}},
			ResumeSessionId: old.SessionID(),
			Delivery:        &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT, Filters: filters},
		})
	}
	e := engine(c.b, nil, takes("event", "order.#"))
	says(t, from, "event::w", "order.v1", "3")
	says(t, from, "event::w", "bill", "4")
	says(t, from, "event::w", "order.v1", "5")
	says(t, from, "event::w", "bill", "6")
	gets(t, e, "3")
	m := e.Message()
	if string(m.GetPayload()) != "5" {
		t.Fatalf("got %v", m)
	}
	e.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	says(t, from, "event::w", "order.v1", "7") // has come by the tail: so has 6
	gets(t, e, "7")
	e = engine(c.a, e)
	gets(t, e, "7")
	says(t, from, "event::w", "bill", "8")
	gets(t, e, "8")
}

// An operator who observes an address may do so by subject.
func TestTailBySubject(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	tail := func(subjects ...string) (grpc.ServerStreamingClient[adminv1.TailResponse], error) {
		st, err := op.Tail(within(t, patience), &adminv1.TailRequest{Address: "ga::w", Subjects: subjects})
		if err == nil {
			_, err = st.Recv()
		}
		return st, err
	}
	for _, bad := range [][]string{{"a", "b*"}, numbered(33)} {
		if _, err := tail(bad...); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	st, err := tail("order.#", "bill.*")
	if err != nil {
		t.Fatal(err)
	}
	from := bridge(t, g)
	for subject, text := range map[string]string{"": "no", "other": "no", "bill": "no"} {
		says(t, from, "ga::w", subject, text)
	}
	says(t, from, "ga::w", "bill.v1", "1")
	says(t, from, "ga::w", "order", "2")
	for _, want := range []string{"1", "2"} {
		r, err := st.Recv()
		if err != nil || string(r.GetMessage().GetPayload()) != want || r.GetDropped() != 0 {
			t.Fatalf("%v, %v", r, err)
		}
	}
}

func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("s", i)
	}
	return list
}
