package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// childEnv makes the test binary a gateway of its own that holds one lease.
const childEnv = "PRESENCE_TEST_CHILD"

type teller struct{ presencetest.Handler }

func (*teller) Lost(lease presence.Lease, why error) {
	fmt.Println("told", lease.SessionID, errors.Is(why, presence.ErrFenced), errors.Is(why, presence.ErrSuperseded))
}

// child answers each line of its input with whether its lease is lost.
func child(url string) int {
	p, err := New(Options{URL: url, Instance: "child"})
	if err == nil {
		err = p.Start(context.Background(), &teller{})
	}
	var lease presence.Lease
	for err == nil && lease.Epoch == 0 {
		lease, err = p.Acquire(context.Background(), "one", "agent::x")
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("held")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(in.Text(), lease.Lost())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.Close(ctx) != nil {
		return 1
	}
	return 0
}

// realtime returns a gateway with nothing injected.
func (w *world) realtime(name string) (*Presence, *presencetest.Handler) {
	w.t.Helper()
	p, err := New(Options{URL: w.server.URL(), Instance: name})
	if err != nil {
		w.t.Fatal(err)
	}
	h := &presencetest.Handler{}
	if err := p.Start(w.t.Context(), h); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
	})
	return p, h
}

// skipGrace lets a new Redis hand out leases at once.
func (w *world) skipGrace() {
	w.t.Helper()
	if err := w.raw.HSet(w.t.Context(), "{aether}:0:inc", "until", 0).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// TestL2ProcessStopped: a real process is stopped past the TTL. Another gateway
// gets its lease in time, and the process knows that it has lost it before it
// does anything else; peer fault 11.
func TestL2ProcessStopped(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b, _ := w.realtime("b")
	w.skipGrace()

	// The child dies with the thread that started it, which has to be this
	// test's own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+w.server.URL())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func() string {
		if !lines.Scan() {
			t.Fatalf("the process has ended: %v\n%s", cmd.Wait(), complaints.String())
		}
		return lines.Text()
	}
	if got := next(); got != "held" {
		t.Fatalf("got %q", got)
	}
	io.WriteString(in, "a\n")
	if got := next(); got != "a false" {
		t.Fatalf("got %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	presencetest.Eventually(t, "the lease is free", func() bool {
		_, err := b.Acquire(t.Context(), newID(), "agent::x")
		if err != nil && !errors.Is(err, presence.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	if took := time.Since(stopped); took < 3900*time.Millisecond || took > 7*time.Second {
		t.Errorf("the lease was free after %v", took)
	}
	io.WriteString(in, "b\nc\n") // waits for it
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	told := false
	for answers := 0; answers < 2 || !told; {
		switch line := next(); {
		case strings.HasPrefix(line, "told one"):
			told = true
		case line == "b true", line == "c true":
			answers++
		default:
			t.Fatalf("got %q", line)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestRealTime: two gateways with nothing injected. The first is killed; its
// session comes back at once with its id, others after the TTL.
func TestRealTime(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, ha := w.realtime("a")
	b, hb := w.realtime("b")
	w.skipGrace()
	presencetest.Eventually(t, "both are ready", func() bool {
		_, ca := a.Held("agent::x")
		_, cb := b.Held("agent::x")
		return ca && cb
	})
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	if err := a.Mark(x, []byte("mark")); err != nil {
		t.Fatal(err)
	}
	ha.OnYield("one", func(context.Context) ([]byte, bool) { return []byte("exact"), true })
	began := time.Now()
	g := presencetest.Take(t, b, presence.Claim{SessionID: "two", Names: []string{"agent::x"}, Resume: "one"})
	took := time.Since(began)
	t.Logf("handed over after %v", took)
	if !g.Exact || took > time.Second {
		t.Errorf("handed over after %v: %+v", took, g)
	}
	presencetest.Take(t, b, claim("other", "agent::y"))
	b.Confirm(g.Lease)
	presencetest.Eventually(t, "one counts no longer", func() bool {
		_, err := a.Find(t.Context(), "one")
		return errors.Is(err, presence.ErrNotFound)
	})
	if err := b.Mark(g.Lease, []byte("renewed")); err != nil {
		t.Fatal(err)
	}
	beats := b.Stats().Beats
	presencetest.Eventually(t, "a renewal", func() bool { return b.Stats().Beats > beats+1 })

	// b vanishes: its goroutines and connections end, and nothing is said.
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
	killed := time.Now()
	g = presencetest.Take(t, a, presence.Claim{SessionID: "three", Names: []string{"agent::x"}, Resume: "two"})
	took = time.Since(killed)
	t.Logf("taken over from a dead gateway after %v", took)
	if took > time.Second || g.Exact || string(g.Watermark) != "renewed" {
		t.Errorf("taken over after %v: %+v, %q", took, g, g.Watermark)
	}
	presencetest.Eventually(t, "the other name is free", func() bool {
		_, err := a.Acquire(t.Context(), newID(), "agent::y")
		return err == nil
	})
	if took = time.Since(killed); took < 3900*time.Millisecond || took > 7*time.Second {
		t.Errorf("free after %v", took)
	}
	if err := hb.LostSession("two"); err != nil {
		t.Errorf("told after its end: %v", err)
	}
	b.client.Close()
	b.pulse.Close()
}
