package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

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

// startTimeout is how long a gateway that starts waits for another one to make
// room for it.
const startTimeout = 30 * time.Second

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

// openServices connects to PostgreSQL and RabbitMQ, however long they take to
// answer.
func openServices(ctx context.Context, cfg *config.Config, log *slog.Logger, w *waits) (_ *backend, err error) {
	b := &backend{boot: router.NewBoot()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	var positions *postgres.Store
	err = w.until(ctx, onPostgres, func() (err error) {
		if positions == nil {
			if positions, err = openDatabase(ctx, cfg); err != nil {
				return err
			}
			b.positions = positions
			b.closers = append(b.closers, positions.Close)
		}
		if err := settlePlacement(ctx, cfg, positions); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		right, err := serveOn(limited, log, positions, cfg.Redis.URL != "")
		if err != nil {
			return err
		}
		b.lost = right.Lost()
		b.closers = append(b.closers, right.Close)
		return nil
	}, postgres.Passes)
	if err != nil {
		return nil, err
	}
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
		Waiting:      func(err error) { w.tell(onLog, err) },
	})
	if err != nil {
		return nil, err
	}
	w.have(onLog)
	b.driver = driver
	b.closers = append(b.closers, driver.Close)
	b.checks = map[string]ops.Check{onPostgres.check: positions.Ping}
	if b.presence != nil {
		b.checks[onRedis.check] = func(context.Context) error { return b.presence.Status() }
	}
	return b, nil
}

// openDatabase opens the database, with tables that are up to date if that is
// configured.
func openDatabase(ctx context.Context, cfg *config.Config) (*postgres.Store, error) {
	if cfg.Postgres.Migrate {
		if err := migrateUp(ctx, cfg.Postgres.URL); err != nil {
			return nil, err
		}
	}
	return postgres.Open(ctx, cfg.Postgres.URL, postgres.Options{})
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
