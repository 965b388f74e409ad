package gateway_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// Several pairs at full speed: each pair gets everything, in order.
func TestPairs(t *testing.T) {
	t.Parallel()
	// It is about order: a machine that is too busy to confirm in time must not
	// turn it into a test of time-outs.
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.PublishTimeout = time.Minute })
	const pairs, each, window = 8, 8000, 1000
	token := g.AgentToken("w", "echo")
	var wg sync.WaitGroup
	for i := range pairs {
		from := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", fmt.Sprintf("from%d", i)))
		init := gatewaytest.AgentInit("w", "echo", fmt.Sprintf("to%d", i))
		init.Delivery.MaxUnacked = 1000
		to := gatewaytest.MustDial(t, g.Addr, token, init)
		credit := make(chan struct{}, window)
		wg.Go(func() {
			for n := range each {
				credit <- struct{}{}
				from.Send(&aetherv1.SendMessage{TargetTopic: fmt.Sprintf("ag::w::echo::to%d", i), Payload: []byte(fmt.Sprint(n)), RequestId: "r"})
			}
		})
		wg.Go(func() {
			for range each {
				m := from.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
				if m.GetError() != nil {
					t.Errorf("pair %d: %v", i, m.GetError())
				}
				<-credit
			}
		})
		wg.Go(func() {
			for n := range each {
				m := to.Message()
				if string(m.GetPayload()) != fmt.Sprint(n) {
					t.Errorf("pair %d: message %d is %q", i, n, m.GetPayload())
					return
				}
				if m.GetDeliveryId()%64 == 0 {
					to.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
				}
			}
		})
	}
	wg.Wait()
}
