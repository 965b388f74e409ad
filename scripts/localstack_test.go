package scripts

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stack is a local stack in a directory of its own.
type stack struct {
	t       *testing.T
	dir     string
	port    int
	program string
}

const stackPorts = 13

func newStack(t *testing.T, program string) *stack {
	t.Helper()
	dir := t.TempDir()
	// The database's user has to get there.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &stack{t: t, dir: dir, port: freePorts(t, stackPorts), program: program}
	t.Cleanup(func() {
		if out, err := s.run("down"); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "log", "*.log"))
			for _, log := range logs {
				text, _ := os.ReadFile(log)
				t.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-4000):])
			}
		}
	})
	return s
}

// freePorts finds so many ports in a row, below those that the kernel gives to
// outgoing connections.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		first := 10240 + rand.IntN(20000)
		free := true
		for port := first; port < first+n && free; port++ {
			l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

// environ is the environment of the script: no developer's settings.
func (s *stack) environ(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "STACK_DIR=" + s.dir, fmt.Sprintf("STACK_PORT=%d", s.port), "STACK_GATEWAY=" + s.program,
	}, more...)
}

func (s *stack) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./local-stack.sh", args...)
	cmd.Env = s.environ()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// What up starts goes on writing to files of its own, never to this.
	err := cmd.Run()
	return out.String(), err
}

// gateway runs a client command against one address.
func (s *stack) gateway(addr string, args ...string) string {
	s.t.Helper()
	return s.client([]string{"AETHER_ADDR=" + addr}, append(args, "--timeout", "30s")...)
}

// operator runs a command of an operator through the balancer.
func (s *stack) operator(args ...string) string {
	s.t.Helper()
	token := strings.TrimSpace(s.client(nil, "token", "create", "--kind", "operator", "--subject", "ops@example.com"))
	return s.client([]string{"AETHER_ADDR=" + s.addr(0), "AETHER_TOKEN=" + token}, append(args, "--timeout", "30s")...)
}

