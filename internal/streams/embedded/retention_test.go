package embedded_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
)

// handClock is moved by hand. Its timers fire when fire is called.
type handClock struct {
	mu    sync.Mutex
	now   time.Time
	timer chan time.Time
}

func newHandClock() *handClock {
	return &handClock{now: time.UnixMilli(1_700_000_000_000), timer: make(chan time.Time)}
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *handClock) NewTimer(time.Duration) streams.Timer { return handTimer{c.timer} }

type handTimer struct{ c chan time.Time }

func (t handTimer) C() <-chan time.Time { return t.c }
func (handTimer) Reset(time.Duration)   {}
func (handTimer) Stop()                 {}

func trim(t *testing.T, b *bench) {
	t.Helper()
	if err := b.d.Trim(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func wantFirst(t *testing.T, b *bench, offset uint64) {
	t.Helper()
	if e, err := b.d.First(context.Background(), 0); err != nil || e.Offset != offset {
		t.Errorf("the first entry is %d, %v, want %d", e.Offset, err, offset)
	}
}

func TestTrimByAge(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	o := embedded.Options{MaxAge: time.Hour, Clock: clock}
	b := setup(t, o)
	p := b.producer(0, "p")
	p.append(1, "a", "b")
	clock.advance(30 * time.Minute)
	p.append(3, "c")
	clock.advance(31 * time.Minute)
	trim(t, b)
	first, _ := b.consumer(0, streams.First())
	expect(t, first, 2, "c")
	below, _ := b.consumer(0, streams.From(1))
	expect(t, below, 2, "c")
	wantFirst(t, b, 2)

	// All gone: offsets go on, also after a restart.
	clock.advance(time.Hour)
	trim(t, b)
	b.reopen(o)
	wantFirst(t, b, 3)
	empty, _ := b.consumer(0, streams.First())
	next, _ := b.consumer(0, streams.Next())
	p = b.producer(0, "p")
	p.append(4, "d")
	expect(t, empty, 3, "d")
	expect(t, next, 3, "d")
}

func TestTrimByBytes(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{MaxBytes: 10_000})
	p := b.producer(0, "p")
	other := b.producer(1, "p")
	other.append(1, strings.Repeat("o", 6_000)) // each partition counts for itself
	for id := range uint64(300) {               // more than one job deletes
		p.append(id+1, strings.Repeat("x", 1000))
	}
	trim(t, b)
	first, c := b.consumer(0, streams.First())
	if e := <-first; e.Offset != 290 {
		t.Errorf("first is %d", e.Offset)
	}
	_ = c.Close()
	kept, _ := b.consumer(1, streams.First())
	if e := <-kept; e.Offset != 0 {
		t.Errorf("other partition: first is %d", e.Offset)
	}
	// One that is larger than the bound stays until there is a newer one.
	p.append(301, strings.Repeat("y", 20_000))
	trim(t, b)
	last, _ := b.consumer(0, streams.First())
	if e := <-last; e.Offset != 300 {
		t.Errorf("first is %d", e.Offset)
	}
	p.append(302, "z")
	trim(t, b)
	after, _ := b.consumer(0, streams.First())
	expect(t, after, 301, "z")
}

// A consumer that is far behind goes on with what is left.
func TestTrimUnderAConsumer(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{MaxBytes: 5_000_000})
	p := b.producer(0, "p")
	const n = 1000
	entered, release := make(chan struct{}), make(chan struct{})
	offsets := make(chan uint64, n)
	var once sync.Once
	for id := range uint64(n) {
		p.append(id+1, strings.Repeat("x", 10_000))
		if id == 0 {
			_, err := b.d.OpenConsumer(context.Background(), 0, streams.First(), func(e streams.Entry) {
				once.Do(func() { close(entered); <-release })
				offsets <- e.Offset
			})
			if err != nil {
				t.Fatal(err)
			}
			<-entered
		}
	}
	trim(t, b)
	close(release)
	last, count := <-offsets, 1
	for last != n-1 {
		next := <-offsets
		if next <= last {
			t.Fatalf("%d after %d", next, last)
		}
		last = next
		count++
	}
	if count < 500 || count > 600 {
		t.Errorf("%d entries were handed on", count)
	}
}

// Names are forgotten with their last entry, but not while they are open.
func TestNamesExpire(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	b := setup(t, embedded.Options{MaxAge: time.Hour, Clock: clock})
	old, open, recent := b.producer(0, "old"), b.producer(0, "open"), b.producer(0, "recent")
	old.append(7, "a")
	open.append(8, "b")
	_, _ = old.Close(), recent.Close()
	clock.advance(2 * time.Hour)
	recent = b.producer(0, "recent")
	recent.append(9, "c")
	_ = recent.Close()
	trim(t, b)
	for name, want := range map[string]uint64{"old": 0, "open": 8, "recent": 9} {
		if id := b.producer(0, name).LastID(); id != want {
			t.Errorf("%s: LastID = %d, want %d", name, id, want)
		}
	}
}

func TestTrimOnTime(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	b := setup(t, embedded.Options{MaxAge: time.Hour, Clock: clock})
	p := b.producer(0, "p")
	p.append(1, "a")
	clock.advance(2 * time.Hour)
	p.append(2, "b")
	// The second firing is taken when the first trim is done.
	clock.timer <- clock.Now()
	clock.timer <- clock.Now()
	first, _ := b.consumer(0, streams.First())
	expect(t, first, 1, "b")
}
