package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rowsOf runs an operator's command with --output json and returns its rows.
func rowsOf(t *testing.T, dir string, args ...string) []map[string]any {
	t.Helper()
	out := succeed(t, nil, append(args, "--data-dir", dir, "--output", "json")...)
	var rows []map[string]any
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatalf("%v: %v in %s", args, err, out)
	}
	return rows
}

// recorded waits until so many records of a kind are in the audit, which is
// written about once a second.
func recorded(t *testing.T, dir, kind string, want int) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		rows := rowsOf(t, dir, "audit", "list", "--kind", kind, "--limit", strconv.Itoa(want), "--since", "1h")
		if len(rows) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d records of kind %s: %v", len(rows), kind, rows)
		}
	}
}

// failing runs a command that must fail with a code and say something.
func failing(t *testing.T, want int, says string, args ...string) {
	t.Helper()
	code, out, stderr := command(nil, "", args...)
	if code != want || !strings.Contains(stderr, says) || out != "" {
		t.Errorf("%v: exit %d, want %d; %q should say %q; printed %q", args, code, want, stderr, says, out)
	}
}

// TestOperatorCommands is an operator at a terminal beside dev: the commands
// find the gateway and the credential by themselves.
func TestOperatorCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	g.stderr.wait(t, "Try, each in a terminal")
	in := []string{"--data-dir", dir}
	if rows := rowsOf(t, dir, "sessions", "list"); len(rows) != 0 {
		t.Errorf("nobody is there: %v", rows)
	}
	agent := begin(t, nil, "connect", "--data-dir", dir, "--as", "ag::demo::echo::1")
	agent.stderr.wait(t, "connected as ag::demo::echo::1")
	rows := rowsOf(t, dir, "sessions", "list")
	if len(rows) != 1 {
		t.Fatalf("sessions: %v", rows)
	}
	for _, field := range []string{"session_id", "identity", "kind", "workspace", "gateway", "connected_at"} {
		if v := rows[0][field]; v == nil || v == "" || v == 0.0 {
			t.Errorf("a session has no %s: %v", field, rows[0])
		}
	}
	if out := succeed(t, nil, "sessions", "list", "--data-dir", dir); !strings.Contains(out, "IDENTITY") || !strings.Contains(out, "ag::demo::echo::1") {
		t.Errorf("as a table: %s", out)
	}
	id := fmt.Sprint(rows[0]["session_id"])
	if rows := rowsOf(t, dir, "sessions", "kick", id, "--reason", "for the test"); len(rows) != 1 || rows[0]["identity"] != "ag::demo::echo::1" {
		t.Errorf("kicked: %v", rows)
	}
	if code := <-agent.exit; code != 1 {
		t.Errorf("who was kicked ended with exit %d", code)
	}
	agent.stderr.wait(t, "an operator has ended the session: for the test")
	failing(t, 1, "no session has the id or the identity", "sessions", "kick", "ag::demo::echo::1", "--data-dir", dir)

	tail := begin(t, nil, "tail", "ag::demo::echo::1", "--data-dir", dir, "--output", "json", "--count", "1")
	tail.stderr.wait(t, "observing ag::demo::echo::1")
	succeed(t, nil, "send", "--data-dir", dir, "--as", "us::alice::cli", "--to", "ag::demo::echo::1", "--text", "one", "--message-id", "m-1")
	line, err := tail.stdout.ReadString('\n')
	var seen map[string]any
	if err != nil || json.Unmarshal([]byte(line), &seen) != nil || seen["text"] != "one" || seen["message_id"] != "m-1" || seen["source"] != "us::alice::cli" {
		t.Errorf("the tail shows %q, %v", line, err)
	}
	if code := <-tail.exit; code != 0 {
		t.Errorf("tail ended with %d\n%s", code, tail.stderr)
	}

	if rows := rowsOf(t, dir, "where", "m-1"); len(rows) != 1 || rows[0]["state"] != "stored" {
		t.Errorf("where: %v", rows)
	}
	failing(t, 1, "--since", "where", "m-unknown", "--data-dir", dir)
	rows = rowsOf(t, dir, "mail", "peek", "ag::demo::echo::1")
	if len(rows) != 1 || rows[0]["message_id"] != "m-1" {
		t.Fatalf("mail: %v", rows)
	}
	position := fmt.Sprintf("%.0f", rows[0]["position"])
	if rows := rowsOf(t, dir, "mail", "skip", "ag::demo::echo::1"); len(rows) != 1 || rows[0]["skipped"] != 1.0 {
		t.Errorf("skipped: %v", rows)
	}
	failing(t, 1, "no mail waits", "mail", "skip", "ag::demo::echo::1", "--data-dir", dir)
	succeed(t, nil, "mail", "replay", "ag::demo::echo::1", "--from", position, "--data-dir", dir)
	if rows := rowsOf(t, dir, "mail", "peek", "ag::demo::echo::1"); len(rows) != 1 {
		t.Errorf("replayed: %v", rows)
	}
	succeed(t, nil, "mail", "purge", "ag::demo::echo::1", "--data-dir", dir)
	if rows := rowsOf(t, dir, "mail", "peek", "ag::demo::echo::1"); len(rows) != 0 {
		t.Errorf("purged: %v", rows)
	}

	rows = rowsOf(t, dir, "impl", "register", "--impl", "echo", "--profile", "process", "--param", "command=echo", "--param", "api_key=s3cret", "--overridable", "model")
	if len(rows) != 1 || rows[0]["implementation"] != "echo" || rows[0]["workspace"] != "" || rows[0]["profile"] != "process" ||
		fmt.Sprint(rows[0]["launch_params"]) != "map[api_key:(hidden) command:echo]" {
		t.Errorf("registered: %v", rows)
	}
	failing(t, 2, "auth_token is reserved", "impl", "register", "--impl", "echo", "--profile", "p", "--param", "auth_token=x", "--data-dir", dir)
	failing(t, 1, "there is no entry for echo in workspace demo", "impl", "remove", "echo", "--workspace", "demo", "--data-dir", dir)
	if rows := rowsOf(t, dir, "impl", "list"); len(rows) != 1 {
		t.Errorf("listed: %v", rows)
	}
	succeed(t, nil, "impl", "remove", "echo", "--data-dir", dir)
	if rows := rowsOf(t, dir, "impl", "list"); len(rows) != 0 {
		t.Errorf("listed: %v", rows)
	}

	deadCommands(t, dir)
	grantCommands(t, dir)
	taskCommands(t, dir, g.grpc)

	rows = rowsOf(t, dir, "rule", "add", "deny", "--principal", "us::alice::*", "--address", "ag::demo::echo::*", "--note", "for the test")
	if len(rows) != 1 || rows[0]["effect"] != "deny" {
		t.Fatalf("rule: %v", rows)
	}
	rule := fmt.Sprintf("%.0f", rows[0]["id"])
	failing(t, 1, "ERR_PERMISSION_DENIED", "send", "--data-dir", dir, "--as", "us::alice::cli", "--to", "ag::demo::echo::1", "--text", "two")
	recorded(t, dir, "operator", 3)
	recorded(t, dir, "refusal", 1)
	if out := succeed(t, nil, "rule", "explain", "us::alice::cli", "ag::demo::echo::1", "--workspace", "demo", "--data-dir", dir); !strings.Contains(out, "refused: ") ||
		!strings.Contains(out, "without rules allowed") || !strings.Contains(out, "for the test") {
		t.Errorf("explained: %s", out)
	}
	// Without a workspace it is where its session would be; odd rules are warned of.
	if out := succeed(t, nil, "rule", "explain", "us::alice::cli", "ag::demo::echo::1", "--data-dir", dir); !strings.Contains(out, "not connected; in demo") ||
		!strings.Contains(out, "without rules allowed") {
		t.Errorf("explained without a workspace: %s", out)
	}
	if out := succeed(t, nil, "rule", "explain", "us::alice::cli", "us::bob::cli", "--data-dir", dir); !strings.Contains(out, "say with --workspace") {
		t.Errorf("explained of nowhere: %s", out)
	}
	if rows := rowsOf(t, dir, "rule", "list"); len(rows) != 1 {
		t.Errorf("rules: %v", rows)
	}
	rowsOf(t, dir, "rule", "remove", rule)
	failing(t, 1, "there is no rule "+rule, "rule", "remove", rule, "--data-dir", dir)
	succeed(t, nil, "send", "--data-dir", dir, "--as", "us::alice::cli", "--to", "ag::demo::echo::1", "--text", "two")

	if rows := rowsOf(t, dir, "workspace", "create", "team"); len(rows) != 1 || rows[0]["name"] != "team" {
		t.Errorf("workspace: %v", rows)
	}
	if rows := rowsOf(t, dir, "workspace", "list"); len(rows) != 2 { // demo came by itself
		t.Errorf("workspaces: %v", rows)
	}
	rows = rowsOf(t, dir, "workspace", "members", "team", "--add", "alice", "--add", "bob", "--remove", "mallory")
	if len(rows) != 3 || rows[0]["member"] != true || rows[2]["ruling"] != "out" {
		t.Errorf("members: %v", rows)
	}
	code, _, stderr := command(nil, "", "workspace", "members", "team", "--remove", "eve", "--data-dir", dir)
	if code != 0 || !strings.Contains(stderr, "eve was no member; kept out") {
		t.Errorf("a stranger is removed: exit %d, %s", code, stderr)
	}
	if code, _, stderr = command(nil, "", "workspace", "members", "team", "--remove", "bob", "--data-dir", dir); code != 0 || stderr != "" {
		t.Errorf("a member is removed: exit %d, %s", code, stderr)
	}
	failing(t, 1, "`gateway workspace members WORKSPACE` shows it", "connect", "--as", "us::bob::1", "--workspace", "team", "--data-dir", dir)
	if out := succeed(t, nil, "rule", "explain", "us::bob::1", "gu::team", "--data-dir", dir); !strings.Contains(out, `refused: user "bob" is no member`) {
		t.Errorf("explained for who was removed: %s", out)
	}
	failing(t, 1, "nothing is known of this user", "workspace", "members", "team", "--unrule", "nobody", "--data-dir", dir)
	failing(t, 2, `cannot be seen, in "te\u200bam"`, "workspace", "create", "te\u200bam", "--data-dir", dir)
	// Keys that are good in it alone go with it; of others it is warned.
	createKey := func(name string, workspaces ...string) {
		args := []string{"key", "create", "--name", name, "--kind", "orchestrator", "--impl", "i", "--spec", "*", "--data-dir", dir}
		for _, ws := range workspaces {
			args = append(args, "--workspace", ws)
		}
		succeed(t, nil, args...)
	}
	createKey("alone", "team")
	createKey("shared", "team", "demo")
	code, out, stderr := command(nil, "", "workspace", "delete", "team", "--data-dir", dir)
	if code != 0 || !strings.Contains(out, "1 API key was good in it alone, and is revoked") || !strings.Contains(stderr, "shared) is good in other workspaces") {
		t.Errorf("deleted: exit %d, %q, %q", code, out, stderr)
	}
	for _, row := range rowsOf(t, dir, "key", "list") {
		if revoked := row["revoked_at"] != 0.0; revoked != (row["name"] == "alone") {
			t.Errorf("keys after the workspace is deleted: %v", row)
		}
	}
	succeed(t, nil, "key", "revoke", "shared", "--data-dir", dir)

	key := strings.TrimSpace(succeed(t, nil, "key", "create", "--name", "mail", "--kind", "agent", "--workspace", "demo", "--impl", "mail", "--spec", "*", "--data-dir", dir))
	keyed := begin(t, nil, "connect", "--data-dir", dir, "--token", key, "--as", "ag::demo::mail::1")
	keyed.stderr.wait(t, "connected as ag::demo::mail::1")
	if rows := rowsOf(t, dir, "key", "list"); len(rows) != 3 || rows[2]["name"] != "mail" || strings.Contains(fmt.Sprint(rows), key) {
		t.Errorf("keys: %v", rows)
	}
	succeed(t, nil, "key", "revoke", "mail", "--data-dir", dir)
	if code := <-keyed.exit; code != 1 {
		t.Errorf("who had the revoked key ended with exit %d\n%s", code, keyed.stderr)
	}
	again := succeed(t, nil, "key", "revoke", "mail", "--data-dir", dir)
	id, _, _ = strings.Cut(strings.TrimPrefix(again, "key "), " ")
	if !strings.Contains(again, "revoked already") || !strings.Contains(succeed(t, nil, "key", "revoke", id, "--data-dir", dir), "revoked already") {
		t.Errorf("revoked again: %s", again)
	}
	failing(t, 1, "has been revoked, has expired", "connect", "--data-dir", dir, "--token", key, "--as", "ag::demo::mail::1")
	failing(t, 1, "there is no such key", "key", "revoke", "none", "--data-dir", dir)
	for _, want := range []int{0, 1} { // a name is that of one good key
		code, _, stderr := command(nil, "", "key", "create", "--name", "odd", "--kind", "service", "--workspace", "nowhere", "--impl", "i", "--spec", "s", "--data-dir", dir)
		if says := []string{`there is no workspace "nowhere"`, "give this one another"}[want]; code != want || !strings.Contains(stderr, says) {
			t.Errorf("exit %d, want %d; %s should say %s", code, want, stderr, says)
		}
	}
	token := strings.TrimSpace(succeed(t, nil, "token", "create", "--data-dir", dir, "--kind", "agent", "--workspace", "demo", "--impl", "echo", "--spec", "2"))
	succeed(t, nil, "token", "revoke", token, "--data-dir", dir)
	failing(t, 1, "", "connect", "--data-dir", dir, "--token", token, "--as", "ag::demo::echo::2")

	if rows := rowsOf(t, dir, "topics", "list", "ag::demo::echo::"); len(rows) != 1 || rows[0]["topic"] != "ag::demo::echo::1" {
		t.Errorf("topics: %v", rows)
	}

	// Who did it is in the audit, never in a metric.
	_, counted := get(t, "http://"+g.http+"/metrics")
	if strings.Contains(counted, "alice") || strings.Contains(counted, "demo::") || strings.Contains(counted, "echo") {
		t.Error("an identity or an address is in a metric's label")
	}
	if !strings.Contains(counted, `aether_refusals_total{code="ERR_PERMISSION_DENIED"} 1`) {
		t.Error("the refusal is not counted")
	}

	// What makes no sense is refused before anything is asked.
	for _, args := range [][]string{
		{"sessions", "kick"},
		{"tail", "nonsense"},
		{"tail", "ga::w", "--count", "-1"},
		{"mail", "peek", "nonsense"},
		{"mail", "skip", "ag::demo::echo::1", "--count", "0"},
		{"mail", "replay", "ag::demo::echo::1"},
		{"mail", "replay", "ag::demo::echo::1", "--from", "1", "--since", "1h"},
		{"where", "m", "--since", "yesterday"},
		{"audit", "list", "--limit", "0"},
		{"rule", "add", "perhaps", "--principal", "*", "--address", "*"},
		{"rule", "add", "deny"},
		{"rule", "add", "deny", "--principal", "zz::alice::*", "--address", "ag::w::*::*"},
		{"rule", "explain", "us::alice", "ag::w::i::s"},
		{"workspace", "create", "a b"},
		{"workspace", "members", "w", "--add", "x", "--remove", "x"},
		{"key", "create", "--name", "a\x1b[31m", "--kind", "operator"},
		{"key", "create", "--name", "x", "--kind", "agent"},
		{"key", "create", "--name", "x", "--kind", "operator", "--ttl", "soon"},
		{"token", "revoke", "--user", "u", "--subject", "s"},
		{"sessions", "list", "--output", "xml"},
		{"sessions", "list", "--addr", "http://127.0.0.1:1"},
		{"sessions", "list", "--timeout", "soon"},
	} {
		failing(t, 2, "Try `", append(args, in...)...)
	}
}

