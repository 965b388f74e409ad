package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/feed"
)

// channel is where the database tells of changes. The payload is a
// [store.Subject].
const channel = "aether_changes"

const (
	// listenCheck is after which silence the listening connection is looked
	// after, and listenTimeout how long it may take to answer that. Together
	// they bound how late a change is told of that fell into a connection that
	// had died without a word.
	listenCheck   = 500 * time.Millisecond
	listenTimeout = time.Second
	// reconcileLost is how often followers are told that they may have missed
	// something while there is no connection, and reconcileKept while there is.
	reconcileLost = time.Second
	reconcileKept = 15 * time.Second
)

// listener tells the followers of this process what any gateway has changed: by
// a connection of its own that listens, and by the clock while it has none. It
// begins with the first follower.
type listener struct {
	s         *Store
	hub       feed.Hub
	listening atomic.Bool
	wg        sync.WaitGroup

	mu     sync.Mutex
	closed bool
	cancel context.CancelFunc // nil: not begun
}

// Follow implements [store.Feed].
func (s *Store) Follow(subjects ...store.Subject) (changed <-chan struct{}, stop func()) {
	s.listener.begin()
	return s.listener.hub.Follow(subjects...)
}

func (l *listener) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.wg.Go(func() { l.run(ctx) })
	l.wg.Go(func() { l.reconcile(ctx) })
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// reconcile tells followers that they may have missed something. While a
// connection is tried for, which may take long, that is all they hear.
func (l *listener) reconcile(ctx context.Context) {
	tick := time.NewTicker(reconcileLost)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if !l.listening.Load() || now.Sub(last) >= reconcileKept {
				last = now
				l.hub.Missed()
			}
		}
	}
}

// run listens until ctx ends. A failure needs no words here: whoever reads the
// store meets it too, and says so.
func (l *listener) run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := listenCheck; ; {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if l.listen(ctx) {
			wait = listenCheck
		} else {
			wait = min(2*wait, l.s.o.Timeout)
		}
		pause.Reset(wait)
	}
}

// listen tells the hub what comes on one connection, until that is lost. It
// reports whether it had one.
func (l *listener) listen(ctx context.Context) (had bool) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenTimeout)
		defer cancel()
		_ = conn.Close(closing)
	}()
	l.listening.Store(true)
	defer l.hub.Missed()
	defer l.listening.Store(false)
	l.hub.Missed() // what was changed before it listened
	for {
		subject, err := next(ctx, conn)
		if err != nil {
			return true
		}
		if subject != "" {
			l.hub.Changed(subject)
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.o.Timeout)
	defer cancel()
	config := l.s.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "aether-gateway changes"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// next waits for a change. If none comes for a while it looks whether the
// connection is alive, and returns "".
func next(ctx context.Context, conn *pgx.Conn) (store.Subject, error) {
	waiting, cancel := context.WithTimeout(ctx, listenCheck)
	n, err := conn.WaitForNotification(waiting)
	late := waiting.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	cancel()
	switch {
	case err == nil:
		return store.Subject(n.Payload), nil
	case !late || ctx.Err() != nil:
		return "", err
	}
	asking, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return "", conn.Ping(asking)
}
