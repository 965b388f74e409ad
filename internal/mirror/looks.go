package mirror

import (
	"context"
	"errors"
	"sync"
	"time"
)

// LookTimeout bounds one look.
const LookTimeout = 2 * time.Second

var errStopped = errors.New("the gateway is shutting down")

// Looks are refreshes of a copy because of rows that it does not have and that
// may be new. Whoever asks for such a row waits for a look that begins after
// that; there is one at a time, and a pause between two, however many rows are
// asked for. Looks are safe for concurrent use.
type Looks struct {
	refresh func(context.Context) error
	pause   time.Duration
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu   sync.Mutex
	next *look // joined by all who come before it begins
	last time.Time
}

type look struct {
	done chan struct{}
	err  error
}

// NewLooks returns looks made by refresh, with at least a pause between two.
func NewLooks(pause time.Duration, refresh func(context.Context) error) *Looks {
	l := &Looks{refresh: refresh, pause: pause}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Look refreshes the copy, and returns nil when it is as new as the call: what it
// does not have then does not exist.
func (l *Looks) Look(ctx context.Context) error {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return errStopped
	}
	k := l.next
	if k == nil {
		k = &look{done: make(chan struct{})}
		l.next = k
		pause := time.Until(l.last.Add(l.pause))
		l.wg.Go(func() { l.run(k, pause) })
	}
	l.mu.Unlock()
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Looks) run(k *look, after time.Duration) {
	defer close(k.done)
	pause := time.NewTimer(after)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-l.ctx.Done():
		k.err = errStopped
		return
	}
	l.mu.Lock()
	l.next, l.last = nil, time.Now()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, LookTimeout)
	defer cancel()
	k.err = l.refresh(ctx)
}

// Close ends a look that is under way and waits for its end; no other begins.
func (l *Looks) Close() {
	l.mu.Lock() // no look begins from here on
	l.cancel()
	l.mu.Unlock()
	l.wg.Wait()
}
