package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/tables"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Options configure a [Store]. The zero value is fine.
type Options struct {
	// MaxConns bounds the connections; a call past it waits for one, within
	// its time. Default 8.
	MaxConns int32
	// Timeout bounds each call, waiting for a connection included, besides
	// the context of its caller. The server is told to stop by itself after
	// this time, too. Default 5 s.
	Timeout time.Duration
	// Now is the clock that says when a row was written. Default [time.Now].
	Now func() time.Time
}

// Store is a [store.Store] in a PostgreSQL database. It is safe for
// concurrent use.
type Store struct {
	*tables.Tables
	pool     *pgxpool.Pool
	secret   secret
	o        Options
	listener listener
}

var _ store.Store = (*Store)(nil)

// CheckURL returns [ErrURL] for a URL that Open would refuse, without
// connecting.
func CheckURL(url string) error {
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return ErrURL
	}
	return nil
}

// Open connects to the database and checks its tables. It returns [ErrURL], a
// [store.SchemaError], or an [Error].
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if o.MaxConns <= 0 {
		o.MaxConns = 8
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, ErrURL
	}
	config.MaxConns = o.MaxConns
	config.MinConns = min(config.MinConns, o.MaxConns)
	config.PingTimeout = o.Timeout
	c := config.ConnConfig
	if c.ConnectTimeout <= 0 || c.ConnectTimeout > o.Timeout {
		c.ConnectTimeout = o.Timeout
	}
	setDefault(c.RuntimeParams, "statement_timeout", strconv.FormatInt(o.Timeout.Milliseconds(), 10))
	setDefault(c.RuntimeParams, "application_name", "aether-gateway")

	s := &Store{secret: newSecret(c), o: o}
	s.listener.s = s
	s.Tables = tables.New(database{s}, tables.Options{Now: o.Now, ForUpdate: " for update"})
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, s.secret.wrap("open", err)
	}
	err = s.call(ctx, "open", func(ctx context.Context) error {
		return migrate.Check(ctx, migrate.Postgres, func(ctx context.Context, query string, dest *int64) error {
			return s.pool.QueryRow(ctx, query).Scan(dest)
		})
	})
	if err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

func setDefault(params map[string]string, name, value string) {
	if _, ok := params[name]; !ok {
		params[name] = value
	}
}

// WithDB calls fn with a database handle for package migrate, on a connection
// without a limit of time, and closes it. Errors do not contain the password.
func WithDB(ctx context.Context, url string, fn func(context.Context, *sql.DB) error) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return ErrURL
	}
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	setDefault(config.RuntimeParams, "application_name", "aether-gateway migrate")
	db := stdlib.OpenDB(*config)
	err = fn(ctx, db)
	return newSecret(config).wrap("migrate", errors.Join(err, db.Close()))
}

// attempts is how often a call is tried before it fails.
const attempts = 2

// call runs fn within the time of a call, and again if the connection was
// lost: after a restart of the database all that the pool holds are dead.
func (s *Store) call(caller context.Context, what string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(caller, s.o.Timeout)
	defer cancel()
	var err error
	for range attempts {
		if err = fn(ctx); err == nil {
			return nil
		}
		var schema *store.SchemaError
		if ctx.Err() != nil || errors.As(err, &schema) || !again(err) {
			break
		}
		s.pool.Reset()
	}
	return s.secret.wrap(what, s.late(caller, ctx, err))
}

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context) error { return s.call(ctx, "ping", s.pool.Ping) }

// Close implements [store.Store]. It waits for the calls that run.
func (s *Store) Close() error {
	s.listener.close()
	s.pool.Close()
	return nil
}