func (s *stack) client(environ []string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = s.environ(append(environ, "AETHER_JWT_KEY_FILE="+filepath.Join(s.dir, "secrets", "signing.hs256"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("gateway %q with %q: %v\n%s", args, environ, err, out)
	}
	return string(out)
}

// leaves removes a user who is connected to the second gateway from the
// workspace, by way of the balancer.
func (s *stack) leaves() {
	t := s.t
	bob := exec.CommandContext(t.Context(), s.program, "connect", "--as", "us::bob::laptop", "--workspace", "w", "--timeout", "30s")
	bob.Env = s.environ("AETHER_ADDR="+s.addr(5), "AETHER_JWT_KEY_FILE="+filepath.Join(s.dir, "secrets", "signing.hs256"))
	said, err := bob.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	bob.Stderr = bob.Stdout // in one pipe
	if err := bob.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(2*time.Minute, func() { _ = bob.Process.Kill() })
	defer stop.Stop()
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "connected as us::bob::laptop") {
	}
	if list := s.operator("sessions", "list"); !strings.Contains(list, "us::bob::laptop") || !strings.Contains(list, "gateway-2") {
		t.Errorf("sessions: %s", list)
	}
	if why := s.operator("rule", "explain", "us::bob::laptop", "event::w"); !strings.Contains(why, "users may not send to event") {
		t.Errorf("explained: %s", why)
	}
	s.operator("workspace", "members", "w", "--remove", "bob")
	began := time.Now()
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if err := bob.Wait(); err == nil || !strings.Contains(rest, `no member of workspace "w"`) {
		t.Errorf("the removed member: %v\n%s", err, rest)
	}
	t.Logf("a removed member's session ended after %s", time.Since(began).Round(time.Millisecond))
	s.gateway(s.addr(0), "send", "--as", "us::carol::cli", "--to", "ag::w::echo::1", "--text", "others go on")
}

func (s *stack) addr(offset int) string { return fmt.Sprintf("127.0.0.1:%d", s.port+offset) }

// pid is what runs as a part.
func (s *stack) pid(part string) int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "pids", part))
	if err != nil {
		s.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// TestLocalStack brings the whole deployment up from nothing, sends through its
// balancer and past it, loses a gateway, and takes it down. With
// AETHER_TEST_LONG=1 it does so ten times, and the first message has 5 s.
func TestLocalStack(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "gateway")
	// As other tests do, so that it is there already; the long form is the real thing.
	rounds, limit := 1, 30*time.Second
	build := exec.Command("go", "build", "-race", "-o", program, "../cmd/gateway")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if os.Getenv("AETHER_TEST_LONG") != "" {
		rounds, limit = 10, 5*time.Second
		build = exec.Command("go", "build", "-o", program, "../cmd/gateway")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for round := range rounds {
		t.Run(strconv.Itoa(round+1), func(t *testing.T) { newStack(t, program).round(limit) })
	}
}

func (s *stack) round(limit time.Duration) {
	t := s.t
	began := time.Now()
	out, err := s.run("up")
	if err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	ready := time.Now()
	balancer := s.addr(0)
	if want := fmt.Sprintf("ready grpc=%s http=%s\n", balancer, s.addr(1)); !strings.HasPrefix(out, want) {
		t.Errorf("up says %q, want %q", out, want)
	}
	s.operator("workspace", "create", "w")
	s.gateway(balancer, "send", "--as", "us::alice::cli", "--to", "ag::w::echo::1", "--text", "first")
	if got := s.gateway(balancer, "connect", "--as", "ag::w::echo::1", "--count", "1"); !strings.Contains(got, "first") {
		t.Errorf("through the balancer came %q", got)
	}
	took := time.Since(ready)
	t.Logf("ready after %s, the first message %s later", ready.Sub(began).Round(time.Millisecond), took.Round(time.Millisecond))
	if took > limit {
		t.Errorf("the first message took %s", took)
	}

	// From each gateway to the other.
	one, two := s.addr(2), s.addr(5)
	for _, way := range [][2]string{{one, two}, {two, one}} {
		s.gateway(way[0], "send", "--as", "us::alice::cli", "--to", "ag::w::echo::1", "--text", "from "+way[0])
		if got := s.gateway(way[1], "connect", "--as", "ag::w::echo::1", "--count", "1"); !strings.Contains(got, "from "+way[0]) {
			t.Errorf("from %s to %s came %q", way[0], way[1], got)
		}
	}
	if out, err := s.run("status"); err != nil || strings.Count(out, " running ") != 6 {
		t.Errorf("status: %v\n%s", err, out)
	}

	s.leaves()

	// A gateway that dies is left out, and is not brought back by anybody but up.
	if err := syscall.Kill(s.pid("gateway-1"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		text := fmt.Sprintf("after the death %d", i)
		s.gateway(balancer, "send", "--as", "us::dora::cli", "--to", "ag::w::other::1", "--text", text)
	}
	if got := s.gateway(balancer, "connect", "--as", "ag::w::other::1", "--count", "4"); !strings.Contains(got, "after the death 3") {
		t.Errorf("got %q", got)
	}
	if out, err := s.run("status"); err == nil || !strings.Contains(out, "gateway-1   not running") {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, err := s.run("up"); err != nil {
		t.Errorf("up again: %v\n%s", err, out)
	}

	// Down ends what up has started. A process that only has the id of one stays.
	pids := map[string]int{}
	for _, part := range []string{"balancer", "gateway-1", "gateway-2", "redis", "postgres", "rabbitmq", "epmd"} {
		pids[part] = s.pid(part)
	}
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()
	if err := syscall.Kill(pids["redis"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "pids", "redis"), fmt.Appendf(nil, "%d 1\n", bystander.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := s.run("down"); err != nil || out != "" {
		t.Errorf("down: %v\n%s", err, out)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("down has ended a process that it did not start: %v", err)
	}
	for part, pid := range pids {
		if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(data, []byte(s.dir)) {
			t.Errorf("%s still runs: %q", part, data)
		}
	}
	if out, err := s.run("status"); err == nil || strings.Contains(out, " running ") {
		t.Errorf("status: %v\n%s", err, out)
	}
}

// TestLocalStackRefuses: a wrong call starts nothing.
func TestLocalStackRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"fly"}, {"up", "postgres", "bank"}, {"status", ";id"}} {
		cmd := exec.Command("./local-stack.sh", args...)
		dir := filepath.Join(t.TempDir(), "stack")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "STACK_DIR=" + dir}
		if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("local-stack.sh")) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q has made %s", args, dir)
		}
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	cmd := exec.Command("./local-stack.sh", "up", "redis")
	dir := filepath.Join(t.TempDir(), "stack")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "STACK_DIR=" + dir, fmt.Sprintf("STACK_PORT=%d", port-9), "STACK_GATEWAY=true"}
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, fmt.Appendf(nil, "port %d of redis is taken", port)) {
		t.Errorf("a taken port: %v\n%s", err, out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("a taken port: it has made %s", dir)
	}
	for _, port := range []string{"x", "0", "65530", "-1"} {
		cmd := exec.Command("./local-stack.sh", "up")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "STACK_DIR=" + filepath.Join(t.TempDir(), "stack"), "STACK_PORT=" + port}
		if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("STACK_PORT")) {
			t.Errorf("port %s: %v\n%s", port, err, out)
		}
	}
}
