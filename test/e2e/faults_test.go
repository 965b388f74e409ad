package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// faults are scenarios that need a gateway of their own, one after the other:
// they kill it, or what it stands on.
type faults struct {
	*gateway
	broker *testservices.Broker // nil under dev
	proxy  *faultproxy.Proxy    // before the broker; nil under dev
}

func TestDevFaults(t *testing.T) {
	t.Parallel()
	f := &faults{gateway: startDev(t)}
	f.play(t)
}

func TestServeFaults(t *testing.T) {
	alone(t)
	f := &faults{broker: testservices.NewBroker(t)}
	f.proxy = faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", f.broker.StreamPort()))
	f.gateway = startServe(t, fmt.Sprintf("rabbitmq-stream://guest:guest@%s/%%2f", f.proxy.Addr()), testservices.Postgres(t).URL())
	f.play(t)
}

// revive starts the killed broker and returns the moment since which it serves
// the gateway's streams: from then on the gateway's own recovery counts.
func (f *faults) revive() time.Time {
	f.broker.Start()
	placement := streams.Placement{Partitions: 4} // the default, which all gateways here have
	names := []string{streams.DeadLetterStream}
	for i := range placement.Count() {
		names = append(names, placement.StreamName(i))
	}
	f.broker.AwaitStreams(names...)
	return time.Now()
}

func (f *faults) play(t *testing.T) {
	for _, s := range []struct {
		name string
		run  func(*testing.T, *faults)
	}{
		{"every workspace's events", testAllEvents},
		{"row 7 hundred sends", testRow7HundredSends},
		{"gateway killed", testGatewayKilled},
		{"gateway terminated", testGatewayTerminated},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, f) })
	}
	if f.broker == nil {
		return
	}
	t.Run("held confirms", func(t *testing.T) { testHeldConfirms(t, f) })
	t.Run("broker connections cut", func(t *testing.T) { testBrokerCut(t, f) })
	t.Run("broker killed", func(t *testing.T) { testBrokerKilled(t, f) })
}
