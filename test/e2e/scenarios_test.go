package e2e

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// scenarios run on one gateway of each mode, side by side, each in workspaces
// of its own.
var scenarios = []struct {
	name string
	run  func(*testing.T, *gateway)
}{
	{"never connected", testNeverConnected},
	{"idle reconnects", testIdleReconnects},
	{"slow reader of its own mail", testSlowReader},
	{"two thousand waiting", testTwoThousandWaiting},
	{"two thousand waiting auto", testTwoThousandWaitingAuto},
	{"backlog and live traffic", testBacklogAndLive},
	{"many senders", testManySenders},
	{"AUTO reader killed", testAutoReaderKilled},
}

func TestDev(t *testing.T) {
	t.Parallel()
	play(t, startDev(t))
}

func TestServe(t *testing.T) {
	t.Parallel()
	play(t, startServe(t, testservices.RabbitMQ(t).URL(), testservices.Postgres(t).URL()))
}

func play(t *testing.T, g *gateway) {
	t.Cleanup(g.stop)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, g)
		})
	}
}
