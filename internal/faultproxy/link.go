package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// link is one connection through the proxy.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // done: the link was reset
	cancel context.CancelFunc

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	l := &link{proxy: p, client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// reset ends the link from outside; run does the rest. The proxy's mutex is
// held.
func (l *link) reset() {
	l.cancel()
	abort(l.client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		abort(l.server)
	}
	l.proxy.changed.Broadcast() // wakes who waits for the end of a black hole
}

// run dials the target and carries bytes both ways until both ways have ended.
func (l *link) run() {
	defer l.proxy.running.Done()
	defer func() {
		l.proxy.mu.Lock()
		defer l.proxy.mu.Unlock()
		l.reset()
		delete(l.proxy.links, l)
	}()
	if !l.passable() {
		return
	}
	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		return
	}
	server := conn.(*net.TCPConn)
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	if l.ctx.Err() != nil {
		abort(server) // reset came while we dialled and did not see it
		return
	}
	ways := sync.WaitGroup{}
	ways.Go(func() { l.carry(up, server, l.client) })
	ways.Go(func() { l.carry(down, l.client, server) })
	ways.Wait()
}

// passable waits while the proxy is a black hole. It returns false if the link
// was reset.
func (l *link) passable() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	for l.proxy.hole && l.ctx.Err() == nil {
		l.proxy.changed.Wait()
	}
	return l.ctx.Err() == nil
}

// parcel is what one read returned, and when it is due. Without bytes it is the
// end of that direction.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry moves bytes in one direction through a delay line: a reader stamps what
// it takes, a writer waits until each parcel is due. So parcels wait side by
// side, and latency costs no throughput.
func (l *link) carry(direction int, to, from *net.TCPConn) {
	// Full: the reader waits, and TCP holds the sender back. 4096 parcels of
	// at most 32 KiB are what a fast sender puts into a second.
	line := make(chan parcel, 4096)
	reader := sync.WaitGroup{}
	reader.Go(func() {
		defer close(line)
		l.read(direction, from, line)
	})
	ok := l.write(to, line)
	if !ok {
		l.proxy.mu.Lock()
		l.reset()
		l.proxy.mu.Unlock()
	}
	for range line { // the reader may be waiting for room
		continue
	}
	reader.Wait()
}

func (l *link) read(direction int, from io.Reader, line chan<- parcel) {
	buf := make([]byte, 32<<10)
	for l.passable() { // a black hole takes no more than what it was reading
		n, err := from.Read(buf)
		l.proxy.mu.Lock()
		due := time.Now().Add(l.proxy.delay[direction])
		l.proxy.mu.Unlock()
		if n > 0 {
			line <- parcel{bytes: append([]byte(nil), buf[:n]...), due: due}
		}
		if err == io.EOF {
			line <- parcel{due: due}
			return
		}
		if err != nil {
			l.proxy.mu.Lock()
			l.reset() // a reset on one side is one on the other
			l.proxy.mu.Unlock()
			return
		}
	}
}

// write delivers parcels when they are due. It returns false if it could not.
func (l *link) write(to *net.TCPConn, line <-chan parcel) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range line {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-l.ctx.Done():
				return false
			}
		}
		if !l.passable() {
			return false
		}
		if p.bytes == nil {
			return to.CloseWrite() == nil
		}
		if _, err := to.Write(p.bytes); err != nil {
			return false
		}
	}
	return true
}