// grantCommands has an agent act for alice, who is in the workspace demo.
func grantCommands(t *testing.T, dir string) {
	t.Helper()
	rows := rowsOf(t, dir, "grant", "issue", "--subject", "alice", "--delegate", "ag::demo::echo::1", "--workspace", "demo", "--address", "ag::demo::*", "--operation", "send", "--ttl", "1h", "--hops", "1")
	if len(rows) != 1 || rows[0]["subject_id"] != "alice" || rows[0]["delegate_id"] != "ag::demo::echo::1" || fmt.Sprint(rows[0]["addresses"]) != "[ag::demo::*]" {
		t.Fatalf("issued: %v", rows)
	}
	id := fmt.Sprint(rows[0]["grant_id"])
	if out := succeed(t, nil, "grant", "list", "--subject", "alice", "--data-dir", dir); !strings.Contains(out, id) || !strings.Contains(out, "holds") {
		t.Errorf("listed: %s", out)
	}
	failing(t, 1, "is no member of workspace", "grant", "issue", "--subject", "mallory", "--delegate", "ag::demo::echo::1", "--workspace", "demo", "--data-dir", dir)
	failing(t, 2, "is no type of a principal", "grant", "issue", "--subject", "zz::alice", "--delegate", "ag::demo::echo::1", "--workspace", "demo", "--data-dir", dir)
	failing(t, 2, "--workspace is missing", "grant", "issue", "--subject", "alice", "--delegate", "ag::demo::echo::1", "--data-dir", dir)
	failing(t, 1, "there is no such grant", "grant", "revoke", "gr_none", "--data-dir", dir)
	if rows := rowsOf(t, dir, "grant", "revoke", id, "--reason", "for the test"); len(rows) != 1 || rows[0]["revoke_reason"] != "for the test" {
		t.Errorf("revoked: %v", rows)
	}
	if rows := rowsOf(t, dir, "grant", "list"); len(rows) != 0 {
		t.Errorf("listed: %v", rows)
	}
	if rows := rowsOf(t, dir, "grant", "list", "--ended", "--delegate", "ag::demo::echo::1"); len(rows) != 1 {
		t.Errorf("listed: %v", rows)
	}
	recorded(t, dir, "grant", 4)
}

