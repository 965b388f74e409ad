package metrics

import (
	"flag"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the documentation page")

func scrape(t *testing.T, c Counts) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler("v1", func() Counts { return c }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}

func TestHandler(t *testing.T) {
	t.Parallel()
	got := scrape(t, Counts{
		Ready: true, Sessions: 2, Connects: 3, Refused: 1, Ended: 10, SlowReaders: 11, Stored: 5, Duplicates: 12, RefusedSends: 2, Failed: 13,
		Live: 3, Shared: 14, Redelivered: 15, Expired: 16, GivenUp: 1, CatchUps: 4, PositionsCommitted: 17, CommitFailures: 18,
		DamagedEntries: 9, DamagedEnvelopes: 19, Notes: 22, NoteFailures: 23, DeadLetters: 24,
		Refusals: map[string]uint64{"ERR_PERMISSION_DENIED": 25, "us::mallory::1": 1}, ActionsDone: 26, ActionsFailed: 27,
		AuditEvents: 28, AuditOverflowed: 29, AuditFailures: 30,
		Tasks: []uint64{31, 32, 33, 34, 35, 36, 37}, Starts: []uint64{41, 42, 43, 44, 45, 46, 47}, Keys: []uint64{51, 52, 53, 54, 55, 56, 57},
		Up: map[string]bool{"log": true, "postgres": false}, Unwritable: 20, Unreadable: 21,
	})
	for line := range strings.Lines(`aether_ready 1
aether_dependency_up{dependency="log"} 1
aether_dependency_up{dependency="postgres"} 0
aether_partitions_down{what="write"} 20
aether_partitions_down{what="read"} 21
aether_sessions 2
aether_connects_total{outcome="accepted"} 3
aether_connects_total{outcome="refused"} 1
aether_session_ends_total 10
aether_slow_readers_total 11
aether_sends_total{outcome="stored"} 5
aether_sends_total{outcome="duplicate"} 12
aether_sends_total{outcome="refused"} 2
aether_sends_total{outcome="failed"} 13
aether_handovers_total{path="live"} 3
aether_handovers_total{path="shared"} 14
aether_deliveries_total{outcome="redelivered"} 15
aether_deliveries_total{outcome="expired"} 16
aether_deliveries_total{outcome="given_up"} 1
aether_catch_ups_total 4
aether_positions_committed_total 17
aether_position_commit_failures_total 18
aether_notes_total 22
aether_note_failures_total 23
aether_dead_letters_total 24
aether_damaged_total{what="entry"} 9
aether_damaged_total{what="envelope"} 19
aether_refusals_total{code="ERR_PERMISSION_DENIED"} 25
aether_refusals_total{code="ERR_INVALID_TOPIC"} 0
aether_operator_actions_total{outcome="ok"} 26
aether_operator_actions_total{outcome="failed"} 27
aether_audit_events_total{what="all"} 28
aether_audit_events_total{what="overflowed"} 29
aether_audit_write_failures_total 30
aether_tasks_total{event="created"} 31
aether_tasks_total{event="retried"} 37
aether_starts_total{event="triggered"} 41
aether_starts_total{event="failed"} 47
aether_kv_operations_total{outcome="read"} 51
aether_kv_operations_total{outcome="failed"} 57
aether_build_info{version="v1"} 1
`) {
		if !strings.Contains(got, "\n"+line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, f := range Families() {
		if !strings.Contains(got, "# HELP "+f.Name+" "+f.Help+"\n# TYPE "+f.Name+" "+f.Type+"\n") {
			t.Errorf("%s is not served as it is described", f.Name)
		}
	}
	if strings.Contains(got, "mallory") {
		t.Error("what is no code became a label")
	}
	if strings.Contains(got, `dependency="redis"`) {
		t.Error("a dependency that is not used has a series")
	}
	if !strings.Contains(got, "go_goroutines") || !strings.Contains(scrape(t, Counts{}), "\naether_ready 0\n") {
		t.Error("missing: Go's metrics, or readiness of a gateway that is not ready")
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	for _, m := range table {
		if want := max(len(m.Values), 1); len(m.read) != want {
			t.Errorf("%s reads %d fields for %d series", m.Name, len(m.read), want)
		}
		if (m.Label == "") != (m.Values == nil) {
			t.Errorf("%s: a label without values, or values without a label", m.Name)
		}
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
