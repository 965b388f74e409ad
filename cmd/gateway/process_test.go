package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a gateway that runs in this one, as main would run it.
type process struct {
	grpc, http string
	signals    chan os.Signal
	stdout     *bufio.Reader
	stderr     *buffer
	exit       chan int
	rest       chan string // what came on standard output after the first line
}

// launch runs a serving command until it is ready. It is ended with the test
// if the test has not done so.
func launch(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	g := begin(t, environ, args...)
	g.await(t)
	return g
}

// begin runs a serving command and waits for nothing.
func begin(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	r, w := io.Pipe()
	g := &process{
		signals: make(chan os.Signal), stderr: &buffer{}, exit: make(chan int, 1), rest: make(chan string, 1), stdout: bufio.NewReader(r),
	}
	go func() {
		code := run(args, &program{stdin: strings.NewReader(""), stdout: w, stderr: g.stderr, environ: environ, signals: g.signals})
		_ = w.Close()
		g.exit <- code
	}()
	return g
}

// await waits for the ready line.
func (g *process) await(t *testing.T) {
	t.Helper()
	line, err := g.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("exit %d before it was ready\n%s", <-g.exit, g.stderr)
	}
	if n, err := fmt.Sscanf(line, "ready grpc=%s http=%s\n", &g.grpc, &g.http); n != 2 {
		t.Fatalf("the first line is %q: %v", line, err)
	}
	go func() {
		rest, _ := io.ReadAll(g.stdout)
		g.rest <- string(rest)
	}()
	t.Cleanup(func() { g.stop(t) })
}

// launchDev runs dev on free ports.
func launchDev(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return launch(t, nil, append([]string{"dev", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)...)
}

// stop ends the process with SIGTERM and checks that it ends well.
func (g *process) stop(t *testing.T) {
	t.Helper()
	if g.exit == nil {
		return
	}
	select {
	case g.signals <- syscall.SIGTERM:
	case code := <-g.exit:
		t.Fatalf("it had ended before: exit %d\n%s", code, g.stderr)
	}
	select {
	case code := <-g.exit:
		if code != 0 {
			t.Errorf("exit %d\n%s", code, g.stderr)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not end\n%s", g.stderr)
	}
	g.exit = nil
	if rest := <-g.rest; rest != "" {
		t.Errorf("more than one line on standard output: %q", rest)
	}
}

// buffer is a bytes.Buffer for several goroutines, which can wait for a text.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wait waits until the text has been written.
func (b *buffer) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		b.mu.Lock()
		found := strings.Contains(b.b.String(), text)
		if b.more == nil {
			b.more = make(chan struct{})
		}
		more := b.more
		b.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%q was not written:\n%s", text, b)
		}
	}
}
