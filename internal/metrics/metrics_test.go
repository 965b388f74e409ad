package metrics

import (
	"flag"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

var update = flag.Bool("update", false, "rewrite the documentation page")

func scrape(t *testing.T, s *Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}

func TestCounting(t *testing.T) {
	t.Parallel()
	s := New("v1")
	s.Connected(acl.Agent, OK)
	s.Connected(acl.Agent, OK)
	s.Ended(acl.Agent, "aborted")
	s.Connected(acl.KindUnknown, "unauthenticated")
	s.Sent(address.PrefixAgent, "stored")
	s.Sent(0, "ERR_INVALID_TOPIC")
	s.Stored(3 * time.Millisecond)
	s.Delivered(address.PrefixAgent, "live")
	s.Acked("ack")
	s.Gap("lagged", 7)
	s.Committed(OK)
	s.Tails(3, 1)
	s.Reopened("consumer")
	s.Ready(true)
	got := scrape(t, s)
	for _, line := range []string{
		`aether_sessions{kind="agent"} 1`,
		`aether_connects_total{kind="agent",reason="ok"} 2`,
		`aether_connects_total{kind="unknown",reason="unauthenticated"} 1`,
		`aether_session_ends_total{kind="agent",reason="aborted"} 1`,
		`aether_sends_total{prefix="ag",reason="stored"} 1`,
		`aether_sends_total{prefix="invalid",reason="ERR_INVALID_TOPIC"} 1`,
		`aether_store_seconds_bucket{le="0.005"} 1`,
		`aether_deliveries_total{path="live",prefix="ag"} 1`,
		`aether_acks_total{outcome="ack"} 1`,
		`aether_gaps_total{reason="lagged"} 1`,
		`aether_gap_messages_total{reason="lagged"} 7`,
		`aether_position_commits_total{outcome="ok"} 1`,
		`aether_tails{state="down"} 1`,
		`aether_log_reopens_total{what="consumer"} 1`,
		`aether_ready 1`,
		`aether_build_info{version="v1"} 1`,
		`go_goroutines`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
}

// Whatever a caller passes, the number of series stays what it was.
func TestLabelSetsAreClosed(t *testing.T) {
	t.Parallel()
	s := New("v1")
	count := func() int {
		n := 0
		for line := range strings.Lines(scrape(t, s)) {
			if strings.HasPrefix(line, "aether_") {
				n++
			}
		}
		return n
	}
	before := count()
	const identity = "ag::w::i::s"
	s.Connected(acl.Kind(200), identity)
	s.Ended(acl.Kind(200), identity)
	s.Sent(address.Prefix(200), identity)
	s.Delivered(address.Prefix(200), identity)
	s.Acked(identity)
	s.Gap(identity, 1)
	s.Committed(identity)
	s.Reopened(identity)
	if after := count(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
	if got := scrape(t, s); strings.Contains(got, identity) || !strings.Contains(got, `aether_acks_total{outcome="other"} 1`) {
		t.Error("not counted as other")
	}
}

func TestNilSetCountsNothing(t *testing.T) {
	t.Parallel()
	var s *Set
	s.Connected(acl.Agent, OK)
	s.Ended(acl.Agent, OK)
	s.Sent(0, OK)
	s.Stored(0)
	s.Delivered(0, OK)
	s.Acked(OK)
	s.Gap(OK, 0)
	s.Committed(OK)
	s.Tails(0, 0)
	s.Reopened(OK)
	s.Ready(true)
}

func TestNoAllocation(t *testing.T) {
	s := New("v1")
	if n := testing.AllocsPerRun(100, func() {
		s.Sent(address.PrefixAgent, "stored")
		s.Delivered(address.PrefixAgent, "live")
		s.Acked("ack")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDocumentation(t *testing.T) {
	const page = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(got)); diff != "" {
		t.Errorf("docs/metrics.md is out of date; run: go test ./internal/metrics -run TestDocumentation -update\n%s", diff)
	}
}
