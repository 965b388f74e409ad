package metrics

import (
	"flag"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/acl"
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
	s.Watch(func() Counts {
		return Counts{Stored: 5, Refused: 2, Live: 3, GivenUp: 1, CatchUps: 4, DamagedEntries: 9}
	})
	s.Connected(acl.Agent, OK)
	s.Connected(acl.Agent, OK)
	s.Ended(acl.Agent, "aborted")
	s.Connected(acl.KindUnknown, "unauthenticated")
	s.Ready(true)
	got := scrape(t, s)
	for _, line := range []string{
		`aether_sessions{kind="agent"} 1`,
		`aether_connects_total{kind="agent",reason="ok"} 2`,
		`aether_connects_total{kind="unknown",reason="unauthenticated"} 1`,
		`aether_session_ends_total{kind="agent",reason="aborted"} 1`,
		`aether_sends_total{outcome="stored"} 5`,
		`aether_sends_total{outcome="refused"} 2`,
		`aether_handovers_total{path="live"} 3`,
		`aether_deliveries_total{outcome="given_up"} 1`,
		`aether_catch_ups_total 4`,
		`aether_damaged_total{what="entry"} 9`,
		`aether_ready 1`,
		`aether_build_info{version="v1"} 1`,
		`go_goroutines`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, f := range Families() {
		if !strings.Contains(got, "# HELP "+f.Name+" "+f.Help) {
			t.Errorf("%s is described and not served", f.Name)
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
	if after := count(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
	if got := scrape(t, s); strings.Contains(got, identity) || !strings.Contains(got, `aether_session_ends_total{kind="unknown",reason="other"} 1`) {
		t.Error("not counted as other")
	}
}

// Every status of gRPC is a value of its own.
func TestAllStatusCodes(t *testing.T) {
	t.Parallel()
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		name := strings.ToLower(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(c.String(), "${1}_${2}"))
		if !slices.Contains(codeValues, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestNilSetCountsNothing(t *testing.T) {
	t.Parallel()
	var s *Set
	s.Connected(acl.Agent, OK)
	s.Ended(acl.Agent, OK)
	s.Ready(true)
}

func TestNoAllocation(t *testing.T) {
	s := New("v1")
	if n := testing.AllocsPerRun(100, func() {
		s.Connected(acl.Agent, OK)
		s.Ended(acl.Agent, "canceled")
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
