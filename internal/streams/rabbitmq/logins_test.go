package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// After a restart of the broker every stream's producer and tail open anew, all
// at once. It took nine logins for each stream: a tail that went on at an offset
// looked for the end of its log on connections of its own.
func TestLoginsAfterARestart(t *testing.T) {
	t.Parallel()
	const partitions = 4
	proxy := faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", testservices.RabbitMQ(t).StreamPort()))
	d := openDriver(t, Options{
		URLs:    []string{fmt.Sprintf("rabbitmq-stream://guest:guest@%s/", proxy.Addr())},
		Streams: newStreams(partitions),
	})
	// reopen opens all as package streams does, each from its last entry.
	reopen := func(from streams.Start) (entries []*record[streams.Entry]) {
		var opening sync.WaitGroup
		for i := range partitions {
			got := newRecord[streams.Entry]()
			entries = append(entries, got)
			opening.Go(func() {
				confirms := newRecord[uint64]()
				p, err := d.OpenProducer(testContext(t), i, "a", confirms.add)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { p.Close() })
				if p.LastID() > 0 {
					return
				}
				for id := range uint64(3) {
					send(t, p, id+1, "x")
				}
				confirms.wait(t, 3)
			})
			opening.Go(func() {
				c, err := d.OpenConsumer(testContext(t), i, from, got.add)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { c.Close() })
			})
		}
		opening.Wait()
		return entries
	}
	for _, got := range reopen(streams.First()) {
		got.wait(t, 3)
	}
	before := proxy.Accepted()
	for _, p := range d.parts {
		p.lost() // as when the broker is gone; its connections would be no logins
	}
	for _, got := range reopen(streams.From(2)) {
		if offset := got.wait(t, 1)[0].Offset; offset != 2 {
			t.Errorf("begins at %d, want 2", offset)
		}
	}
	if n := proxy.Accepted() - before; n > 6*partitions {
		t.Errorf("%d logins for the producers and tails of %d streams, at most %d", n, partitions, 6*partitions)
	}
}

// All openings of a gateway at once were as slow, each, as all of them together:
// on a busy broker none was in time. What hangs counts until its caller leaves.
func TestFewLoginsAtATime(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	deadline := time.After(limit)
	for proxy.Count() > 0 { // of Open
		select {
		case <-deadline:
			t.Fatal("connections are left")
		case <-time.After(time.Millisecond):
		}
	}
	proxy.Blackhole(true)
	before := proxy.Accepted()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var opening sync.WaitGroup
	for range 3 * maxLogins {
		opening.Go(func() {
			if _, err := d.OpenConsumer(ctx, 0, streams.First(), func(streams.Entry) {}); !errors.Is(err, ErrUnreachable) {
				t.Errorf("open: %v", err)
			}
		})
	}
	opening.Wait()
	if n := proxy.Accepted() - before; n != maxLogins {
		t.Errorf("%d connections, want %d", n, maxLogins)
	}
	proxy.Cut() // before anything gets through: none has come further than its first question
	settle(t)
	proxy.Blackhole(false)
	store(t, d, 1)
}

// swallowing returns an address where connecting neither succeeds nor fails, as
// at a machine that is off: its listener has all connections that it takes.
func swallowing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 10 {
		conn, err := net.DialTimeout("tcp4", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the listener takes everything")
	return ""
}

// A node that was switched off was asked first for ever, because no answer came
// before the caller's time was over: the others were never tried.
func TestNodeThatIsOff(t *testing.T) {
	t.Parallel()
	off := swallowing(t)
	d, err := newDriver(Options{
		URLs:    []string{"rabbitmq-stream://guest:guest@" + off + "/", testservices.RabbitMQ(t).URL()},
		Streams: newStreams(1), Logger: quietLog(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	for end := time.Now().Add(limit); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		err := d.Ping(ctx)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrUnreachable) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
