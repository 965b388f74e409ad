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
	// The longest first: a minute of waiting, beside all others.
	{"AUTO reader killed", testAutoReaderKilled},
	{"AUTO reader gone", testAutoEnds},
	{"never connected", testNeverConnected},
	{"idle reconnects", testIdleReconnects},
	{"slow reader of its own mail", testSlowReader},
	{"two thousand waiting", testTwoThousandWaiting},
	{"two thousand waiting auto", testTwoThousandWaitingAuto},
	{"backlog and live traffic", testBacklogAndLive},
	{"many senders", testManySenders},
	{"source", testSource},
	{"source claims", testSourceClaims},
	{"matrix", testMatrix},
	{"broadcasts", testBroadcasts},
	{"nobody listens", testNobodyListens},
	{"events", testEvents},
	{"metrics", testMetrics},
	{"workers", testWorkers},
	{"worker window", testWorkerWindow},
	{"window", testWindow},
	{"holes", testHoles},
	{"nack", testNack},
	{"nack and leave", testNackAndLeave},
	{"bad acks", testBadAcks},
	{"lagging", testLagging},
	{"fair", testFair},
	{"mute reader", testMuteReader},
	{"greeting", testGreeting},
	{"duplicate identity", testDuplicateIdentity},
	{"resume", testResume},
	{"bad beginnings", testBadBeginnings},
	{"credentials", testCredentials},
	{"expiry", testExpiry},
	{"bad sends", testBadSends},
	{"bad frames", testBadFrames},
	{"not UTF-8", testNotUTF8},
	{"repeats", testRepeats},
	{"expired messages", testExpiredMessages},
	{"legacy", testLegacy},
	{"legacy keys", testLegacyKeys},
	{"legacy tasks", testLegacyTasks},
	{"legacy switch", testLegacySwitch},
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
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, g)
		})
	}
}
