package gateway_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

func engine(t *testing.T, g *gatewaytest.Gateway, instance string, workspaces ...string) (*gatewaytest.Peer, error) {
	t.Helper()
	token := g.Token(auth.Claims{Kind: auth.KindWorkflowEngine, Workspaces: workspaces, Spec: "*"})
	return gatewaytest.Dial(t, g.Addr, token, &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_WorkflowEngine{WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: instance}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	})
}

// gateway.md 6: an engine gets the events of workspaces that appear while it is
// connected, whether its credential covers all or names them; each event address
// has one engine, whatever that is called, and the next one goes on where it was.
func Test6EventsOfLaterWorkspaces(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.AutoCreate = false })
	create := func(name string) {
		t.Helper()
		if _, _, err := g.Router.CreateWorkspace(context.Background(), name, "test"); err != nil {
			t.Fatal(err)
		}
	}
	event := func(ws, text string) {
		t.Helper()
		agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken(ws, "echo"), gatewaytest.AgentInit(ws, "echo", text))
		m := send("event::"+ws, text, text)
		m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
		if code := answers(agent, m); code != "" {
			t.Fatalf("%s: %s", ws, code)
		}
	}
	get := func(p *gatewaytest.Peer, ws, text string) {
		t.Helper()
		m := p.Message()
		if string(m.GetPayload()) != text || m.GetTopic() != "event::"+ws {
			t.Fatalf("got %v, want %q", m, text)
		}
		p.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	}
	create("w")
	all, err := engine(t, g, "all", "*")
	if err != nil {
		t.Fatal(err)
	}
	create("later")
	event("later", "1")
	get(all, "later", "1")
	if _, err := engine(t, g, "other", "later"); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a second engine of the workspace: %v", err)
	}
	if err := all.Leave(); !errors.Is(err, io.EOF) {
		t.Errorf("the engine left with %v", err)
	}
	event("later", "2")
	named, err := engine(t, g, "named", "later", "last")
	if err != nil {
		t.Fatal(err)
	}
	get(named, "later", "2")
	create("last")
	event("last", "3")
	get(named, "last", "3")
	if _, err := engine(t, g, "again", "*"); status.Code(err) != codes.AlreadyExists {
		t.Errorf("an engine of all beside one of some: %v", err)
	}
}
