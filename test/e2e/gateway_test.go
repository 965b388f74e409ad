package e2e

import (
	"net/http"
	"testing"
	"time"
)

// gateway is a deployment: a gateway and what it keeps its data in. Its
// process may be killed and started again.
type gateway struct {
	mode     string // "dev" or "serve"
	env      []string
	args     []string
	*process            // the running one
	past     []*process // those that were killed or stopped
}

// common are settings of every gateway here: no limits, for tests send as fast
// as they can, and heartbeats that a test can wait for.
var common = []string{
	"AETHER_RATE_MESSAGES=0", "AETHER_RATE_BYTES=0", "AETHER_ADMISSION_RATE=0",
	"AETHER_SESSION_HEARTBEAT_INTERVAL=1s", "AETHER_WORKSPACES_AUTO_CREATE=true",
	"AETHER_OPS_ADDR=off",
}

// startDev starts `gateway dev` in a directory of its own.
func startDev(tb testing.TB) *gateway {
	tb.Helper()
	g := &gateway{
		mode: "dev", env: append([]string{"AETHER_JWT_KEY_FILE=" + keyFile}, common...),
		args: []string{"dev", "--data-dir", tb.TempDir(), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"},
	}
	g.begin(tb)
	return g
}

// startServe starts `gateway serve` on a broker and a database, with more
// settings.
func startServe(tb testing.TB, broker, database string, env ...string) *gateway {
	tb.Helper()
	g := &gateway{
		mode: "serve",
		env: append([]string{
			"AETHER_JWT_KEY_FILE=" + keyFile, "AETHER_RABBITMQ_STREAM_URL=" + broker, "AETHER_POSTGRES_URL=" + database,
		}, common...),
		args: []string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"},
	}
	g.env = append(g.env, env...)
	if _, stderr, code, err := command(g.env, "migrate", "up"); err != nil || code != 0 {
		tb.Fatalf("gateway migrate up: exit %d, %v\n%s", code, err, stderr)
	}
	g.begin(tb)
	return g
}

// begin starts the first process. When the test ends the last one must end
// cleanly.
func (g *gateway) begin(tb testing.TB) {
	tb.Helper()
	g.process = launch(tb, g.env, g.args...)
	tb.Cleanup(func() {
		g.terminate()
		g.awaitExit(25 * time.Second)
		for _, p := range append(g.past, g.process) {
			p.finish()
		}
	})
}

// restart starts a process on the data that the present one, which has ended,
// has left. Its ports are others.
func (g *gateway) restart() {
	g.tb.Helper()
	g.past = append(g.past, g.process)
	g.process = launch(g.tb, g.env, g.args...)
}

// ready asks /readyz.
func (g *gateway) ready() bool {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + g.http + "/readyz")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// awaitReady waits until /readyz says so, or not.
func (g *gateway) awaitReady(tb testing.TB, ready bool, within time.Duration) {
	tb.Helper()
	if !eventually(within, func() bool { return g.ready() == ready }) {
		tb.Fatalf("readiness is still %v after %v", !ready, within)
	}
}

// eventually asks until the answer is yes, and says whether it came in time.
func eventually(within time.Duration, yes func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !yes(); <-tick.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
