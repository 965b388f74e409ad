package docs_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// block returns the one block of a page in a language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```"+language+"\n")
	code, after, closed := strings.Cut(rest, "```\n")
	if !found || !closed || strings.Contains(after, "```"+language+"\n") {
		t.Fatalf("%s has not one block of %s", page, language)
	}
	return code
}

// The program of python.md, with stubs made as it says, answers, keeps its
// messages acknowledged and its counter, and finds that when it comes again.
func TestPythonQuickStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	protos, err := filepath.Glob("../proto/aether/v1/*.proto")
	if err != nil || len(protos) == 0 {
		t.Fatal("no protos", err)
	}
	args := append([]string{"-I", "../proto", "--python_out=" + dir, "--grpc_out=" + dir, "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin"}, protos...)
	if out, err := exec.Command("protoc", args...).CombinedOutput(); err != nil {
		t.Fatalf("the stubs could not be made (scripts/deps.sh installs what that needs): %v\n%s", err, out)
	}
	program := filepath.Join(dir, "hello.py")
	if err := os.WriteFile(program, []byte(block(t, "python.md", "python")), 0o600); err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	user, err := client.Connect(ctx, client.Options{Addr: g.Addr, Token: g.UserToken("alice", "demo"), Identity: client.User("alice", "cli"), AllowPlaintext: true})
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close(ctx) //nolint:errcheck // the test ends

	for visit, want := range [][]string{{"connected", "visits so far: 0", "visits: 1"}, {"connected", "visits so far: 1", "visits: 2"}} {
		lines, stop := runPython(ctx, t, g, program)
		read := func() string {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatal("the program has ended")
				}
				return line
			case <-ctx.Done():
				t.Fatal("the program says nothing")
			}
			return ""
		}
		for _, line := range want[:2] {
			if got := read(); got != line {
				t.Errorf("visit %d: it says %q, want %q", visit, got, line)
			}
		}
		answer, err := user.Request(ctx, "ag::demo::pyhello::1", []byte("world"), client.WithType(client.Chat))
		if err != nil || string(answer.Payload) != "hello, world" {
			t.Fatalf("visit %d: answered %v, %v", visit, answer, err)
		}
		if got := read(); got != want[2] {
			t.Errorf("visit %d: it says %q, want %q", visit, got, want[2])
		}
		stop()
	}
}

// runPython starts the agent, and again as long as its place is taken by the run
// before.
func runPython(ctx context.Context, t *testing.T, g *gatewaytest.Gateway, program string) (lines <-chan string, stop func()) {
	t.Helper()
	for {
		cmd := exec.CommandContext(ctx, "/usr/bin/python3", program)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Dir(program), "PYTHONDONTWRITEBYTECODE=1", "AETHER_ADDR="+g.Addr, "AETHER_TOKEN="+g.AgentToken("demo", "pyhello"))
		var problems strings.Builder
		cmd.Stderr = &problems
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 16)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer close(said)
			for s := bufio.NewScanner(out); s.Scan(); {
				said <- s.Text()
			}
		}()
		stop := func() {
			_ = cmd.Process.Kill()
			<-ended
			_ = cmd.Wait() // it was killed
		}
		first, ok := <-said
		if ok {
			again := make(chan string, 16)
			go func() {
				defer close(again)
				again <- first
				for line := range said {
					again <- line
				}
			}()
			return again, stop
		}
		stop()
		if !strings.Contains(problems.String(), "ALREADY_EXISTS") {
			t.Fatalf("the program failed:\n%s", problems.String())
		}
	}
}
