package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// logsVariable names a directory in which the logs of all gateways are left.
const logsVariable = "AETHER_E2E_LOGS"

// process is a running gateway. The kernel kills it when the tests die.
type process struct {
	tb         testing.TB
	pid        int
	grpc, http string
	log        string // file with its standard error

	done  chan struct{} // closed when it was reaped and its output is read
	state *os.ProcessState
	extra []string // lines on standard output after the first
	first chan string
}

// launch starts the program and waits for its ready line. Whoever launches it
// must see to it that finish is called.
func launch(tb testing.TB, env []string, args ...string) *process {
	tb.Helper()
	p := begin(tb, env, args...)
	fail := func(format string, args ...any) {
		tb.Helper()
		tb.Errorf(format, args...)
		p.finish()
		tb.FailNow()
	}
	select {
	case line := <-p.first:
		if _, err := fmt.Sscanf(line, "ready grpc=%s http=%s", &p.grpc, &p.http); err != nil {
			fail("the first line on standard output is %q: %v", line, err)
		}
	case <-p.done:
		fail("gateway %s ended before it was ready: %v", args[0], p.state)
	case <-time.After(patience):
		fail("gateway %s is not ready after %v", args[0], patience)
	}
	return p
}

// begin starts the program without waiting for anything.
func begin(tb testing.TB, env []string, args ...string) *process {
	tb.Helper()
	dir := tb.TempDir()
	p := &process{
		tb: tb, log: filepath.Join(dir, "stderr"),
		done: make(chan struct{}), first: make(chan string, 1),
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	// Races are looked for in the log: a killed process has no exit code.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GORACE=atexit_sleep_ms=10 exitcode=0"}, env...)
	stderr, err := os.Create(p.log)
	check(tb, err)
	defer stderr.Close()
	cmd.Stderr = stderr
	stdout, writer, err := os.Pipe()
	check(tb, err)
	cmd.Stdout = writer
	started := make(chan error, 1)
	go p.run(cmd, stdout, writer, started)
	check(tb, <-started)
	return p
}

// run starts the child and reaps it. Pdeathsig fires when the thread that
// started the child ends, so this goroutine keeps its thread.
func (p *process) run(cmd *exec.Cmd, stdout, writer *os.File, started chan<- error) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	writer.Close()
	if err != nil {
		stdout.Close()
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	var reading sync.WaitGroup
	reading.Go(func() { p.read(stdout) })
	started <- nil
	_ = cmd.Wait()
	p.state = cmd.ProcessState
	reading.Wait()
	close(p.done)
}

func (p *process) read(stdout *os.File) {
	defer stdout.Close()
	lines := bufio.NewScanner(stdout)
	if lines.Scan() {
		p.first <- lines.Text()
	}
	for lines.Scan() {
		p.extra = append(p.extra, lines.Text())
	}
	_, _ = io.Copy(io.Discard, stdout)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process with SIGKILL and returns when it is gone.
func (p *process) kill() {
	if !p.ended() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	<-p.done
}

// terminate asks the process to end, as a service manager does.
func (p *process) terminate() {
	p.tb.Helper()
	if !p.ended() {
		check(p.tb, syscall.Kill(p.pid, syscall.SIGTERM))
	}
}

// awaitExit waits for the end of a terminated process, which must be clean.
func (p *process) awaitExit(within time.Duration) {
	p.tb.Helper()
	select {
	case <-p.done:
		if code := p.state.ExitCode(); code != 0 {
			p.tb.Errorf("the gateway exited with %d after SIGTERM, want 0", code)
		}
	case <-time.After(within):
		p.tb.Errorf("the gateway still runs %v after SIGTERM", within)
		p.kill()
	}
}

// finish ends the process and reports what went wrong in it, data races above
// all.
func (p *process) finish() {
	p.kill()
	if len(p.extra) > 0 {
		p.tb.Errorf("more than one line on standard output: %q", p.extra)
	}
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.tb.Error(err)
		return
	}
	for _, report := range races(log) {
		p.tb.Errorf("the gateway has a data race:\n%s", report)
	}
	for _, sign := range []string{"panic: ", `"panic":`, "fatal error: "} {
		if at := bytes.Index(log, []byte(sign)); at >= 0 {
			p.tb.Errorf("the gateway's log says %q:\n%s", sign, log[at:min(at+6<<10, len(log))])
		}
	}
	if dir := os.Getenv(logsVariable); dir != "" {
		check(p.tb, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d.log", p.tb.Name(), p.pid)), log, 0o600))
	}
	if p.tb.Failed() {
		const most = 12 << 10
		p.tb.Logf("the gateway's log (its last %d bytes):\n%s", most, log[max(0, len(log)-most):])
	}
}

// races returns the race detector's reports, but those of a race within the
// broker's client library: a connection that breaks closes a queue into which
// a sender may just be writing, which panics and is recovered from.
func races(log []byte) []string {
	const library = "github.com/rabbitmq/rabbitmq-stream-go-client/"
	var list []string
	for _, part := range strings.Split(string(log), "==================\n") {
		if !strings.HasPrefix(part, "WARNING: DATA RACE") {
			continue
		}
		foreign := 0
		accesses := strings.Split(part, "\n\n")
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

// command runs the program to its end.
func command(env []string, args ...string) (stdout, stderr string, code int, err error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), errs.String(), exit.ExitCode(), nil
	}
	return out.String(), errs.String(), 0, err
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
