package main

import (
	"encoding/json"
	"testing"
)

// TestBench measures a gateway as its operator would. How much gets through is
// the machine's business.
func TestBench(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	in := []string{"bench", "--addr", g.grpc, "--data-dir", dir, "--warmup", "0s", "--duration", "300ms", "--timeout", "30s"}
	out := succeed(t, nil, append(in, "--pairs", "2", "--rate", "50", "--output", "json")...)
	var figures map[string]any
	if err := json.Unmarshal([]byte(out), &figures); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, name := range []string{"lost", "overtaken", "refused", "limited"} {
		if figures[name] != 0.0 {
			t.Errorf("%s: %v", name, figures)
		}
	}
	for _, name := range []string{"messages", "messages_per_second", "one_way", "receipt", "seconds"} {
		if figures[name] == nil {
			t.Errorf("no %s: %v", name, figures)
		}
	}
	succeed(t, nil, append(in, "--rate", "50")...) // as the same agents
	for _, args := range [][]string{
		{"--pairs", "0"}, {"--size", "7"}, {"--window", "100000"}, {"--rate", "-1"}, {"--duration", "0s"}, {"--duration", "soon"}, {"--warmup", "-1s"}, {"--workspace", "a b"}, {"--name", "a b"},
	} {
		failing(t, 2, "Try `", append(in, args...)...)
	}
}
