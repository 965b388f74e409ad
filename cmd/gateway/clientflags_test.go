package main

import (
	"strings"
	"testing"
)

func TestWhoToBe(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	token := func(args ...string) string {
		return "--token=" + strings.TrimSpace(succeed(t, nil, append([]string{"token", "create", "--key-file", key}, args...)...))
	}
	// Nothing listens there: who gets so far was told apart well.
	const nobody = "is a gateway running at 127.0.0.1:1?"
	agent := token("--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s")
	glob := token("--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "*")
	tests := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--as", "ag::w::i::s"}, 1, nobody},
		{[]string{"--as", "tb::w::i"}, 1, nobody},
		{[]string{"--as", "us::alice::cli"}, 1, nobody}, // in the workspace of the address
		{[]string{"--kind", "workflow_engine", "--spec", "e1"}, 1, nobody},
		{[]string{"--kind", "metrics_bridge", "--spec", "b1"}, 1, nobody},
		{[]string{"--kind", "orchestrator", "--impl", "i", "--spec", "s"}, 1, nobody},
		{[]string{"--as", "sv::i::s"}, 1, nobody},
		{[]string{"--as", "br::i::s"}, 1, nobody},
		{[]string{agent}, 1, nobody},
		{nil, 2, "say who to be with --as"},
		{[]string{glob}, 2, "does not say who exactly to be"},
		{[]string{"--as", "nonsense"}, 2, "--as: invalid address"},
		{[]string{"--as", "ga::w"}, 2, "nobody connects as this address"},
		{[]string{"--as", "ta::w::i::7"}, 2, "--as tb::w::i"},
		{[]string{"--as", "ag::w::i::s", "--kind", "agent"}, 2, "give one"},
		{[]string{"--as", "ag::w::i::s", "--impl", "x"}, 2, "go with --kind"},
		{[]string{"--kind", "operator"}, 2, "no principal"},
		{[]string{"--token", "nonsense"}, 1, "the token cannot be read"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			args := append([]string{"send", "--key-file", key, "--addr", "127.0.0.1:1", "--timeout", "300ms", "--to", "ag::w::i::t", "--text", "x"}, tt.args...)
			code, stdout, stderr := command(nil, "", args...)
			if code != tt.code || !strings.Contains(stderr, tt.says) || stdout != "" {
				t.Errorf("exit %d, want %d and %q:\n%s%s", code, tt.code, tt.says, stdout, stderr)
			}
		})
	}
}

func TestSendUsage(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"--text TEXT or --stdin":      {"--to", "ag::w::i::s"},
		"one of them":                 {"--to", "ag::w::i::s", "--text", "x", "--stdin"},
		"--type shout does not exist": {"--to", "ag::w::i::s", "--text", "x", "--type", "shout"},
		"--to: invalid address":       {"--to", "ag::w", "--text", "x"},
		"no positive duration":        {"--to", "ag::w::i::s", "--text", "x", "--timeout", "0s"},
		"--to":                        {"--text", "x"},
	} {
		if code, _, stderr := command(nil, "", append([]string{"send", "--as", "ag::w::i::t"}, args...)...); code != 2 || !strings.Contains(stderr, says) {
			t.Errorf("%v: exit %d\n%s", args, code, stderr)
		}
	}
	code, _, stderr := command(nil, strings.Repeat("x", 1_000_001), "send", "--as", "ag::w::i::t", "--to", "ag::w::i::s", "--stdin")
	if code != 1 || !strings.Contains(stderr, "larger than 1000000 bytes") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestSendAndConnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	launchDev(t, dir)
	at := func(args ...string) []string { return append(args, "--data-dir", dir) }
	send := func(args ...string) (int, string, string) {
		return command(nil, "a\x1b[31mb\n", append(at("send", "--as", "us::alice::cli", "--to", "ag::w::i::s"), args...)...)
	}
	if code, stdout, stderr := send("--stdin", "--message-id", "m1", "--subject", "a.v1.b"); code != 0 || stdout != "stored m1 ag::w::i::s\n" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := send("--stdin", "--message-id", "m1", "--subject", "a.v1.b"); code != 0 || stdout != "stored before m1 ag::w::i::s\n" {
		t.Errorf("a repeat: exit %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := send("--text", "x", "--token", "abc"); code != 1 || !strings.Contains(stderr, "gateway token create") {
		t.Errorf("a bad token: exit %d: %s", code, stderr)
	}
	if code, stdout, stderr := command(nil, "", at("send", "--as", "us::alice::cli", "--to", "event::w", "--text", "x")...); code != 1 || stdout != "" ||
		!strings.Contains(stderr, "ERR_PERMISSION_DENIED") {
		t.Errorf("a forbidden send: exit %d: %s", code, stderr)
	}
	// What others have written does not steer the terminal.
	if out := succeed(t, nil, at("connect", "--as", "ag::w::i::s", "--count", "1")...); !strings.HasPrefix(out, "us::alice::cli → ag::w::i::s  chat @") ||
		!strings.HasSuffix(out, "  a�[31mb⏎\n") {
		t.Errorf("got %q", out)
	}
}
