package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

// workerScript is a command that says that it was started, and becomes the agent when
// it may; with "die" it ends at once. It does not outlive the test's directory.
const workerScript = `#!/bin/sh
: > "$1/started.$$"
[ "$2" = die ] && exit 3
while [ ! -e "$1/go" ]; do [ -d "$1" ] || exit 4; sleep 0.05; done
exec "$3"
`

// killing is an orchestrator that is killed, with what it starts, for one agent.
type killing struct {
	t     *testing.T
	g     *gateway
	admin *ruler
	bin   string // of the examples
	dir   string // what workers leave
	name  string // the agent's specifier
	count int
}

// orchestrator starts a process of the example, and waits until it is connected.
func (k *killing) orchestrator(mode string) *exec.Cmd {
	k.t.Helper()
	k.count++
	spec := fmt.Sprintf("%s%d", k.name, k.count)
	token, err := createToken("--kind", "orchestrator", "--impl", "local", "--spec", spec)
	check(k.t, err)
	log, err := os.Create(filepath.Join(k.dir, "orchestrator."+spec))
	check(k.t, err)
	k.t.Cleanup(func() { log.Close() })
	cmd := exec.Command(filepath.Join(k.bin, "process-orchestrator"), "-spec", spec, "-worker",
		fmt.Sprintf("lazy=/bin/sh %s %s %s %s", filepath.Join(k.bin, "worker"), k.dir, mode, filepath.Join(k.bin, "lazy")))
	cmd.Env = append(os.Environ(), "AETHER_ADDR="+k.g.grpc, "AETHER_TOKEN="+token)
	cmd.Stdout, cmd.Stderr = log, log
	check(k.t, cmd.Start())
	k.t.Cleanup(func() { k.kill(cmd) })
	k.until("connected", func() bool {
		text, err := os.ReadFile(log.Name())
		return err == nil && strings.Contains(string(text), "connected")
	})
	return cmd
}

func (k *killing) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
}

func (k *killing) until(what string, is func() bool) {
	k.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(deadline) {
			k.t.Fatalf("never: %s", what)
		}
	}
}

// started is how many processes were started.
func (k *killing) started() int {
	k.t.Helper()
	all, err := filepath.Glob(filepath.Join(k.dir, "started.*"))
	check(k.t, err)
	return len(all)
}

// release lets workers become the agent.
func (k *killing) release() {
	k.t.Helper()
	check(k.t, os.WriteFile(filepath.Join(k.dir, "go"), nil, 0o600))
}

func (k *killing) starts() []*adminv1.Task {
	k.t.Helper()
	client, ctx, cancel := k.admin.call()
	defer cancel()
	list, err := client.ListTasks(ctx, &adminv1.ListTasksRequest{Identity: k.address()})
	check(k.t, err)
	return list.GetTasks()
}

// assigned reports whether the gateway says that it has handed out the start.
func (k *killing) assigned() bool {
	k.t.Helper()
	log, err := os.ReadFile(k.g.log)
	check(k.t, err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "a start was assigned") && strings.Contains(line, k.address()) {
			return true
		}
	}
	return false
}

func (k *killing) address() string { return "ag::killed::lazy::" + k.name }

// running waits until there is one start, which runs.
func (k *killing) running(attempt int32) {
	k.t.Helper()
	var list []*adminv1.Task
	k.until("it runs", func() bool {
		list = k.starts()
		return len(list) > 0 && list[0].GetStatus() == "running"
	})
	if len(list) != 1 || list[0].GetAttempt() != attempt {
		k.t.Errorf("want one start in attempt %d: %v", attempt, list)
	}
}

// The example's orchestrator is killed, as a process, at each step of a start: the
// agent is there in the end, by one start, and no attempt is lost that nobody has
// begun. It takes a minute, so that it is only done with AETHER_TEST_LONG=1; the
// same steps are those of a test of package orchestrator.
func TestRow20OrchestratorProcessKilled(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Log(longVariable + " is not set: not done")
		return
	}
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-o", bin+"/", "github.com/aether-gateway/gateway/examples/process-orchestrator", "github.com/aether-gateway/gateway/examples/lazy").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check(t, os.WriteFile(filepath.Join(bin, "worker"), []byte(workerScript), 0o600))
	g := startDev(t)
	admin := newRuler(t, g)
	client, ctx, cancel := admin.call()
	defer cancel()
	_, err = client.RegisterImplementation(ctx, &adminv1.RegisterImplementationRequest{Implementation: &adminv1.Implementation{Implementation: "lazy", Profile: "process"}})
	check(t, err)
	user := connect(t, g, user("u", "w", "killed"))
	begin := func(t *testing.T, name string) *killing {
		t.Helper()
		return &killing{t: t, g: g, admin: admin, bin: bin, dir: t.TempDir(), name: name}
	}
	write := func(k *killing) { user.stored(k.address(), "hello") }

	t.Run("before it claims", func(t *testing.T) {
		k := begin(t, "a")
		k.kill(k.orchestrator("live"))
		write(k)
		k.release()
		k.orchestrator("live")
		k.running(1)
	})
	t.Run("after the claim, before the process starts", func(t *testing.T) {
		k := begin(t, "b")
		first := k.orchestrator("live")
		check(t, first.Process.Signal(syscall.SIGSTOP))
		write(k)
		k.until("assigned", k.assigned)
		k.kill(first)
		k.release()
		k.orchestrator("live")
		k.until("started", func() bool { return k.started() > 0 })
		k.running(2)
		if n := k.started(); n != 1 {
			t.Errorf("%d processes", n)
		}
	})
	t.Run("after the process has started, before that connects", func(t *testing.T) {
		k := begin(t, "c")
		first := k.orchestrator("live")
		write(k)
		k.until("started", func() bool { return k.started() == 1 })
		k.kill(first)
		k.orchestrator("live")
		k.until("started again", func() bool { return k.started() == 2 })
		k.release() // both come; the first one's token is worth nothing
		k.running(2)
	})
	t.Run("after the worker has come", func(t *testing.T) {
		k := begin(t, "d")
		first := k.orchestrator("live")
		k.release()
		write(k)
		k.running(1)
		k.kill(first)
		k.orchestrator("live")
		k.until("done", func() bool { list := k.starts(); return list[0].GetStatus() == "completed" })
		if list := k.starts(); len(list) != 1 || list[0].GetAttempt() != 1 || k.started() != 1 {
			t.Errorf("%d processes, %v", k.started(), list)
		}
	})
	t.Run("after the process has ended, before it says so", func(t *testing.T) {
		k := begin(t, "e")
		first := k.orchestrator("die")
		dead := make(chan struct{})
		watch, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		go func() {
			defer close(dead)
			for watch.Err() == nil {
				if all, _ := filepath.Glob(filepath.Join(k.dir, "started.*")); len(all) > 0 {
					k.kill(first)
					return
				}
			}
		}()
		write(k)
		<-dead
		k.release()
		k.orchestrator("live")
		k.running(2)
	})
}
