package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// noticed is how long a driver may take to see that a broker hangs.
const noticed = 4 * heartbeat

// publisher stores entries 1 to n as package streams does: few unconfirmed, and
// after a lost producer another one that resends them in order.
type publisher struct {
	d         *Driver
	n         uint64
	confirmed *record[uint64]
}

func (p *publisher) run(ctx context.Context) error {
	const window = 4
	var stored uint64 // all up to here
	for stored < p.n {
		room := make(chan uint64, 2*window)
		opening, cancel := context.WithTimeout(ctx, 5*time.Second)
		producer, err := p.d.OpenProducer(opening, 0, "publisher", func(id uint64) { room <- id })
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue
		}
		next := stored + 1
		for open := true; open && stored < p.n; {
			for open && next <= p.n && next <= stored+window {
				open = producer.Send(next, fmt.Append(nil, next)) == nil
				next++
			}
			select {
			case id := <-room:
				if id <= stored {
					return fmt.Errorf("confirm of %d after %d", id, stored)
				}
				stored = id
				p.confirmed.add(id)
			case <-producer.Done():
				open = false
			case <-ctx.Done():
				open = false
			}
		}
		producer.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// reader reads as a tail does: after a lost consumer on from the next offset.
func read(ctx context.Context, d *Driver, into *record[streams.Entry]) {
	from := streams.First()
	for ctx.Err() == nil {
		opening, cancel := context.WithTimeout(ctx, 5*time.Second)
		c, err := d.OpenConsumer(opening, 0, from, func(e streams.Entry) {
			into.add(e)
			from = streams.From(e.Offset + 1)
		})
		cancel()
		if err != nil {
			continue
		}
		select {
		case <-c.Done():
		case <-ctx.Done():
		}
		c.Close()
	}
}

// flow publishes n entries, reads them, and calls fault after a quarter; its
// argument waits until so many are confirmed and read. Each entry must be stored
// once, in order.
func flow(t *testing.T, d *Driver, n int, fault func(progress func(int))) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	p := &publisher{d: d, n: uint64(n), confirmed: newRecord[uint64]()}
	published := make(chan error, 1)
	go func() { published <- p.run(ctx) }()
	entries := newRecord[streams.Entry]()
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		read(ctx, d, entries)
	}()
	p.confirmed.wait(t, n/4)
	fault(func(m int) {
		t.Helper()
		p.confirmed.wait(t, m)
		entries.wait(t, m)
	})
	if err := <-published; err != nil {
		t.Fatalf("publish: %v", err)
	}
	got := entries.wait(t, n)
	cancel()
	<-reading
	for i, s := range data(got) {
		if s != fmt.Sprint(i+1) {
			t.Fatalf("entry %d holds %s", i, s)
		}
	}
}

func TestBrokerFaults(t *testing.T) {
	t.Parallel()
	b := testservices.NewBroker(t)
	d := openDriver(t, Options{URLs: []string{b.URL()}, Streams: newStreams(1)})
	flow(t, d, 4000, func(progress func(int)) {
		p, _ := openProducer(t, d, "idle")
		c, _ := openConsumer(t, d, streams.Next())
		b.Stop()
		hanging(t, d, p, c)
		b.Cont()
		progress(2000)
		p, _ = openProducer(t, d, "idle")
		c, _ = openConsumer(t, d, streams.Next())
		b.Kill()
		waitClosed(t, p.Done(), 2*time.Second, "producer's done")
		waitClosed(t, c.Done(), 2*time.Second, "consumer's done")
		b.Start()
	})
}

// hanging checks what must not hang although the broker does.
func hanging(t *testing.T, d *Driver, p streams.Producer, c streams.Consumer) {
	t.Helper()
	waitClosed(t, p.Done(), noticed, "producer's done")
	waitClosed(t, c.Done(), noticed, "consumer's done")
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := d.Ping(ctx); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping: %v", err)
	}
	if _, err := d.OpenProducer(ctx, 0, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open producer: %v", err)
	}
	if _, err := d.OpenConsumer(ctx, 0, streams.From(1), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open consumer: %v", err)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("calls with 500 ms took %v", d)
	}
}

func throughProxy(t *testing.T) (*faultproxy.Proxy, *Driver) {
	t.Helper()
	b := testservices.RabbitMQ(t)
	proxy := faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", b.StreamPort()))
	url := fmt.Sprintf("rabbitmq-stream://guest:guest@%s/%%2f", proxy.Addr())
	return proxy, openDriver(t, Options{URLs: []string{url}, Streams: newStreams(1)})
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	flow(t, d, 4000, func(progress func(int)) {
		p, _ := openProducer(t, d, "idle")
		c, _ := openConsumer(t, d, streams.Next())
		proxy.Blackhole(true)
		hanging(t, d, p, c)
		proxy.Blackhole(false)
	})
}

