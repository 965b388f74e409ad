package streams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// tailFixture is a tail on a log in memory whose calls are noted.
type tailFixture struct {
	*streams.Tail
	t        *testing.T
	m        *streamstest.Memory
	clock    *streamstest.Clock
	producer streams.Producer
	id       uint64

	opens atomic.Int64

	mu     sync.Mutex
	events []string
	block  chan struct{} // Handle waits for it
}

func setupTail(t *testing.T, start streams.Start, wrap func(streams.Driver) streams.Driver) *tailFixture {
	t.Helper()
	f := &tailFixture{t: t, m: streamstest.NewMemory(1), clock: streamstest.NewClock()}
	f.reproduce()
	d := f.m.Driver()
	if wrap != nil {
		d = wrap(d)
	}
	d = &counting{d, &f.opens}
	f.Tail = streams.NewTail(streams.TailOptions{
		Driver: d, Start: start, Clock: f.clock,
		Up:   func() { f.note("up") },
		Down: func(err error) { f.note(fmt.Sprintf("down %v", err)) },
		Handle: func(e streams.Entry) {
			list, _, _ := decode(e.Data)
			f.note(list[0])
			f.mu.Lock()
			block := f.block
			f.mu.Unlock()
			if block != nil {
				<-block
				f.note("handled")
			}
		},
	})
	t.Cleanup(f.Close)
	return f
}

func (f *tailFixture) note(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

func (f *tailFixture) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// check waits until so many events are noted, since the last check, and
// compares them.
func (f *tailFixture) check(want ...string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprint(want), func() bool { return len(f.all()) >= len(want) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.events, want) {
		f.t.Errorf("events %q, want %q", f.events, want)
	}
	f.events = nil
}

func (f *tailFixture) reproduce() {
	f.t.Helper()
	p, err := f.m.Driver().OpenProducer(context.Background(), 0, "feed", func(uint64) {})
	if err != nil {
		f.t.Fatal(err)
	}
	f.producer = p
	f.t.Cleanup(func() { _ = p.Close() })
}

func (f *tailFixture) store(text string) {
	f.t.Helper()
	n := len(f.m.Entries(0))
	f.id++
	if err := f.producer.Send(f.id, encode(text)); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, text+" to be stored", func() bool { return len(f.m.Entries(0)) == n+1 })
}

// pause waits out the pause before the tail opens again.
func (f *tailFixture) pause() {
	f.t.Helper()
	before := f.opens.Load()
	f.clock.AdvanceUntil(f.t, longestPause, "the tail to open again", func() bool { return f.opens.Load() > before })
}

// counting counts the attempts to open a consumer.
type counting struct {
	streams.Driver
	opens *atomic.Int64
}

func (c *counting) OpenConsumer(ctx context.Context, partition int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	c.opens.Add(1)
	return c.Driver.OpenConsumer(ctx, partition, from, handle)
}

func (f *tailFixture) drop() {
	f.t.Helper()
	f.m.Drop()
	f.reproduce()
}

const (
	downLost  = "down streams: closed"
	downReset = "down streams: connection was reset"
	downStop  = "down streams: stopped"
)

func TestTailReadsOnOverReconnects(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.Next(), nil)
	f.check("up")
	f.store("1")
	f.store("2")
	f.check("0:1", "0:2")
	f.drop()
	f.check(downLost)
	f.store("3")
	f.pause()
	f.check("up", "0:3")
	f.Reset()
	f.check(downReset)
	f.store("4")
	f.pause()
	f.check("up", "0:4")
	f.store("5")
	f.check("0:5")
	f.Close()
	f.check(downStop)
	f.store("6")
	f.Close()
	if got := f.all(); len(got) > 0 {
		t.Errorf("after Close comes %q", got)
	}
}

// TestTailStartsAgain: while nothing was handled the start is the given one.
func TestTailStartsAgain(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.Next(), nil)
	f.check("up")
	f.drop()
	f.check(downLost)
	f.store("missed")
	f.pause()
	f.check("up")
	f.store("1")
	f.check("0:1")
	f.drop()
	f.check(downLost)
	f.store("2")
	f.pause()
	f.check("up", "0:2")
}

func TestTailKeepsTrying(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.First(), nil)
	f.check("up")
	f.store("1")
	f.check("0:1")
	f.m.Refuse(true)
	f.m.Drop()
	f.check(downLost)
	for range 20 {
		f.pause()
	}
	f.m.Refuse(false)
	f.reproduce()
	f.store("2")
	f.clock.AdvanceUntil(t, longestPause, "the tail to read on", func() bool { return len(f.all()) >= 2 })
	f.check("up", "0:2")
}

// TestTailResetWhileDown: a reset that was meant for a lost connection does
// not hit the next one.
func TestTailResetWhileDown(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.First(), nil)
	f.check("up")
	f.drop()
	f.check(downLost)
	f.Reset()
	f.pause()
	f.store("1")
	f.check("up", "0:1")
	f.store("2")
	f.check("0:2")
}

func TestTailClosesWhileHandling(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.First(), nil)
	f.check("up")
	release := make(chan struct{})
	f.mu.Lock()
	f.block = release
	f.mu.Unlock()
	f.store("1")
	f.store("2")
	f.check("0:1")
	closed := make(chan struct{})
	go func() {
		f.Close()
		f.note("closed")
		close(closed)
	}()
	close(release)
	<-closed
	// The second entry may have been handed on before Close was called.
	got := f.all()
	if got[0] != "handled" || got[len(got)-1] != "closed" || got[len(got)-2] != downStop {
		t.Errorf("events %q", got)
	}
}

