package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// readerVariable makes the test binary a client that reads some messages,
// tells of each on its standard output, and then reads no more.
const readerVariable = "AETHER_E2E_READER"

type readerOrder struct {
	Addr, Token, Workspace, Impl, Spec string
	Read                               int
}

func readerMain() int {
	if err := readerRun(); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		return 1
	}
	return 0
}

func readerRun() error {
	var o readerOrder
	if err := json.Unmarshal([]byte(os.Getenv(readerVariable)), &o); err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+o.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := aetherv1.NewAetherGatewayClient(conn).Connect(context.Background())
	if err != nil {
		return err
	}
	init := agent(o.Workspace, o.Impl, o.Spec).init
	init.Credentials = map[string]string{"bearer_token": o.Token}
	if err := stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Init{Init: init}}); err != nil {
		return err
	}
	for n := 0; n < o.Read; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetMsg() == nil {
			continue
		}
		text, _, _ := strings.Cut(string(m.GetMsg().GetPayload()), " x")
		fmt.Println(text)
		n++
	}
	// Stuck, with its library still taking what fits into its buffers.
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// reader is such a client.
type reader struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
	ended chan struct{}
}

func startReader(t *testing.T, o readerOrder) *reader {
	t.Helper()
	order, err := json.Marshal(o)
	check(t, err)
	self, err := os.Executable()
	check(t, err)
	r := &reader{cmd: exec.Command(self), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), readerVariable+"="+string(order))
	r.cmd.Stderr = os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, writer, err := os.Pipe()
	check(t, err)
	defer writer.Close()
	r.cmd.Stdout = writer
	r.stdin, err = r.cmd.StdinPipe()
	check(t, err)
	r.lines = bufio.NewScanner(stdout)
	started := make(chan error, 1)
	go func() {
		defer close(r.ended)
		runtime.LockOSThread() // Pdeathsig is the thread's
		err := r.cmd.Start()
		started <- err
		if err == nil {
			_ = r.cmd.Wait()
		}
	}()
	check(t, <-started)
	t.Cleanup(func() {
		r.kill()
		stdout.Close()
	})
	return r
}

func (r *reader) kill() {
	select {
	case <-r.ended:
		return
	default:
	}
	_ = syscall.Kill(r.cmd.Process.Pid, syscall.SIGKILL)
	<-r.ended
}

// A client without acknowledgements that is stuck for a minute and then killed
// has not read what lies in buffers on the way to it: all of that comes again
// (delivery rule A).
func testAutoReaderKilled(t *testing.T, g *gateway) {
	const total, read, stuck = 1200, 50, time.Minute
	ws := workspace(t)
	to := agent(ws, "i", "s")
	token, err := createToken(to.flags...)
	check(t, err)
	sender := connect(t, g, user(ws, "w", ws))
	fill := " " + strings.Repeat("x", 10_000)
	sent := numbered("m", 1, total)
	for i := range sent {
		sent[i] += fill
	}
	sender.stored(to.name, sent[:2*read]...)
	r := startReader(t, readerOrder{g.grpc, token, ws, "i", "s", read})
	reported := map[string]bool{}
	for range read {
		if !r.lines.Scan() {
			t.Fatalf("the reader ended early: %v", r.lines.Err())
		}
		reported[r.lines.Text()] = true
	}
	over := time.NewTimer(stuck)
	defer over.Stop()
	sender.stored(to.name, sent[2*read:]...)
	select {
	case <-over.C:
	case <-r.ended:
		t.Fatal("the reader ended by itself")
	}
	r.kill()

	receiver := reconnect(t, g, to, auto)
	sender.stored(to.name, "marker")
	came := map[string]bool{}
	last := 0
	for _, m := range receiver.until("marker") {
		text := strings.TrimSuffix(string(m.GetPayload()), fill)
		_, n, err := parseNumbered(text)
		check(t, err)
		if n <= last {
			t.Errorf("%s came after number %d", text, last)
		}
		last = n
		came[text] = true
	}
	missing := 0
	for _, text := range sent {
		text = strings.TrimSuffix(text, fill)
		if !came[text] && !reported[text] {
			if missing++; missing <= 3 {
				t.Errorf("%s was read by nobody and does not come again", text)
			}
		}
	}
	if missing > 0 {
		t.Errorf("%d messages are lost", missing)
	}
}
