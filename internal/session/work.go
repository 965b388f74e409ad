package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	// maxJobs and maxJobBytes bound what of one session waits to be done; what is
	// beyond is refused. A single larger request passes an empty queue.
	maxJobs     = 128
	maxJobBytes = 4 << 20
	// maxWorking is how many jobs run at a time, whosever they are: fewer than a
	// store has connections, so that the message path always finds one.
	maxWorking = 5
	// jobTimeout bounds a job, from when it is the next of its session.
	jobTimeout = 5 * time.Second
	// maxUnread is how much of answers may wait for a client before its next job
	// waits, too.
	maxUnread = 1 << 20
	// jobRetry is what a client is told whose job is one too many.
	jobRetry = 100 * time.Millisecond
)

// job is one request of the client that needs the store.
type job struct {
	size int
	do   func(context.Context)
}

// work is what a session has to do beside its receive loop: what needs the
// store, in the order in which the client asked for it, one at a time. There is
// a goroutine only while there is something to do. The zero value is idle.
type work struct {
	// blocked says that the next job waits for the client to read; room, with
	// space for one, tells it to look again.
	blocked atomic.Bool
	room    chan struct{}

	mu      sync.Mutex
	waiting []job // at most maxJobs and maxJobBytes: what is beyond is refused
	bytes   int
	running bool
	over    bool               // nothing more is done
	stop    context.CancelFunc // of the goroutine
	idle    chan struct{}      // closed when nothing is left to do, for who waits for that
}

// put queues a job; ok is false if too much waits. begin is not nil if the
// caller is to run what is queued, with that context.
func (w *work) put(parent context.Context, j job) (begin context.Context, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
		return nil, true // nobody is there to be answered
	case len(w.waiting) >= maxJobs, len(w.waiting) > 0 && w.bytes+j.size > maxJobBytes:
		return nil, false
	}
	w.waiting = append(w.waiting, j)
	w.bytes += j.size
	if w.running {
		return nil, true
	}
	if w.room == nil {
		w.room = make(chan struct{}, 1)
	}
	w.running = true
	begin, w.stop = context.WithCancel(parent)
	return begin, true
}

// next returns the oldest job. ok is false if there is none, and then the next
// one is begun anew.
func (w *work) next() (do func(context.Context), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || len(w.waiting) == 0 {
		w.rest()
		return nil, false
	}
	j := w.waiting[0]
	w.waiting[0] = job{}
	w.waiting = w.waiting[1:]
	w.bytes -= j.size
	return j.do, true
}

// rest notes that nothing runs. The lock is held.
func (w *work) rest() {
	w.waiting, w.bytes, w.running = nil, 0, false
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// broke ends the work when its goroutine ends otherwise than by next.
func (w *work) broke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.rest()
}

// settled is closed when nothing is left to do.
func (w *work) settled() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.idle
	if done == nil {
		done = make(chan struct{})
		if !w.running {
			close(done)
			return done
		}
		w.idle = done
	}
	return done
}

// end drops what waits and stops what runs; the channel is closed when that has
// ended.
func (w *work) end() <-chan struct{} {
	w.mu.Lock()
	w.over, w.waiting, w.bytes = true, nil, 0
	if w.stop != nil {
		w.stop()
	}
	w.mu.Unlock()
	return w.settled()
}

// wrote is called when the client has taken something.
func (w *work) wrote() {
	if w.blocked.Load() && w.blocked.CompareAndSwap(true, false) {
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
}

// awaitRoom waits until the client has read enough of its answers.
func (w *work) awaitRoom(ctx context.Context, unread func() int) {
	for unread() > maxUnread {
		w.blocked.Store(true)
		if unread() <= maxUnread {
			return
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return
		}
	}
}

// later has something done for the client that needs the store: beside the
// receive loop, after what it asked for before, and bounded in time by the
// context, which ends with the session too. size is what the job holds in
// memory, in bytes. What do reads of the session's principal is read before, by
// the caller, who acts on a frame. The error refuses a job that is one too
// many; then do is never called, as it is not if the session ends before.
func (s *Session) later(size int, do func(context.Context)) *wireerr.Error {
	begin, ok := s.work.put(s.st.Context(), job{size, do})
	if !ok {
		return wireerr.New(wireerr.RateLimited, "too many requests wait for their answer; at most %d, and %d bytes of them, may", maxJobs, maxJobBytes).After(jobRetry)
	}
	if begin != nil {
		s.m.wg.Go(func() { s.guard(func() { s.workOff(begin) }) })
	}
	return nil
}

// workOff does what waits.
func (s *Session) workOff(ctx context.Context) {
	rested := false
	defer func() {
		if !rested {
			s.work.broke() // by a panic, which ends the session
		}
	}()
	for {
		do, ok := s.work.next()
		if rested = !ok; rested {
			return
		}
		s.work.awaitRoom(ctx, s.box.Unread)
		if s.expired(s.m.o.Now()) || s.lost() {
			continue // the session ends
		}
		s.m.runJob(ctx, do)
	}
}

// runJob runs a job when it is its turn among those of all sessions. One whose
// time is over before that runs all the same, with a context that has ended,
// and so tells the client.
func (m *Manager) runJob(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	select {
	case m.working <- struct{}{}:
		defer func() { <-m.working }()
	case <-ctx.Done():
	}
	do(ctx)
}

// endWork drops what the client has asked for and is not done, and waits for
// what is under way: nothing of it may take effect when another session has
// the identity.
func (s *Session) endWork(limit time.Duration) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-s.work.end():
	case <-timeout.C:
	}
}
