package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
)

func TestWhoToBe(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	token := func(args ...string) string {
		return "--token=" + strings.TrimSpace(succeed(t, nil, append([]string{"token", "create", "--key-file", key}, args...)...))
	}
	// Nothing listens there: who gets so far was told apart well.
	const nobody = "is a gateway running at 127.0.0.1:1 (--addr)?"
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
		{[]string{"--as", "ag::w"}, 2, "ag::{workspace}::{implementation}::{specifier}"},
		{[]string{"--as", "zz::w"}, 2, "ag, tu, ta, tb, us"},
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

// Where it connects is said when nothing answers, and from where that was taken.
func TestWhereToConnect(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	send := func(environ []string, args ...string) (int, string) {
		args = append([]string{"send", "--as", "us::a::b", "--key-file", key, "--to", "ag::w::i::s", "--text", "x", "--timeout", "300ms"}, args...)
		code, _, stderr := command(environ, "", args...)
		return code, stderr
	}
	tests := []struct {
		environ []string
		args    []string
		code    int
		says    string
	}{
		{nil, []string{"--addr", "localhost"}, 2, "--addr localhost: give it as HOST:PORT, such as localhost:50051"},
		{nil, []string{"--addr", "::1"}, 2, "such as [::1]:50051"},
		{[]string{"AETHER_ADDR=http://127.0.0.1:1/"}, nil, 2, "AETHER_ADDR http://127.0.0.1:1/: give it as HOST:PORT, without http://, such as 127.0.0.1:1\n"},
		{[]string{"AETHER_GRPC_ADDR=0.0.0.0:1"}, nil, 1, "is a gateway running at 127.0.0.1:1 (AETHER_GRPC_ADDR)? start it with `gateway serve`"},
		{[]string{"AETHER_ADDR=127.0.0.1:1", "AETHER_GRPC_ADDR=:2"}, nil, 1, "is a gateway running at 127.0.0.1:1 (AETHER_ADDR)?"},
	}
	for _, tt := range tests {
		if code, stderr := send(tt.environ, tt.args...); code != tt.code || !strings.Contains(stderr, tt.says) {
			t.Errorf("%v %v: exit %d, want %d and %q:\n%s", tt.environ, tt.args, code, tt.code, tt.says, stderr)
		}
	}
	code, stderr := send(nil, "--addr", "127.0.0.1:1", "--timeout", "1500ms")
	if code != 1 || !strings.HasPrefix(stderr, "waiting for the gateway at 127.0.0.1:1 (--addr)\n") {
		t.Errorf("exit %d\n%s", code, stderr)
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
	// A credential that was left in the environment is named.
	agent := "AETHER_TOKEN=" + strings.TrimSpace(succeed(t, nil, at("token", "create", "--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s")...))
	expired := "AETHER_TOKEN=" + expiredToken(t, dir)
	foreign := "AETHER_TOKEN=" + strings.TrimSpace(succeed(t, nil, "token", "create", "--key-file", keyFile(t, "other.hs256"), "--kind", "user", "--user", "alice", "--workspace", "w"))
	for environ, says := range map[string]string{
		agent:   "the credential must cover us::alice::cli; this one came from AETHER_TOKEN",
		expired: "the credential of AETHER_TOKEN has expired: make a new one",
		foreign: "the credential of AETHER_TOKEN must be signed with a key of the gateway",
	} {
		code, _, stderr := command([]string{environ}, "", at("send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "x")...)
		if code != 1 || !strings.Contains(stderr, says) || !strings.Contains(stderr, "unset AETHER_TOKEN") {
			t.Errorf("%q: exit %d: %s", says, code, stderr)
		}
	}
	if code, stdout, stderr := command(nil, "", at("send", "--as", "us::alice::cli", "--to", "event::w", "--text", "x")...); code != 1 || stdout != "" ||
		!strings.Contains(stderr, "ERR_PERMISSION_DENIED") {
		t.Errorf("a forbidden send: exit %d: %s", code, stderr)
	}
	// What others have written does not steer the terminal.
	if out := succeed(t, nil, at("connect", "--as", "ag::w::i::s", "--count", "1")...); !strings.HasPrefix(out, "us::alice::cli → ag::w::i::s  chat @") ||
		!strings.HasSuffix(out, "  a\\x1b[31mb⏎\n") {
		t.Errorf("got %q", out)
	}
}

// expiredToken is one of alice's that is signed well and too old.
func expiredToken(t *testing.T, dir string) string {
	t.Helper()
	keys, err := auth.LoadKeyFiles(filepath.Join(dir, devKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	token, err := auth.Mint(keys.First(), auth.Claims{
		Kind: auth.KindUser, User: "alice", Workspaces: []string{"w"}, Issuer: auth.DefaultIssuer, Audience: []string{auth.DefaultAudience},
		IssuedAt: time.Now().Add(-2 * time.Hour), ExpiresAt: time.Now().Add(-time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// An answer is waited for and printed; other mail stays where it is.
func TestSendAndWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	at := func(args ...string) []string { return append(args, "--data-dir", dir) }
	succeed(t, nil, at("send", "--as", "us::alice::cli", "--to", "ga::w", "--text", "alice is a member of w from now on")...)
	succeed(t, nil, at("send", "--as", "ag::w::i::t", "--to", "us::alice::cli", "--text", "other mail", "--type", "chat", "--message-id", "m1")...)
	token := strings.TrimSpace(succeed(t, nil, at("token", "create", "--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s")...))
	echo, err := client.Connect(t.Context(), client.Options{
		Addr: g.grpc, Token: token, Identity: client.Agent("w", "i", "s"),
		Handler: func(ctx context.Context, m *client.Message) error {
			_, err := m.Reply(ctx, m.Payload)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	out := succeed(t, nil, at("send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "Are you there?", "--wait")...)
	if !strings.HasPrefix(out, "ag::w::i::s → us::alice::cli  chat ") || !strings.HasSuffix(out, "  Are you there?\n") {
		t.Errorf("got %q", out)
	}
	if err := echo.Close(t.Context()); err != nil {
		t.Error(err)
	}
	code, stdout, stderr := command(nil, "", at("send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "x", "--wait", "--timeout", "2s")...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "CLIENT_NO_REPLY") || !strings.Contains(stderr, "the answer then waits for us::alice::cli") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if out := succeed(t, nil, at("connect", "--as", "us::alice::cli", "--workspace", "w", "--count", "1")...); !strings.HasSuffix(out, "  other mail\n") {
		t.Errorf("got %q", out)
	}
}
