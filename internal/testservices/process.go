package testservices

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/goleak"
)

// IgnoreServices makes goleak overlook the goroutines that hold running
// services. Only tests that call goleak while a service runs need it.
func IgnoreServices() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/aether-gateway/gateway/internal/testservices.(*process).run")
}

// command says how to start a process.
type command struct {
	path string
	args []string
	env  []string // whole environment; nothing is inherited
	dir  string
	log  string              // file that stdout and stderr are appended to
	cred *syscall.Credential // nil: the user that runs the tests
}

// process is a running child. Its methods may be called from any goroutine.
type process struct {
	log  string
	pid  int
	done chan struct{} // closed when the child was reaped
	err  error         // valid after done
}

// start runs the command as a child that the kernel kills when this test
// binary dies.
func start(c command) (*process, error) {
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(c.path, c.args...)
	cmd.Env = c.env
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = out, out // files: no copying goroutines
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: c.cred,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // so that its helpers are killed with it
	}
	p := &process{log: c.log, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.path, err)
	}
	return p, nil
}

// run starts the child and reaps it. The parent of a child is a thread, not a
// process: Pdeathsig fires when that thread ends. So this goroutine keeps its
// thread for as long as the child lives, and takes it along afterwards.
func (p *process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
	close(p.done)
}

// signal sends s to the child alone; it does nothing once it was reaped.
func (p *process) signal(s syscall.Signal) error {
	if p.exited() {
		return os.ErrProcessDone
	}
	return syscall.Kill(p.pid, s)
}

// signalTree sends s to the child and its children. PostgreSQL gives each of
// its processes a group of its own, so the group does not reach them.
func (p *process) signalTree(s syscall.Signal) error {
	if err := p.signal(s); err != nil {
		return err
	}
	for _, child := range children(p.pid) {
		_ = syscall.Kill(child, s) // gone already is fine
	}
	return nil
}

// children returns the ids of the processes whose parent is pid.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var found []int
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread is gone
		}
		for field := range strings.FieldsSeq(string(b)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}

// awaitStopped waits until the kernel has stopped all threads of a process that
// was sent SIGSTOP.
func (p *process) awaitStopped() error {
	return p.await(10*time.Second, func() error {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid))
		if err != nil {
			return err
		}
		for _, file := range files {
			if s := stateOf(file); s != 0 && s != 'T' {
				return fmt.Errorf("%s: still in state %c", file, s)
			}
		}
		return nil
	})
}

// kill ends the child and its process group with SIGKILL and waits for it.
func (p *process) kill() {
	if !p.exited() {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL) // gone already is fine
	}
	<-p.done
}

// killTree ends the child and its children with SIGKILL, and waits for all. The
// children are not ours to reap: they are gone when the kernel has freed what
// they held.
func (p *process) killTree() error {
	if p.exited() {
		return nil
	}
	if err := p.signal(syscall.SIGSTOP); err != nil { // so that it starts no more
		return err
	}
	if err := p.awaitStopped(); err != nil {
		return err
	}
	orphans := children(p.pid)
	p.kill()
	for _, pid := range orphans {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is fine
	}
	return poll(10*time.Second, nil, func() error {
		for _, pid := range orphans {
			if s := stateOf(fmt.Sprintf("/proc/%d/stat", pid)); s != 0 && s != 'Z' && s != 'X' {
				return fmt.Errorf("process %d is still in state %c", pid, s)
			}
		}
		return nil
	})
}

// stateOf returns the letter for a process's or thread's state from its stat
// file, 0 if there is none.
func stateOf(file string) byte {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	// The name in brackets may hold anything; a space and the state follow it.
	after := b[bytes.LastIndexByte(b, ')')+1:]
	if len(after) < 2 {
		return 0
	}
	return after[1]
}

// terminate asks the child to end by s, and kills it if it takes too long.
func (p *process) terminate(s syscall.Signal, patience time.Duration) {
	_ = p.signal(s)
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
	}
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// errExited says that the service ended before it was ready; another port may
// help.
var errExited = errors.New("ended before it was ready")

// await polls ready until it returns nil. It gives up when the child ends
// (errExited) or after the time limit.
func (p *process) await(limit time.Duration, ready func() error) error {
	err := poll(limit, p.done, ready)
	if errors.Is(err, errExited) && p.err != nil {
		return fmt.Errorf("%w: %w", err, p.err)
	}
	return err
}

// poll calls ready until it returns nil, the time is over, or exited is closed.
func poll(limit time.Duration, exited <-chan struct{}, ready func() error) error {
	const pause = 20 * time.Millisecond
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", limit, err)
		}
		select {
		case <-exited:
			return errExited
		case <-tick.C:
		}
	}
}

// logTail returns the end of a log file, for error messages.
func logTail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return tail(b)
}

func tail(b []byte) string {
	const most = 4 << 10
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(bytes.TrimSpace(b))
}
