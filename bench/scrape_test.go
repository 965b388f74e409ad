package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCounting asks a gateway, which it finds by its log, before and after.
func TestCounting(t *testing.T) {
	t.Parallel()
	asked := 0
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/metrics" {
			t.Errorf("%s is asked for", r.URL.Path)
		}
		fmt.Fprintf(w, "aether_catch_ups_total %d\n", 10*asked)
	}))
	t.Cleanup(ops.Close)
	log := filepath.Join(t.TempDir(), "log")
	line := fmt.Sprintf(`{"msg":"serving","ops":%q}`+"\n", strings.TrimPrefix(ops.URL, "http://"))
	if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &site{gateways: map[string]*child{nameRabbitMQ: {log: log}, nameEmbedded: {log: log + ".none"}}}
	var o outcome
	if err := s.counting(t.Context(), nameRabbitMQ, &o, func() error { return nil }); err != nil || !o.Counted || o.Passes != 10 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, system := range []string{nameRelay, nameEmbedded} {
		o = outcome{}
		if err := s.counting(t.Context(), system, &o, func() error { return nil }); err != nil || o.Counted {
			t.Errorf("%s: %+v, %v", system, o, err)
		}
	}
	failed := errors.New("out of order")
	if err := s.counting(t.Context(), nameRabbitMQ, &o, func() error { return failed }); !errors.Is(err, failed) || o.Counted {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestOpsAddr(t *testing.T) {
	t.Parallel()
	const serving = `{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"serving","grpc":"127.0.0.1:1","http":"127.0.0.1:2","ops":"127.0.0.1:3","mode":"serve"}`
	for log, want := range map[string]string{
		"": "",
		"no json\n" + `{"msg":"waiting","ops":"127.0.0.1:9"}` + "\n" + serving + "\n": "127.0.0.1:3",
		`{"msg":"serving","ops":"off"}`:                                               "",
		`{"msg":"serving","ops":7}`:                                                   "",
	} {
		if got := opsAddr([]byte(log)); got != want {
			t.Errorf("%q, want %q, in\n%s", got, want, log)
		}
	}
}

const metrics = `# HELP aether_catch_ups_total Passes.
# TYPE aether_catch_ups_total counter
aether_catch_ups_total_more 1
aether_catch_ups_total 12
aether_connects_total{outcome="accepted"} 3
timed 1.5e+03 1700000000000
empty 
odd x
`

func TestMetric(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{"aether_catch_ups_total": 12, "timed": 1500} {
		if got, err := metric([]byte(metrics), name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"missing", "empty", "odd", "aether_connects_total"} {
		if got, err := metric([]byte(metrics), name); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzScrape(f *testing.F) {
	f.Add([]byte(metrics))
	f.Add([]byte(`{"msg":"serving","ops":"127.0.0.1:3"}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = metric(b, "aether_catch_ups_total")
		_ = opsAddr(b)
	})
}

func TestSeries(t *testing.T) {
	t.Parallel()
	if n := series([]byte("# HELP a b\n# TYPE a counter\na 1\nb{c=\"d\"} 2\n\ne 3")); n != 3 {
		t.Errorf("%d series, want 3", n)
	}
}