func TestCutConnections(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	flow(t, d, 4000, func(progress func(int)) {
		for i := range 3 {
			// Not while they connect: see doc.go.
			progress(1000 + 500*i)
			p, _ := openProducer(t, d, "idle")
			c, _ := openConsumer(t, d, streams.Next())
			proxy.Cut()
			waitClosed(t, p.Done(), 2*time.Second, "producer's done")
			waitClosed(t, c.Done(), 2*time.Second, "consumer's done")
		}
	})
}

// The login is drawn out by a delay and cut at various moments: at some of them
// the library waits for ever. Callers get out all the same, and the driver works
// when the broker does.
func TestCutDuringLogin(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	for i := range 6 {
		proxy.DelayDown(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
		before, opened := proxy.Accepted(), make(chan error, 1)
		go func() {
			_, err := d.OpenProducer(ctx, 0, "a", func(uint64) {})
			opened <- err
		}()
		cut := time.NewTimer(time.Duration(40+60*i) * time.Millisecond)
		<-cut.C
		if proxy.Accepted() == before {
			t.Fatal("nothing has connected")
		}
		proxy.Cut()
		if err := <-opened; err == nil {
			t.Error("opened in spite of the cut")
		}
		cancel()
	}
	proxy.DelayDown(0)
	store(t, d, 3)
	settle(t)
}

// A consumer whose opening took longer than its context is closed when it comes,
// and hands nothing on.
func TestLateConsumerIsClosed(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	store(t, d, 10)
	proxy.DelayDown(60 * time.Millisecond)
	handled := newRecord[streams.Entry]()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := d.OpenConsumer(ctx, 0, streams.First(), handled.add); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("open: %v", err)
	}
	settle(t)
	d.Close()
	if n := len(handled.get()); n > 0 {
		t.Errorf("%d entries were handed on", n)
	}
	deadline := time.After(limit)
	for proxy.Count() > 0 {
		select {
		case <-deadline:
			t.Fatalf("%d connections are left", proxy.Count())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The client library's heartbeat hangs in its own write when the peer has
// stopped reading and the connection is full: then only the driver's own watch
// over confirms sees it. And a Close must return although nothing can be sent.
func TestFullConnection(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	p, _ := openProducer(t, d, "a")
	closing, _ := openProducer(t, d, "b")
	proxy.Blackhole(true)
	large := make([]byte, MaxEntry)
	for _, producer := range []streams.Producer{p, closing} {
		for id := uint64(1); id <= 40; id++ {
			if err := producer.Send(id, large); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	closing.Close()
	if d := time.Since(began); d > time.Second {
		t.Errorf("close took %v", d)
	}
	waitClosed(t, p.Done(), stallLimit+2*time.Second, "done")
	if err := p.Send(41, large); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("send: %v", err)
	}
	began = time.Now()
	d.Close()
	if d := time.Since(began); d > driverCloseLimit+2*time.Second {
		t.Errorf("driver's close took %v", d)
	}
	if _, err := d.OpenProducer(testContext(t), 0, "c", nil); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("open on a closed driver: %v", err)
	}
	proxy.Close() // ends what was left behind
}

// A sender that waits for room is woken by the end of its producer.
func TestSendWakesWhenTheProducerEnds(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	p, _ := openProducer(t, d, "a")
	proxy.Blackhole(true)
	failed := make(chan error, 1)
	go func() {
		for id := uint64(1); ; id++ {
			if err := p.Send(id, []byte("x")); err != nil {
				failed <- err
				return
			}
		}
	}()
	if err := <-failed; !errors.Is(err, streams.ErrClosed) {
		t.Error(err)
	}
	proxy.Blackhole(false)
}

// After many reconnects there are no more connections and goroutines than after
// none. Not parallel: it counts the goroutines of the process.
func TestReconnectsLeaveNothing(t *testing.T) {
	proxy, d := throughProxy(t)
	store(t, d, 10)
	settled := func() int {
		deadline := time.Now().Add(limit)
		least := runtime.NumGoroutine()
		for proxy.Count() > 0 && time.Now().Before(deadline) {
			runtime.Gosched()
		}
		if n := proxy.Count(); n > 0 {
			t.Errorf("%d connections", n)
		}
		return min(least, runtime.NumGoroutine())
	}
	before := settled()
	for i := range 20 {
		p, _ := openProducer(t, d, "a")
		c, entries := openConsumer(t, d, streams.First())
		entries.wait(t, 10)
		// The proxy may still be ending those of the round before.
		for end := time.Now().Add(limit); proxy.Count() > 4 && time.Now().Before(end); {
			runtime.Gosched()
		}
		if n := proxy.Count(); n > 4 {
			t.Errorf("%d connections for a producer and a consumer", n)
		}
		if i%2 == 0 {
			proxy.Cut()
		}
		p.Close()
		c.Close()
	}
	deadline := time.Now().Add(limit)
	after := settled()
	for after > before && time.Now().Before(deadline) {
		runtime.Gosched()
		after = settled()
	}
	if after > before {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, there were %d\n%s", after, before, stacks[:runtime.Stack(stacks, true)])
	}
}
