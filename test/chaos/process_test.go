package chaos

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// node is one gateway of a deployment: processes, one after the other, on the
// same ports.
type node struct {
	tb      testing.TB
	rec     *recorder
	index   int
	program string
	args    []string
	env     []string
	dir     string // of its logs

	grpc, http int
	clients    *faultproxy.Proxy
	links      map[string]*faultproxy.Proxy // to "rabbitmq", "redis", "postgres"

	starts  atomic.Int32
	running *child // nil: it was killed
	ended   []*child
}

// child is one process. The kernel kills it when the tests die.
type child struct {
	name  string
	pid   int
	log   string
	done  chan struct{} // closed when it was reaped
	state *os.ProcessState
}

// name is that of the present process: another one after each start.
func (n *node) name() string { return fmt.Sprintf("g%d/%d", n.index, n.starts.Load()) }

// start starts a process and does not wait for it to be ready.
func (n *node) start() {
	n.tb.Helper()
	n.starts.Add(1)
	c := &child{
		name: n.name(), done: make(chan struct{}),
		log: filepath.Join(n.dir, fmt.Sprintf("gateway%d.%d.log", n.index, n.starts.Load())),
	}
	cmd := exec.Command(n.program, n.args...)
	cmd.Dir = n.dir
	// Races are looked for in the log: a killed process has no exit code.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "GORACE=atexit_sleep_ms=10 exitcode=0"}, n.env...)
	log, err := os.Create(c.log)
	must(n.tb, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error, 1)
	go c.run(cmd, started)
	must(n.tb, <-started)
	n.running = c
	n.rec.note(check.Event{Kind: check.Up, Gateway: c.name})
}

// run starts the child and reaps it. Pdeathsig fires when the thread that
// started the child ends, so this goroutine keeps its thread.
func (c *child) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	c.pid = cmd.Process.Pid
	started <- nil
	_ = cmd.Wait()
	c.state = cmd.ProcessState
	close(c.done)
}

func (n *node) signal(s syscall.Signal) {
	if n.running == nil {
		return
	}
	select {
	case <-n.running.done:
	default:
		_ = syscall.Kill(n.running.pid, s)
	}
}

// kill ends the process with SIGKILL and returns when it is gone.
func (n *node) kill() { n.end(syscall.SIGKILL, 0) }

// end ends the process by a signal, and kills it when that takes too long.
func (n *node) end(s syscall.Signal, limit time.Duration) {
	c := n.running
	if c == nil {
		return
	}
	n.signal(s)
	if limit > 0 {
		select {
		case <-c.done:
			if code := c.state.ExitCode(); code != 0 {
				n.tb.Errorf("gateway %s exited with %d after SIGTERM, want 0", c.name, code)
			}
		case <-time.After(limit):
			n.tb.Errorf("gateway %s still runs %v after SIGTERM", c.name, limit)
			n.signal(syscall.SIGKILL)
		}
	}
	<-c.done
	n.rec.note(check.Event{Kind: check.Down, Gateway: c.name})
	n.ended, n.running = append(n.ended, c), nil
}

// ready asks /readyz.
func (n *node) ready() bool {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", n.http))
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// awaitReady waits until the gateway is ready, and starts it again if it ended
// by itself meanwhile, as a service manager does: its parts may have been away.
func (n *node) awaitReady(limit time.Duration) {
	n.tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !n.ready(); <-tick.C {
		n.revive()
		if time.Now().After(deadline) {
			n.tb.Fatalf("gateway %s is not ready after %v; the end of its log:\n%s", n.name(), limit, n.running.tail())
		}
	}
}

// revive starts the gateway again if its process ended by itself. It reports
// whether it had.
func (n *node) revive() bool {
	if n.running == nil {
		return false
	}
	select {
	case <-n.running.done:
		n.end(0, 0)
		n.start()
		return true
	default:
		return false
	}
}

func (c *child) tail() string {
	const most = 8 << 10
	log, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// finish ends the gateway and reports what its processes say of themselves:
// data races and panics.
func (n *node) finish() {
	n.kill()
	for _, c := range n.ended {
		log, err := os.ReadFile(c.log)
		if err != nil {
			n.tb.Error(err)
			continue
		}
		for _, report := range races(log) {
			n.tb.Errorf("gateway %s has a data race:\n%s", c.name, report)
		}
		for _, sign := range []string{"panic: ", `"panic":`, "fatal error: "} {
			if at := bytes.Index(log, []byte(sign)); at >= 0 {
				n.tb.Errorf("the log of gateway %s says %q:\n%s", c.name, sign, log[at:min(at+6<<10, len(log))])
			}
		}
	}
}

// races returns the race detector's reports, but those within the broker's
// client library, whose breaking connections close queues that are in use; it
// recovers from that.
func races(log []byte) []string {
	const library = "github.com/rabbitmq/rabbitmq-stream-go-client/"
	var list []string
	for _, part := range strings.Split(string(log), "==================\n") {
		if !strings.HasPrefix(part, "WARNING: DATA RACE") {
			continue
		}
		accesses := strings.Split(part, "\n\n")
		foreign := 0
		for _, access := range accesses[:min(2, len(accesses))] {
			for line := range strings.Lines(access) {
				call, isCall := strings.CutPrefix(line, "  ")
				if !isCall || strings.HasPrefix(call, " ") || strings.HasPrefix(call, "runtime.") {
					continue
				}
				if strings.HasPrefix(call, library) {
					foreign++
				}
				break
			}
		}
		if foreign < 2 {
			list = append(list, part)
		}
	}
	return list
}
