package gateway_test

import (
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// A task without a specifier whose connection had gone got another id when it
// resumed, and its mail stayed where nobody reads.
func TestTaskResumesItsId(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	token := p.g.Token(auth.Claims{Kind: auth.KindTask, Workspaces: []string{"w"}, Impl: "job"})
	init := func(resume string) *aetherv1.InitConnection {
		return &aetherv1.InitConnection{
			Identity:        &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "job"}},
			Delivery:        &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
			ResumeSessionId: resume,
		}
	}
	task := gatewaytest.MustDial(t, p.g.Addr, token, init(""))
	first, id := task.Ack.GetSessionId(), task.Ack.GetAssignedId()
	if err := task.Leave(); err == nil {
		t.Fatal("it does not leave")
	}
	p.user.Send(send("ta::w::job::"+id, "mail", "r"))
	p.user.Receipt()
	other := gatewaytest.MustDial(t, p.g.Addr, token, init("somebody-else"))
	if other.Ack.GetAssignedId() == id {
		t.Fatal("anybody gets it")
	}
	task = gatewaytest.MustDial(t, p.g.Addr, token, init(first))
	if got := task.Ack.GetAssignedId(); got != id {
		t.Fatalf("it is %s, was %s", got, id)
	}
	wants(t, task, "mail")
}
