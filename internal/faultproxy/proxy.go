package faultproxy

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to one target. Its methods may be called from any
// goroutine. All faults are off at first.
type Proxy struct {
	listener net.Listener
	target   string

	mu       sync.Mutex
	changed  *sync.Cond // broadcast when a fault is switched or a link ends
	closed   bool
	refuse   bool
	hole     bool
	delay    [2]time.Duration // by direction
	links    map[*link]struct{}
	accepted int

	running sync.WaitGroup // accept loop and links
}

// The directions of a connection.
const (
	up   = 0 // from the client to the target
	down = 1 // from the target to the client
)

// New starts a proxy for target ("host:port"), which need not be up yet. It is
// closed when the test ends.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{listener: listener, target: target, links: make(map[*link]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.running.Add(1)
	go p.accept()
	tb.Cleanup(p.Close)
	return p
}

// Addr returns where clients connect to, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port returns the port of Addr.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Cut resets all connections there are, on both sides. What was on its way is
// lost. New connections are welcome.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Refuse makes the proxy reset each new connection at once, or not. Those that
// there are go on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Blackhole makes the proxy pass nothing in either direction, also no end of a
// connection, while all connections stay open and new ones are accepted. What
// arrives meanwhile waits, up to the buffers of TCP, and is passed on when the
// fault is switched off.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = on
	p.changed.Broadcast()
}

// DelayUp adds d to the way of each byte from the clients to the target; 0 ends
// it. Order and throughput stay as they are. What is on its way keeps its old
// delay, and what follows does not overtake it.
func (p *Proxy) DelayUp(d time.Duration) { p.setDelay(up, d) }

// DelayDown does the same on the way from the target to the clients.
func (p *Proxy) DelayDown(d time.Duration) { p.setDelay(down, d) }

func (p *Proxy) setDelay(direction int, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[direction] = d
}

// Count returns how many connections there are.
func (p *Proxy) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted returns how many connections there have ever been, refused ones
// included.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Close ends the proxy and all its connections, and waits for its goroutines.
// A second call does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	defer p.running.Done()
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the client is gone again
			time.Sleep(time.Millisecond)
			continue
		}
		p.begin(conn.(*net.TCPConn))
	}
}

func (p *Proxy) begin(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	if p.refuse || p.closed {
		abort(client)
		return
	}
	l := newLink(p, client)
	p.links[l] = struct{}{}
	p.running.Add(1)
	go l.run()
}

// abort closes with a reset instead of an orderly end.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
