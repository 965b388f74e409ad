package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs the program and returns what it printed.
func command(environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs buffer
	code = run(args, &program{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, environ: environ})
	return code, out.String(), errs.String()
}

// succeed runs the program and returns what it printed on standard output.
func succeed(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(environ, "", args...)
	if code != 0 {
		t.Fatalf("gateway %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

func keyFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	tests := []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "Usage: gateway"},
		{[]string{"--help"}, 0, "Usage: gateway"},
		{[]string{"version"}, 0, "gateway "},
		{[]string{"fly"}, 2, "Try `gateway --help`"},
		{[]string{"send", "--speed", "9"}, 2, "Try `gateway send --help`"},
		{[]string{"token", "create", "--speed", "9"}, 2, "Try `gateway token create --help`"},
		{[]string{"token", "create", "--kind", "god"}, 2, "Try `gateway token create --help`"},
		{[]string{"token", "create", "--kind", "operator", "--key-file", "program_test.go"}, 1, "write HS256: before its path"},
		{[]string{"token", "create"}, 2, "--kind is missing"},
		{[]string{"token", "create", "--kind", "god"}, 2, "--kind god does not exist"},
		{
			[]string{"token", "create", "--kind", "agent", "--user", "u", "--workspace", "w"},
			2,
			"for --kind agent --impl is missing, --spec is missing, --user is not taken",
		},
		{[]string{"token", "create", "--kind", "operator", "--ttl", "5"}, 2, "has no unit"},
		{[]string{"token", "create", "--kind", "operator", "--data-dir", "a", "--key-file", "b"}, 2, "give one"},
		{[]string{"token", "create", "--kind", "operator", "--data-dir", "/nowhere/at/all"}, 1, "start `gateway dev --data-dir /nowhere/at/all` once"},
		{[]string{"token", "create", "--kind", "operator", "--key-file", "/nowhere.hs256"}, 1, "/nowhere.hs256"},
		{[]string{"token", "create", "--kind", "agent", "--workspace", "a b", "--impl", "i", "--spec", "s", "--key-file", key}, 1, "workspace"},
		{[]string{"token", "inspect", "nonsense"}, 1, "JWT"},
		{[]string{"config", "check", "--mode", "fast"}, 2, "--mode"},
		{[]string{"config", "check", "--mode", "dev"}, 0, "ok: "},
		{[]string{"config", "check"}, 1, "problem: postgres.url"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := command(nil, "", tt.args...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.says) {
				t.Errorf("exit %d, want %d and %q:\n%s%s", code, tt.code, tt.says, stdout, stderr)
			}
			if code == exitUsage && stdout != "" {
				t.Errorf("a usage error wrote on standard output: %s", stdout)
			}
		})
	}
}
