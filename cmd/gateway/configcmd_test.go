package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/config"
)

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	environ := []string{
		"AETHER_POSTGRES_URL=postgres://u:pw-hidden@db/aether", "AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://u:pw-hidden@mq",
		"AETHER_JWT_KEY_FILE=k.hs256", "AETHER_INSTANCE_ID=a b # c",
	}
	out := succeed(t, environ, "config", "print")
	for _, line := range []string{
		"# environment AETHER_POSTGRES_URL", "postgres://u:***@db/aether", "streams.partitions: 4", "# default", `instance_id: "a b # c"`,
	} {
		if !strings.Contains(out, line) {
			t.Errorf("missing %q in\n%s", line, out)
		}
	}
	if strings.Contains(out, "hidden") {
		t.Errorf("a password is shown:\n%s", out)
	}
	var entries []config.Entry
	if err := json.Unmarshal([]byte(succeed(t, environ, "config", "print", "--output", "json")), &entries); err != nil || len(entries) < 30 {
		t.Errorf("%v, %d entries", err, len(entries))
	}

	// What print shows for dev is a file that gives the same again.
	file := filepath.Join(t.TempDir(), "printed.yaml")
	first := succeed(t, []string{"AETHER_STREAMS_PLACEMENT=[{prefix: ag, workspace: w}]", "AETHER_STREAMS_RETENTION_MAX_AGE=1d12h"}, "config", "print", "--mode", "dev")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	second := succeed(t, nil, "config", "print", "--mode", "dev", "--config", file)
	withoutSources := func(s string) string {
		var b strings.Builder
		for line := range strings.Lines(s) {
			value, _, _ := strings.Cut(line, "  #")
			b.WriteString(strings.TrimRight(value, " ") + "\n")
		}
		return b.String()
	}
	if withoutSources(first) != withoutSources(second) {
		t.Errorf("printed:\n%s\nread back:\n%s", first, second)
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	good := []string{"AETHER_POSTGRES_URL=postgres://db/aether", "AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://mq", "AETHER_JWT_KEY_FILE=" + key}
	out := succeed(t, append(good, "AETHER_TOPICS=[{prefix: ga}]"), "config", "check")
	if !strings.Contains(out, "note: topics") || !strings.Contains(out, "ok: ") {
		t.Errorf("got %s", out)
	}
	code, stdout, _ := command(append(good, "AETHER_JWT_KEY_FILE=/nowhere.hs256,"+key, "AETHER_LOG_LEVEL=loud"), "", "config", "check")
	if code != 1 || !strings.Contains(stdout, "/nowhere.hs256") || !strings.Contains(stdout, "log.level") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	code, stdout, stderr := command(append(good, "AETHER_LOG_LEVEL=loud"), "", "config", "check")
	if code != 1 || strings.Count(stdout+stderr, "log.level") != 1 {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	// serve reports them together, too.
	code, _, stderr = command(append(good, "AETHER_JWT_KEY_FILE=/nowhere.hs256", "AETHER_LOG_LEVEL=loud"), "", "serve")
	if code != 1 || !strings.Contains(stderr, "/nowhere.hs256") || !strings.Contains(stderr, "log.level") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	// A key for everybody is worth a word.
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, good, "config", "check"); !strings.Contains(out, "note: jwt.key_file") || !strings.Contains(out, "chmod 600 "+key) {
		t.Errorf("got %s", out)
	}
	if code, _, stderr := command(good, "", "token", "create", "--kind", "operator"); code != 0 || !strings.Contains(stderr, "chmod 600 "+key) {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	code, stdout, _ = command(append(good, "AETHER_LOG_LEVEL=loud"), "", "config", "check", "--output", "json")
	var report struct {
		OK       bool
		Problems config.Problems
	}
	if err := json.Unmarshal([]byte(stdout), &report); code != 1 || err != nil || report.OK || len(report.Problems) != 1 || report.Problems[0].Key != "log.level" {
		t.Errorf("exit %d, %v\n%s", code, err, stdout)
	}
}

// A cycle of three routes and four other faults are told at once, each with its
// path, its value and what would do; serve makes the same check.
func TestConfigCheckOfTopicsAndRoutes(t *testing.T) {
	t.Parallel()
	file := filepath.Join("testdata", "five-faults.yaml")
	environ := []string{"AETHER_JWT_KEY_FILE=" + keyFile(t, "k.hs256")}
	code, stdout, stderr := command(environ, "", "config", "check", file)
	if code != 1 || stderr != "" {
		t.Errorf("exit %d, %s", code, stderr)
	}
	var problems []string
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "problem: ") {
			problems = append(problems, line)
		}
	}
	want := []string{
		"routes[0] (file " + file + "): ga::shop → taken → tb::shop::billing → billed → ag::shop::ledger::main → told → ga::shop is a cycle; accepted are ",
		`routes[3].to (file ` + file + `): "gu::stock" is no address that a service may send to; accepted are `,
		"topics[0].capacity (file " + file + "): 0 leaves no room; accepted is 1 to ",
		`topics[1].queue_on_full (file ` + file + `): is "drop_oldest"; accepted are block, drop_newest`,
		`topics[2].ack.mode (file ` + file + `): "all" does not go with on_lag "drop_oldest", `,
	}
	for i, line := range problems {
		if i >= len(want) || !strings.HasPrefix(line, "problem: "+want[i]) {
			t.Errorf("problem %d is %s", i, line)
		}
	}
	if len(problems) != len(want) {
		t.Errorf("%d problems, want %d:\n%s", len(problems), len(want), stdout)
	}
	code, _, stderr = command(environ, "", "serve", "--config", file)
	if code != 1 || strings.Count(stderr, "accepted") != len(want) {
		t.Errorf("serve exits %d\n%s", code, stderr)
	}
}
