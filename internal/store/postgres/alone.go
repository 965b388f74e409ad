package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNotAlone is returned by [Store.BeAlone] while another gateway serves on
// the database, and by [Store.BeAmong] while one does that must be alone.
var ErrNotAlone = errors.New("postgres: another gateway serves on this database")

// aloneKey is the advisory lock of the one gateway that serves alone, which
// those that share leases hold together.
const aloneKey = 0x61657468_65720001

// aloneCheck is how often the lock's connection is looked after.
const aloneCheck = 2 * time.Second

// Right is the right to serve on a database: as the only gateway, or as one of
// those that share their leases. It lasts as long as a connection of its own;
// when that is lost, it is taken anew.
type Right struct {
	s      *Store
	name   string // by which the database knows the lock's connections
	try    string // the statement that takes the lock
	cancel context.CancelFunc
	wg     sync.WaitGroup
	lost   chan struct{}
}

// BeAlone takes the right to be the only gateway, or returns [ErrNotAlone]. The
// database gives it back by itself when the process ends.
func (s *Store) BeAlone(ctx context.Context) (*Right, error) {
	return s.serve(ctx, "SELECT pg_try_advisory_lock($1)")
}

// BeAmong takes the right to be one of several gateways, or returns
// [ErrNotAlone]. The database gives it back by itself when the process ends.
func (s *Store) BeAmong(ctx context.Context) (*Right, error) {
	return s.serve(ctx, "SELECT pg_try_advisory_lock_shared($1)")
}

func (s *Store) serve(ctx context.Context, try string) (*Right, error) {
	a := &Right{s: s, name: "aether-gateway " + rand.Text(), try: try, lost: make(chan struct{})}
	conn, err := a.take(ctx)
	if err != nil {
		return nil, err
	}
	own, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.wg.Go(func() { a.keep(own, conn) })
	return a, nil
}

// Lost is closed when a gateway has taken the right that this one's excludes,
// which can happen only after the connection to the database was lost.
func (a *Right) Lost() <-chan struct{} { return a.lost }

// Close gives the right back.
func (a *Right) Close() error {
	a.cancel()
	a.wg.Wait()
	return nil
}

// take opens a connection and takes the lock on it.
func (a *Right) take(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, a.s.o.Timeout)
	defer cancel()
	config := a.s.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = a.name
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, a.s.secret.wrap("lock", err)
	}
	if err = a.lock(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, a.s.secret.wrap("lock", err)
	}
	return conn, nil
}

func (a *Right) lock(ctx context.Context, conn *pgx.Conn) error {
	// A connection that was cut off without a word may hold the lock for this
	// very gateway as long as the database does not notice.
	const endOwn = `SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
		WHERE application_name = $1 AND pid <> pg_backend_pid()`
	if _, err := conn.Exec(ctx, endOwn, a.name); err != nil {
		return err
	}
	var taken bool
	if err := conn.QueryRow(ctx, a.try, int64(aloneKey)).Scan(&taken); err != nil {
		return err
	}
	if !taken {
		return ErrNotAlone
	}
	return nil
}

// keep holds the lock until ctx ends.
func (a *Right) keep(ctx context.Context, conn *pgx.Conn) {
	tick := time.NewTicker(aloneCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if conn != nil {
				closing, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = conn.Close(closing)
			}
			return
		case <-tick.C:
		}
		if conn != nil && a.alive(ctx, conn) {
			continue
		}
		var err error
		if conn, err = a.take(ctx); errors.Is(err, ErrNotAlone) {
			close(a.lost)
			<-ctx.Done()
			return
		}
	}
}

func (a *Right) alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, a.s.o.Timeout)
	defer cancel()
	if conn.Ping(ctx) == nil {
		return true
	}
	_ = conn.Close(ctx)
	return false
}