// TestTailLeavesHungDriverBehind: what a consumer still hands over that was
// given up is dropped, and read again by the next one.
func TestTailLeavesHungDriverBehind(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.First(), nil)
	f.check("up")
	f.store("1")
	f.check("0:1")
	f.m.Hang(true)
	f.Reset()
	f.check(downReset)
	opens := f.opens.Load() // closing hangs, then opening
	f.clock.AdvanceUntil(t, time.Minute, "two more attempts", func() bool { return f.opens.Load() == opens+2 })
	f.m.Hang(false)
	f.store("2")
	f.clock.AdvanceUntil(t, time.Minute, "the tail to read on", func() bool { return len(f.all()) >= 2 })
	f.check("up", "0:2")
}

func TestTailClosesOnHungDriver(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.First(), nil)
	f.check("up")
	f.m.Hang(true)
	defer f.m.Hang(false)
	closed := make(chan struct{})
	go func() {
		f.Close()
		close(closed)
	}()
	f.clock.AdvanceUntil(t, time.Second, "Close", func() bool {
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
	f.check(downStop)
}

// repeating is a driver whose consumers hand on everything from the first
// entry, whatever was asked for, from goroutines that Close does not end.
type repeating struct {
	streams.Driver
	mu      sync.Mutex
	handles []func(streams.Entry)
	fail    error
}

type deadConsumer struct{ done chan struct{} }

func (c *deadConsumer) Done() <-chan struct{} { return c.done }
func (c *deadConsumer) Close() error          { return nil }

func (r *repeating) OpenConsumer(_ context.Context, _ int, _ streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	r.handles = append(r.handles, handle)
	return &deadConsumer{make(chan struct{})}, nil
}

func (r *repeating) hand(consumer int, offsets ...uint64) {
	r.mu.Lock()
	handle := r.handles[consumer]
	r.mu.Unlock()
	for _, o := range offsets {
		handle(streams.Entry{Offset: o, Data: encode(fmt.Sprint(o))})
	}
}

// TestTailHandsOnOnce: repeated entries, and those of a consumer that does not
// know that it is closed, are dropped.
func TestTailHandsOnOnce(t *testing.T) {
	t.Parallel()
	r := &repeating{fail: errors.New("not yet")}
	f := setupTail(t, streams.First(), func(d streams.Driver) streams.Driver {
		r.Driver = d
		return r
	})
	eventually(t, "the first attempt", func() bool { return f.opens.Load() == 1 })
	r.mu.Lock()
	r.fail = nil
	r.mu.Unlock()
	f.pause()
	f.check("up")
	r.hand(0, 0, 0, 1, 3, 2, 3)
	f.check("0:0", "0:1", "0:3")
	f.Reset()
	f.check(downReset)
	r.hand(0, 4)
	f.pause()
	f.check("up")
	r.hand(0, 5)
	r.hand(1, 0, 3, 4, 6)
	f.check("0:4", "0:6")
	f.Close()
	f.check(downStop)
	r.hand(1, 7)
	r.hand(0, 8)
	if got := f.all(); len(got) > 0 {
		t.Errorf("after Close comes %q", got)
	}
}

// A log that has lost its end gives the offsets out again. The tail must not
// pass over what comes there (delivery rule C2).
func TestTailSeesARewrittenEntry(t *testing.T) {
	t.Parallel()
	rewritten := make(chan struct{}, 1)
	m, clock := streamstest.NewMemory(1), streamstest.NewClock()
	var mu sync.Mutex
	var got []string
	tail := streams.NewTail(streams.TailOptions{
		Driver: m.Driver(), Start: streams.First(), Clock: clock,
		Rewritten: func() { rewritten <- struct{}{} },
		Handle: func(e streams.Entry) {
			list, _, _ := decode(e.Data)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, list[0])
		},
	})
	t.Cleanup(tail.Close)
	handled := func(want ...string) {
		t.Helper()
		clock.AdvanceUntil(t, time.Second, fmt.Sprint(want), func() bool { mu.Lock(); defer mu.Unlock(); return slices.Equal(got, want) })
	}
	id := uint64(0)
	store := func(texts ...string) {
		t.Helper()
		stored := make(chan struct{}, len(texts))
		p, err := m.Driver().OpenProducer(context.Background(), 0, "p", func(uint64) { stored <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		for _, text := range texts {
			id++
			if err := p.Send(id, streams.AppendEnvelope(streams.BeginEntry(nil), []byte(text))); err != nil {
				t.Fatal(err)
			}
			<-stored
		}
	}
	store("1", "2", "3")
	handled("0:1", "0:2", "0:3")
	m.Drop()
	store("4")
	handled("0:1", "0:2", "0:3", "0:4") // the same log: each once

	m.Lose(0, 2)
	store("x", "y", "z")
	clock.AdvanceUntil(t, time.Second, "the discovery", func() bool { return len(rewritten) == 1 })
	tail.Rewind(streams.From(m.Entries(0)[2].Offset))
	handled("0:1", "0:2", "0:3", "0:4", "0:x", "0:y", "0:z")
}