// What an operator's command says of a gateway that is not there, and of a
// credential that is none or not an operator's, is what to do.
func TestOperatorCommandsSayWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	failing(t, 1, "token create --kind operator", "sessions", "list", "--data-dir", dir)
	g := launchDev(t, dir)
	agent := strings.TrimSpace(succeed(t, nil, "token", "create", "--data-dir", dir, "--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s"))
	failing(t, 1, "is not an operator's", "sessions", "list", "--addr", g.grpc, "--token", agent)
	code, _, stderr := command([]string{"AETHER_TOKEN=x.y.z", "AETHER_ADDR=" + g.grpc}, "", "sessions", "list")
	if code != 1 || !strings.Contains(stderr, "unset AETHER_TOKEN") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	operator := strings.TrimSpace(succeed(t, nil, "token", "create", "--data-dir", dir, "--kind", "operator"))
	succeed(t, []string{"AETHER_TOKEN=" + operator, "AETHER_ADDR=" + g.grpc}, "sessions", "list")
	succeed(t, nil, "sessions", "list", "--token", operator, "--addr", "127.0.0.1:1,"+g.grpc) // the first one is not there
	g.stop(t)
	failing(t, 1, "is a gateway running at "+g.grpc, "sessions", "list", "--token", operator, "--addr", g.grpc, "--timeout", "1s")
}
