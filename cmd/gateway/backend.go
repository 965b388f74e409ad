package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/ops"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
	"github.com/aether-gateway/gateway/internal/streams/rabbitmq"
)

// startTimeout is how long the parts that a gateway needs may take to answer
// when it starts.
const startTimeout = 30 * time.Second

// logTimeout is the same for the log, which is read back at the start: longer
// than the router takes for that at most.
const logTimeout = time.Minute

// backend is where a gateway keeps what must last.
type backend struct {
	driver    streams.Driver
	positions store.Store
	presence  presence.Gateway // nil: the gateway is alone
	boot      router.Boot
	checks    map[string]ops.Check
	lost      <-chan struct{} // closed when another gateway has taken over; nil: cannot happen
	closers   []func() error  // in the order of opening
}

// close closes what was opened, last first.
func (b *backend) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	return errors.Join(errs...)
}

// placement is the configured placement as the log takes it.
func placement(cfg *config.Config) streams.Placement {
	p := streams.Placement{Partitions: int(cfg.Streams.Partitions)}
	for _, rule := range cfg.Streams.Placement {
		equals, begins := rule.Match()
		p.Rules = append(p.Rules, streams.Rule{Equals: equals, HasPrefix: begins})
	}
	return p
}

// openEmbedded opens the data directory of dev.
func openEmbedded(ctx context.Context, cfg *config.Config) (_ *backend, err error) {
	b := &backend{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	file, err := sqlitefile.Open(filepath.Join(cfg.DataDir, devStateFile))
	if errors.Is(err, sqlitefile.ErrInUse) {
		return nil, fmt.Errorf("another gateway uses %s: stop that one, or give this one a directory of its own with --data-dir", cfg.DataDir)
	}
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, file.Close)
	if err := sqlite.Migrate(ctx, file); err != nil {
		return nil, err
	}
	positions, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	b.positions = positions
	b.closers = append(b.closers, positions.Close)
	if err := settlePlacement(ctx, cfg, positions); err != nil {
		return nil, err
	}
	driver, err := embedded.Open(file, embedded.Options{
		Partitions: placement(cfg).Count(), Extra: 1, MaxAge: cfg.Streams.Retention.MaxAge, MaxBytes: int64(cfg.Streams.Retention.MaxBytes),
	})
	if err != nil {
		return nil, err
	}
	b.driver = driver
	b.closers = append(b.closers, driver.Close)
	b.checks = map[string]ops.Check{"disk": func(context.Context) error { return file.Err() }}
	return b, nil
}

// openServices connects to PostgreSQL and RabbitMQ.
func openServices(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *backend, err error) {
	b := &backend{boot: router.NewBoot()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var positions *postgres.Store
	err = untilAnswered(ctx, log, func() (err error) {
		if cfg.Postgres.Migrate {
			if err := migrateUp(ctx, cfg.Postgres.URL); err != nil {
				return err
			}
		}
		positions, err = postgres.Open(ctx, cfg.Postgres.URL, postgres.Options{})
		return err
	})
	if err != nil {
		return nil, err
	}
	b.positions = positions
	b.closers = append(b.closers, positions.Close)
	if err := settlePlacement(ctx, cfg, positions); err != nil {
		return nil, err
	}
	right, err := serveOn(ctx, log, positions, cfg.Redis.URL != "")
	if err != nil {
		return nil, err
	}
	b.lost = right.Lost()
	b.closers = append(b.closers, right.Close)
	if cfg.Redis.URL != "" {
		if b.presence, err = redis.New(redis.Options{URL: cfg.Redis.URL, Instance: instanceID(cfg), ID: b.boot.String(), Logger: log}); err != nil {
			return nil, fmt.Errorf("redis.url: %w", err)
		}
	}

	where := placement(cfg)
	names := make([]string, where.Count())
	for i := range names {
		names[i] = where.StreamName(i)
	}
	names = append(names, streams.DeadLetterStream)
	driver, err := rabbitmq.Open(ctx, rabbitmq.Options{
		URLs: cfg.RabbitMQ.StreamURLs, Streams: names, Logger: log,
		MaxAge:       orUnlimited(cfg.Streams.Retention.MaxAge, unlimitedAge),
		MaxBytes:     int64(orUnlimited(cfg.Streams.Retention.MaxBytes, unlimitedBytes)),
		SegmentBytes: int64(cfg.Streams.SegmentBytes),
	})
	if err != nil {
		return nil, err
	}
	b.driver = driver
	b.closers = append(b.closers, driver.Close)
	b.checks = map[string]ops.Check{"postgres": positions.Ping}
	if b.presence != nil {
		b.checks["redis"] = func(context.Context) error { return b.presence.Status() }
	}
	return b, nil
}

// untilAnswered repeats fn while the database, which may be only just starting,
// does not answer.
func untilAnswered(ctx context.Context, log *slog.Logger, fn func() error) error {
	for {
		err := fn()
		var schema *store.SchemaError
		if err == nil || errors.Is(err, postgres.ErrURL) || errors.As(err, &schema) || answered(err) {
			return err
		}
		log.Warn("waiting for the database", "error", err)
		pause := time.NewTimer(time.Second)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// answered reports whether the database itself said no, for a reason that will
// not go away by waiting.
func answered(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code != "57P03" && !strings.HasPrefix(e.Code, "53") // starting up, short of resources
}

func migrateUp(ctx context.Context, url string) error {
	return postgres.WithDB(ctx, url, func(ctx context.Context, db *sql.DB) error { return migrate.Up(ctx, migrate.Postgres, db) })
}

// The broker has no word for "no limit".
const (
	unlimitedAge   = 100 * 365 * 24 * time.Hour
	unlimitedBytes = config.Size(1 << 60)
)

func orUnlimited[T ~int64](limit, unlimited T) T {
	if limit == 0 {
		return unlimited
	}
	return limit
}
