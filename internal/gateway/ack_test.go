package gateway_test

import (
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A frame that acknowledges all but one, which it nacks, lost that one: the
// cumulative part was done first and the nack came too late.
func TestAckAllButOne(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.send(t, "1", "2", "3")
	agent := p.agent(t)
	wants(t, agent, "1", "2", "3")
	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: 3, Nack: []*aetherv1.Nack{{DeliveryId: 2, Requeue: true}}})
	if m := agent.Message(); string(m.GetPayload()) != "2" || !m.GetRedelivered() {
		t.Fatalf("got %v", m)
	}
}
