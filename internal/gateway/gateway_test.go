package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// The broker's library waits for ever when its connection ends within a login (see
// package rabbitmq), and sleeps for seconds, whoever closes it, when a broker is
// away that a producer was to be made at.
func TestMain(m *testing.M) {
	const library = "github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream."
	os.Exit(testservices.Main(m, goleak.IgnoreAnyFunction(library+"(*Client).getSaslMechanisms"),
		goleak.IgnoreAnyFunction(library+"(*Client).sendSaslAuthenticate"),
		goleak.IgnoreAnyFunction(library+"(*Environment).maybeReconnectLocator")))
}

func send(to, text, request string) *aetherv1.SendMessage {
	return &aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), MessageType: aetherv1.MessageType_MESSAGE_TYPE_CHAT, RequestId: request}
}

// TestTalk is the main job: a user writes to an agent that is there, to one
// that is away, and where it must not.
func TestTalk(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))

	user.Send(send("ag::w::echo::1", "hello", "r1"))
	m := agent.Message()
	if string(m.GetPayload()) != "hello" || m.GetSourceTopic() != "us::u::1" || m.GetWorkspace() != "w" || m.GetDeliveryId() != 1 {
		t.Fatalf("got %v", m)
	}
	if r := user.Receipt(); r.GetRequestId() != "r1" || r.GetStatus() != aetherv1.SendReceipt_STATUS_STORED {
		t.Fatalf("got %v", r)
	}
	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: 1})
	agent.Send(send("us::u::1", "and to you", ""))
	if m := user.Message(); string(m.GetPayload()) != "and to you" {
		t.Fatalf("got %v", m)
	}
	if err := agent.Leave(); !errors.Is(err, io.EOF) {
		t.Fatalf("the stream ended with %v", err)
	}

	const waiting = 300
	for i := range waiting {
		user.Send(send("ag::w::echo::1", fmt.Sprint(i), fmt.Sprintf("w%d", i)))
	}
	for range waiting {
		user.Receipt()
	}
	user.Send(send("ag::other::echo::1", "no", "r2"))
	if e := user.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" || e.GetRequestId() != "r2" {
		t.Fatalf("got %v", e)
	}
	agent = gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	for i := range waiting {
		m := agent.Message()
		if string(m.GetPayload()) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.GetPayload())
		}
		agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	}
}
