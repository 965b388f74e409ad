package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is a server in a process of its own. It says "ready grpc=ADDR" when it
// serves, and ends at SIGTERM.
type child struct {
	addr  string
	pid   int
	in    io.WriteCloser
	lines chan string // what it says after that
	done  chan struct{}
	err   error // valid after done
	log   string
}

const (
	childStart = 60 * time.Second
	childEnd   = 30 * time.Second
)

// startChild starts a program. What it logs goes to a file.
func startChild(ctx context.Context, log string, environ []string, path string, args ...string) (*child, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Env = environ
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &child{in: stdin, lines: make(chan string, 16), done: make(chan struct{}), log: log}
	begun := make(chan error, 1)
	go c.run(cmd, stdout, begun)
	if err := <-begun; err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("%s %s: %w\n%s", path, strings.Join(args, " "), err, tail(log))
	}
	return c, nil
}

// run starts the child and reaps it. The kernel kills the child when the
// thread that started it ends, so this goroutine keeps its thread until then.
func (c *child) run(cmd *exec.Cmd, stdout io.Reader, begun chan<- error) {
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		begun <- err
		return
	}
	c.pid = cmd.Process.Pid
	begun <- nil
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		select {
		case c.lines <- scanner.Text():
		default: // nobody asked for so much
		}
	}
	c.err = cmd.Wait()
	close(c.done)
}

func (c *child) awaitReady(ctx context.Context) error {
	line, err := c.say(ctx, childStart)
	if err != nil {
		return err
	}
	for word := range strings.FieldsSeq(line) {
		if addr, ok := strings.CutPrefix(word, "grpc="); ok {
			c.addr = addr
			return nil
		}
	}
	return fmt.Errorf("it says %q instead of where it serves", line)
}

// say returns the child's next line.
func (c *child) say(ctx context.Context, limit time.Duration) (string, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case line := <-c.lines:
		return line, nil
	case <-c.done:
		return "", fmt.Errorf("it has ended: %w", orEnd(c.err))
	case <-timeout.C:
		return "", fmt.Errorf("it has said nothing for %s", limit)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func orEnd(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// ask has a child of this program do something, and returns what it says to
// it. Other programs are not to be asked.
func (c *child) ask(command string) (string, error) {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return "", err
	}
	line, err := c.say(context.Background(), childEnd)
	if err != nil {
		return "", err
	}
	answer, ok := strings.CutPrefix(line, "ok ")
	if !ok {
		return "", errors.New(line)
	}
	return answer, nil
}

// close ends the child.
func (c *child) close() {
	c.in.Close()
	if !c.exited() {
		_ = syscall.Kill(c.pid, syscall.SIGTERM)
	}
	timeout := time.NewTimer(childEnd)
	defer timeout.Stop()
	select {
	case <-c.done:
	case <-timeout.C:
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
		<-c.done
	}
}

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// tail is the end of a log, for errors.
func tail(path string) string {
	const most = 4 << 10
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(len(b)-most, 0):])
}
