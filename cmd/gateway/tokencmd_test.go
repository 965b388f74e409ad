package main

import (
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/auth"
)

// The flags that scripts use, each with the claims that come of them.
func TestTokenCreate(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	keys, err := auth.LoadKeyFiles(key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := auth.NewVerifier(auth.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ flags, kind, workspaces, impl, spec, user string }{
		{"--kind agent --workspace W --impl I --spec S --ttl 24h", "agent", "W", "I", "S", ""},
		{"--kind agent --workspace W --impl I --spec *", "agent", "W", "I", "*", ""},
		{"--kind task --workspace W --impl I", "task", "W", "I", "", ""},
		{"--kind task --workspace W --impl I --spec S", "task", "W", "I", "S", ""},
		{"--kind user --user U --workspace W --workspace W2", "user", "W,W2", "", "", "U"},
		{"--kind orchestrator --impl I --spec S", "orchestrator", "*", "I", "S", ""},
		{"--kind service --impl I --spec S --workspace A --workspace B", "service", "A,B", "I", "S", ""},
		{"--kind bridge --impl I --spec S", "bridge", "*", "I", "S", ""},
		{"--kind workflow_engine --spec S --workspace W", "workflow_engine", "W", "", "S", ""},
		{"--kind metrics_bridge --spec S", "metrics_bridge", "*", "", "S", ""},
		{"--kind operator", "operator", "*", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.flags, func(t *testing.T) {
			t.Parallel()
			out := succeed(t, nil, append([]string{"token", "create", "--key-file", key}, strings.Fields(tt.flags)...)...)
			token := strings.TrimSuffix(out, "\n")
			if strings.ContainsAny(token, " \n") {
				t.Fatalf("not the token alone: %q", out)
			}
			c, err := v.Verify(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(c.Workspaces, ","); c.Kind != tt.kind || got != tt.workspaces || c.Impl != tt.impl || c.Spec != tt.spec || c.User != tt.user {
				t.Errorf("claims %+v", c.Claims)
			}
			if c.Issuer != "aether" || strings.Join(c.Audience, ",") != "aether" {
				t.Errorf("issuer %q, audience %q", c.Issuer, c.Audience)
			}
		})
	}
}

func TestTokenKeys(t *testing.T) {
	t.Parallel()
	hs256, plain, other := keyFile(t, "k.hs256"), keyFile(t, "secret.txt"), keyFile(t, "other.hs256")
	args := []string{"token", "create", "--kind", "operator"}
	fromEnv := strings.TrimSpace(succeed(t, []string{"AETHER_JWT_KEY_FILE=" + hs256 + "," + other, "AETHER_AUTH_ISSUER=me"}, args...))

	if code, stdout, _ := command(nil, fromEnv, "token", "inspect", "--key-file", hs256, "--issuer", "me"); code != 0 || !strings.Contains(stdout, "checked: good") {
		t.Errorf("the first key of the environment was not used: %d %s", code, stdout)
	}
	if code, stdout, _ := command(nil, fromEnv, "token", "inspect", "--key-file", hs256); code != 1 || !strings.Contains(stdout, "another issuer") {
		t.Errorf("another issuer passed: %d %s", code, stdout)
	}
	if code, stdout, _ := command([]string{"AETHER_DATA_DIR=" + t.TempDir()}, "Bearer "+fromEnv, "token", "inspect", "-"); code != 0 ||
		!strings.Contains(stdout, "checked: no") || !strings.Contains(stdout, `"kind": "operator"`) {
		t.Errorf("without a key: %d %s", code, stdout)
	}
	if code, _, stderr := command(nil, "", append(args, "--key-file", plain)...); code != 1 || strings.Contains(stderr, "0123456789") {
		t.Errorf("a secret without .hs256: %d %s", code, stderr)
	}
	succeed(t, nil, append(args, "--key-file", "HS256:"+plain)...)
}
