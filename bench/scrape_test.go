package main

import "testing"

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
