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
// the database.
var ErrNotAlone = errors.New("postgres: another gateway serves on this database")

// aloneKey is the advisory lock of the one gateway that serves.
const aloneKey = 0x61657468_65720001

// aloneCheck is how often the lock's connection is looked after.
const aloneCheck = 2 * time.Second

// Alone is the right to be the only gateway on a database. It lasts as long as
// a connection of its own; when that is lost, it is taken anew.
type Alone struct {
	s      *Store
	name   string // by which the database knows the lock's connections
	cancel context.CancelFunc
	wg     sync.WaitGroup
	lost   chan struct{}
}

// BeAlone takes the right, or returns [ErrNotAlone]. The database gives it back
// by itself when the process ends.
func (s *Store) BeAlone(ctx context.Context) (*Alone, error) {
	a := &Alone{s: s, name: "aether-gateway " + rand.Text(), lost: make(chan struct{})}
	conn, err := a.take(ctx)
	if err != nil {
		return nil, err
	}
	own, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.wg.Go(func() { a.keep(own, conn) })
	return a, nil
}

// Lost is closed when another gateway has taken the right, which can happen
// only after the connection to the database was lost.
func (a *Alone) Lost() <-chan struct{} { return a.lost }

// Close gives the right back.
func (a *Alone) Close() error {
	a.cancel()
	a.wg.Wait()
	return nil
}

// take opens a connection and takes the lock on it.
func (a *Alone) take(ctx context.Context) (*pgx.Conn, error) {
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

func (a *Alone) lock(ctx context.Context, conn *pgx.Conn) error {
	// A connection that was cut off without a word may hold the lock for this
	// very gateway as long as the database does not notice.
	const endOwn = `SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
		WHERE application_name = $1 AND pid <> pg_backend_pid()`
	if _, err := conn.Exec(ctx, endOwn, a.name); err != nil {
		return err
	}
	var taken bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(aloneKey)).Scan(&taken); err != nil {
		return err
	}
	if !taken {
		return ErrNotAlone
	}
	return nil
}

// keep holds the lock until ctx ends.
func (a *Alone) keep(ctx context.Context, conn *pgx.Conn) {
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

func (a *Alone) alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, a.s.o.Timeout)
	defer cancel()
	if conn.Ping(ctx) == nil {
		return true
	}
	_ = conn.Close(ctx)
	return false
}
