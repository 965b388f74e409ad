// Package migrate brings a database's tables to the version that this program
// works with, forth and back, and tells which one a database has.
//
// It knows the files of package migrations and the table that records which of
// them were applied; it decides nothing by itself: an engine that finds
// another version refuses to open.
package migrate

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/migrations"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Engine is a kind of database.
type Engine string

const (
	// Postgres is PostgreSQL.
	Postgres Engine = "postgres"
	// SQLite is the file of an embedded gateway.
	SQLite Engine = "sqlite"
)

// versions is the table that records the applied migrations.
const versions = "gateway_schema_version"

// Migration is one step of the schema.
type Migration struct {
	Version int64
	// Name is the file's.
	Name string
	// AppliedAt is zero if it is not applied.
	AppliedAt time.Time
}

// Up applies all migrations that the database does not have. On PostgreSQL two
// that do so at once wait for each other.
func Up(ctx context.Context, engine Engine, db *sql.DB) error {
	p, err := provider(engine, db)
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: up: %w", err)
	}
	return nil
}

// Down takes the newest applied migration back, with the data that only it can
// hold. Without one it does nothing.
func Down(ctx context.Context, engine Engine, db *sql.DB) error {
	p, err := provider(engine, db)
	if err != nil {
		return err
	}
	version, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("migrate: down: %w", err)
	}
	if version == 0 {
		return nil
	}
	if _, err := p.Down(ctx); err != nil {
		return fmt.Errorf("migrate: down: %w", err)
	}
	return nil
}

// Status returns all migrations that this program knows, in their order.
func Status(ctx context.Context, engine Engine, db *sql.DB) ([]Migration, error) {
	p, err := provider(engine, db)
	if err != nil {
		return nil, err
	}
	all, err := p.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: status: %w", err)
	}
	steps := make([]Migration, 0, len(all))
	for _, s := range all {
		steps = append(steps, Migration{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt})
	}
	return steps, nil
}

// Check returns a [store.SchemaError] unless the database has exactly the
// version that this program works with. get runs a query that gives one row
// with one number.
func Check(ctx context.Context, engine Engine, get func(ctx context.Context, query string, dest *int64) error) error {
	want, err := latest(engine)
	if err != nil {
		return err
	}
	exists := "select count(*) from sqlite_schema where name = '" + versions + "'"
	if engine == Postgres {
		exists = "select count(to_regclass('" + versions + "'))"
	}
	var tables, have int64
	if err := get(ctx, exists, &tables); err != nil {
		return err
	}
	if tables > 0 {
		if err := get(ctx, "select coalesce(max(version_id), 0) from "+versions, &have); err != nil {
			return err
		}
	}
	if have != want {
		return &store.SchemaError{Have: have, Want: want}
	}
	return nil
}

// latest returns the version of the newest file.
func latest(engine Engine) (int64, error) {
	files, err := fs.ReadDir(migrations.Files, string(engine))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("migrate: engine %q has no migrations", engine)
	}
	return goose.NumericComponent(files[len(files)-1].Name())
}

func provider(engine Engine, db *sql.DB) (*goose.Provider, error) {
	options := []goose.ProviderOption{
		goose.WithTableName(versions),
		goose.WithDisableGlobalRegistry(true),
	}
	dialect := goose.DialectSQLite3
	if engine == Postgres {
		dialect = goose.DialectPostgres
		// Once a second for five minutes: a migration may take its time.
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	files, err := fs.Sub(migrations.Files, string(engine))
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	p, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return p, nil
}
