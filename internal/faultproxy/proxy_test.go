package faultproxy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that would hang; short is how long nothing must happen.
const (
	patience = 10 * time.Second
	short    = 50 * time.Millisecond
)

// target is a server whose connections the test gets one by one.
type target struct {
	listener net.Listener
	conns    chan *net.TCPConn
}

func newTarget(t *testing.T) *target {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &target{listener: l, conns: make(chan *net.TCPConn, 16)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns <- c.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return s
}

// pair opens a connection through the proxy and returns both its ends.
func pair(t *testing.T, p *Proxy, s *target) (client, server *net.TCPConn) {
	t.Helper()
	client = connect(t, p)
	select {
	case server = <-s.conns:
	case <-time.After(patience):
		t.Fatal("the target got no connection")
	}
	t.Cleanup(func() { server.Close() })
	if err := server.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func connect(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp4", p.Addr(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// pass sends text from one end and expects it at the other.
func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	expect(t, to, text)
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

// expectSilence expects that nothing arrives for a short while, no end either.
func expectSilence(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(short)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v; want silence", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
}

func expectReset(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v; want a reset", err)
	}
}

// expectRefusal expects a new connection to be reset, be it while it is made.
func expectRefusal(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.DialTimeout("tcp4", p.Addr(), patience)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	expectReset(t, c)
}

// awaitCount waits until the proxy has seen the connections that were made: the
// kernel accepts them before.
func awaitCount(t *testing.T, p *Proxy, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for p.Count() != n {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d connections, want %d", p.Count(), n)
		}
	}
}

func TestPassesBothWaysAndHalfCloses(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, server := pair(t, p, s)
	pass(t, client, server, "ping")
	pass(t, server, client, "pong")
	if p.Count() != 1 || p.Accepted() != 1 {
		t.Errorf("count %d, accepted %d; want 1, 1", p.Count(), p.Accepted())
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("server read: %v; want EOF", err)
	}
	pass(t, server, client, "still")
	server.Close()
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("client read: %v; want EOF", err)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, server := pair(t, p, s)
	pass(t, client, server, "ping")
	p.Cut()
	expectReset(t, client)
	expectReset(t, server)
	client, server = pair(t, p, s)
	pass(t, client, server, "again")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, server := pair(t, p, s)
	p.Refuse(true)
	expectRefusal(t, p)
	pass(t, client, server, "goes on")
	p.Refuse(false)
	client, server = pair(t, p, s)
	pass(t, client, server, "again")
	if p.Accepted() != 3 {
		t.Errorf("accepted %d, want 3", p.Accepted())
	}
}

func TestBlackhole(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, server := pair(t, p, s)
	p.Blackhole(true)
	fresh := connect(t, p)
	for _, c := range []*net.TCPConn{client, fresh} {
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.Write([]byte("pong")); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	expectSilence(t, server)
	expectSilence(t, client)
	select {
	case <-s.conns:
		t.Fatal("the target got a connection through a black hole")
	default:
	}
	p.Blackhole(false)
	expect(t, server, "ping")
	expect(t, client, "pong")
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("server read: %v; want EOF", err)
	}
	select {
	case late := <-s.conns:
		defer late.Close()
		expect(t, late, "ping")
	case <-time.After(patience):
		t.Fatal("the connection made meanwhile was lost")
	}
}

// A black hole must hold a sender back, as a network does, instead of taking
// all that it has.
func TestBlackholeFills(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, _ := pair(t, p, s)
	p.Blackhole(true)
	if err := client.SetWriteDeadline(time.Now().Add(10 * short)); err != nil {
		t.Fatal(err)
	}
	n, err := client.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("wrote %d bytes, %v; want a timeout", n, err)
	}
}

func TestBlackholeCutAndClose(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, server := pair(t, p, s)
	p.Blackhole(true)
	waiting := connect(t, p)
	awaitCount(t, p, 2)
	p.Cut()
	expectReset(t, client)
	expectReset(t, server)
	expectReset(t, waiting)
	connect(t, p) // is there when the test ends: Close must not hang
}

func TestDelay(t *testing.T) {
	t.Parallel()
	const d = 100 * time.Millisecond
	for name, set := range map[string]func(*Proxy, time.Duration){
		"up":   (*Proxy).DelayUp,
		"down": (*Proxy).DelayDown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTarget(t)
			p := New(t, s.listener.Addr().String())
			client, server := pair(t, p, s)
			from, to := client, server
			if name == "down" {
				from, to = server, client
			}
			set(p, d)
			began := time.Now()
			pass(t, from, to, "late")
			if took := time.Since(began); took < d {
				t.Errorf("took %v, want at least %v", took, d)
			}
			pass(t, to, from, "the other way is not delayed")

			// Many parcels wait side by side: a sleep for each would take
			// 16 MiB / 32 KiB × 100 ms = 51 s.
			sent := make([]byte, 16<<20)
			_, _ = rand.Read(sent)
			began = time.Now()
			var writing sync.WaitGroup
			writing.Go(func() {
				if _, err := from.Write(sent); err != nil {
					t.Error(err)
				}
			})
			got := make([]byte, len(sent))
			_, err := io.ReadFull(to, got)
			writing.Wait()
			if err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("received other bytes than were sent (%v)", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("16 MiB took %v: the delay costs throughput", took)
			}

			// What follows a change does not overtake what is on its way.
			if _, err := from.Write([]byte("first")); err != nil {
				t.Fatal(err)
			}
			set(p, 0)
			if _, err := from.Write([]byte("second")); err != nil {
				t.Fatal(err)
			}
			expect(t, to, "firstsecond")
		})
	}
}

func TestTargetDown(t *testing.T) {
	t.Parallel()
	expectRefusal(t, New(t, "127.0.0.1:1"))
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	s := newTarget(t)
	p := New(t, s.listener.Addr().String())
	client, _ := pair(t, p, s)
	p.Close()
	p.Close()
	expectReset(t, client)
	if p.Count() != 0 {
		t.Errorf("%d connections after Close", p.Count())
	}
}
