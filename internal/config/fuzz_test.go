package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// FuzzFile: whatever a file holds, reading it ends, with a configuration or
// with Problems that are one line each.
func FuzzFile(f *testing.F) {
	for _, s := range []string{
		Example, "", "a", "[]", "streams:\n", "streams: {placement: [{prefix: ag}]}", "a: &a [*a]", "? {a: b}\n: c", "1: 2", "streams.partitions: 3",
		"log: {1: 2, level: {}}", "jwt: {key_file: [[a]]}", "x: !!binary x", "x: !!timestamp 2001-01-01", "---\n---\n", "\xff", "<<: {log: {level: debug}}",
		"streams: {placement: [{prefix: [1]}]}", "rate: {bytes: 1e3, messages: .inf}", "log: null", "log: {level: null}",
		"topics: " + topicExample, "routes: " + routeExample, "topics: [{ack: {mode: [1]}, capacity: {ring: .nan}}]", "routes: [{workspaces: [{}], filter: '#.#', grammar: segmented}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, ps := parseFile("f.yaml", []byte(s))
		for i := range table {
			k := &table[i]
			v, ok := l[k.Name]
			if !ok {
				continue
			}
			var c Config
			if err := assign(k, k.field(&c), v.value); err != nil {
				ps = append(ps, keyProblems(k.Name, Source{}, err)...)
			}
			wiring.JudgeTopics(c.Topics, 1<<20)
			wiring.JudgeRoutes(c.Routes)
		}
		for _, p := range ps {
			if strings.ContainsAny(p.String(), "\n\x00\x1b") {
				t.Errorf("problem %q has control characters", p)
			}
		}
	})
}

func FuzzEnvironment(f *testing.F) {
	f.Add("AETHER_STREAMS_PLACEMENT", "[{prefix: ag}]")
	f.Add("AETHER_STREAMS_PLACEMENT", "[{prefix: ag, workspace: w}, {}]")
	f.Add("AETHER_POSTGRES_URL", "postgres://u:p@h:1/d?x=y")
	f.Add("AETHER_RABBITMQ_STREAM_URL", "rabbitmq-stream://a,,")
	f.Add("AETHER_GRPC_ADDR", "[::1]:0")
	f.Add("AETHER_SHUTDOWN_TIMEOUT", "1d")
	f.Add("AETHER_", "x")
	f.Add("AETHER_INSTANCE_ID", "a\nb")
	f.Fuzz(func(t *testing.T, name, value string) {
		c, err := Load(Options{Mode: Serve, Environ: append([]string{name + "=" + value}, required...)})
		var ps Problems
		if err != nil && !errors.As(err, &ps) {
			t.Fatalf("error is a %T", err)
		}
		for _, p := range ps {
			if strings.ContainsAny(p.String(), "\n\x00\x1b") {
				t.Errorf("problem %q has control characters", p)
			}
		}
		for _, e := range c.Entries() {
			if strings.Contains(e.Value, "pw-hidden") && e.Source.Name != name {
				t.Errorf("%s is shown with its password", e.Key)
			}
		}
	})
}
