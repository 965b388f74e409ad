package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// withOps opens the operators' port.
const withOps = "AETHER_OPS_ADDR=127.0.0.1:0"

var opsPort = regexp.MustCompile(`"ops":"([^"]+)"`)

// opsGet asks the operators' port, which [withOps] has opened.
func (g *gateway) opsGet(tb testing.TB, path string) string {
	tb.Helper()
	log, err := os.ReadFile(g.log)
	check(tb, err)
	addr := opsPort.FindSubmatch(log)
	if addr == nil {
		tb.Fatal("the log does not name the operators' port")
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + string(addr[1]) + path)
	check(tb, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	check(tb, err)
	return string(body)
}

// reasons is what /readyz tells operators.
func (g *gateway) reasons(tb testing.TB) string {
	tb.Helper()
	return g.opsGet(tb, "/readyz")
}

// awaitReason waits until /readyz tells operators a line that begins and goes
// on like this.
func (g *gateway) awaitReason(tb testing.TB, begins, text string, within time.Duration) {
	tb.Helper()
	var said string
	if !eventually(within, func() bool {
		said = g.reasons(tb)
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, begins) && strings.Contains(line, text) {
				return true
			}
		}
		return false
	}) {
		tb.Fatalf("/readyz does not say %q with %q within %v, but\n%s", begins, text, within, said)
	}
}

// metric reads one series of /metrics.
func (g *gateway) metric(tb testing.TB, series string) (value float64) {
	tb.Helper()
	for lines := bufio.NewScanner(strings.NewReader(g.opsGet(tb, "/metrics"))); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			_, err := fmt.Sscan(text, &value)
			check(tb, err)
			return value
		}
	}
	tb.Fatalf("there is no metric %s", series)
	return 0
}

// footprint is what piles up if something is left behind.
type footprint struct {
	goroutines  goroutines
	connections int
}

// footprint measures when nothing is on its way: a gateway with its sessions.
func (f *faults) footprint(tb testing.TB) footprint {
	tb.Helper()
	return footprint{f.goroutines(tb), f.proxy.Count()}
}

// awaitFootprint waits until the gateway is as small as it was. slack is how
// many goroutines more there may be.
func (f *faults) awaitFootprint(tb testing.TB, was footprint, slack int) {
	tb.Helper()
	var now footprint
	if !eventually(patience, func() bool {
		now = f.footprint(tb)
		return now.connections <= was.connections && now.goroutines.lasting() <= was.goroutines.lasting()+slack
	}) {
		tb.Errorf("afterwards there are %d goroutines and %d connections to the broker, before there were %d and %d; more of\n%s",
			now.goroutines.lasting(), now.connections, was.goroutines.lasting(), was.connections, now.goroutines.since(was.goroutines))
	}
}

// newFaults starts a gateway on a broker of its own, behind a proxy.
func newFaults(t *testing.T, database string, env ...string) *faults {
	t.Helper()
	f := &faults{broker: testservices.NewBroker(t)}
	f.proxy = faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", f.broker.StreamPort()))
	url := fmt.Sprintf("rabbitmq-stream://guest:guest@%s/%%2f", f.proxy.Addr())
	f.gateway = startServe(t, url, database, append([]string{withOps}, env...)...)
	return f
}
