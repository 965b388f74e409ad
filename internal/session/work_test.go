package session

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// still is a stream on which nothing happens.
type still struct {
	Stream
	ctx context.Context
}

func (s still) Context() context.Context { return s.ctx }

// worker returns a session that does nothing but work, and how to end its
// stream.
func worker(t *testing.T) (*Session, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{o: Options{Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, working: make(chan struct{}, maxWorking)}
	s := &Session{m: m, st: still{ctx: ctx}, box: delivery.NewMailbox(delivery.Options{}), ended: make(chan struct{})}
	s.life.held.Store(&holding{expires: forever, warning: forever})
	t.Cleanup(func() {
		cancel()
		<-s.work.end()
		m.wg.Wait()
	})
	return s, cancel
}

func must(t *testing.T, err *wireerr.Error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a client asks for is done in its order, one at a time, and the goroutine
// ends when nothing is left.
func TestWorkKeepsOrder(t *testing.T) {
	t.Parallel()
	s, _ := worker(t)
	var done []int
	for round := range 50 {
		for i := range 3 {
			must(t, s.later(0, func(context.Context) { done = append(done, round*3+i) }))
		}
		if round%2 == 0 {
			<-s.work.settled()
		}
	}
	<-s.work.settled()
	s.m.wg.Wait()
	for i, n := range done {
		if n != i {
			t.Fatalf("done in the order %v", done)
		}
	}
	if len(done) != 150 {
		t.Fatalf("%d were done", len(done))
	}
}

// Too many jobs, and too many bytes of them, are refused and never done; a large
// one passes an empty queue.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	s, _ := worker(t)
	hold, begun := make(chan struct{}), make(chan struct{})
	var done atomic.Int32
	must(t, s.later(2*maxJobBytes, func(context.Context) { close(begun); <-hold }))
	<-begun
	count := func(context.Context) { done.Add(1) }
	for range maxJobs {
		must(t, s.later(1, count))
	}
	err := s.later(1, count)
	if err == nil || err.Code != wireerr.RateLimited || !err.Retryable || err.RetryAfter <= 0 {
		t.Errorf("one too many: %v", err)
	}
	close(hold)
	<-s.work.settled()
	if done.Load() != maxJobs {
		t.Errorf("%d were done", done.Load())
	}
	hold, begun = make(chan struct{}), make(chan struct{})
	must(t, s.later(1, func(context.Context) { close(begun); <-hold }))
	<-begun
	must(t, s.later(maxJobBytes-1, count))
	must(t, s.later(1, count))
	if err := s.later(1, count); err == nil {
		t.Error("more bytes than may wait")
	}
	close(hold)
	<-s.work.settled()
}

// The end of a session drops what waits, stops what runs, and is told when that
// has ended; nothing is done after it.
func TestWorkEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s, _ := worker(t)
	begun := make(chan struct{})
	var after atomic.Bool
	must(t, s.later(0, func(ctx context.Context) { close(begun); <-ctx.Done() }))
	must(t, s.later(0, func(context.Context) { after.Store(true) }))
	<-begun
	s.endWork(time.Minute)
	must(t, s.later(0, func(context.Context) { after.Store(true) }))
	s.m.wg.Wait()
	if after.Load() {
		t.Error("something was done after the end")
	}
}

// A job that panics ends the session and nothing else, and what waits behind it
// is not waited for.
func TestWorkThatPanics(t *testing.T) {
	t.Parallel()
	s, _ := worker(t)
	must(t, s.later(0, func(context.Context) { panic("a defect") }))
	must(t, s.later(0, func(context.Context) {}))
	<-s.ended
	<-s.work.settled()
	s.m.wg.Wait()
	if s.why.err == nil {
		t.Error("the session ended without a reason")
	}
}

// A client that does not read its answers waits for its next ones, without an
// end; and goes on when it has read.
func TestWorkWaitsForTheReader(t *testing.T) {
	t.Parallel()
	s, _ := worker(t)
	var done atomic.Int32
	answer := func(context.Context) {
		s.box.Reply(make([]byte, maxUnread/2+1))
		done.Add(1)
	}
	for range 20 { // 10 MiB, more than a mailbox may hold
		must(t, s.later(0, answer))
	}
	var batch delivery.Batch
	for done.Load() < 20 {
		if s.box.Take(&batch) {
			s.work.wrote()
			continue
		}
		<-s.box.Wake()
	}
	<-s.work.settled()
}

// However many sessions have something to do, few do it at a time.
func TestWorkOfManySessions(t *testing.T) {
	t.Parallel()
	first, _ := worker(t)
	var now, most atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		s, _ := worker(t)
		s.m.working = first.m.working
		for range 5 {
			all.Add(1)
			must(t, s.later(0, func(context.Context) {
				defer all.Done()
				n := now.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				now.Add(-1)
			}))
		}
	}
	all.Wait()
	if most.Load() > maxWorking {
		t.Errorf("%d at a time", most.Load())
	}
}

// A credential that has expired does nothing more, whatever waits.
func TestWorkOfAnExpiredSession(t *testing.T) {
	t.Parallel()
	s, _ := worker(t)
	hold, begun := make(chan struct{}), make(chan struct{})
	var after atomic.Bool
	must(t, s.later(0, func(context.Context) { close(begun); <-hold }))
	<-begun
	must(t, s.later(0, func(context.Context) { after.Store(true) }))
	s.life.held.Store(&holding{expires: 1, warning: 1})
	close(hold)
	<-s.ended
	s.m.wg.Wait()
	if after.Load() {
		t.Error("it was done all the same")
	}
}
