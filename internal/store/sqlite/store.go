// Package sqlite is the store of an embedded gateway: a [store.Store] in the
// SQLite file that also holds its log.
//
// Its writes are jobs of the file's one writer and share the sync of the disk
// with the log's appends. It refuses a file whose tables are of another
// version, and never changes them unless [Migrate] is called.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/feed"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/tables"
)

// Options configure a [Store]. The zero value is fine.
type Options struct {
	// Now is the clock that says when a row was written. Default [time.Now].
	Now func() time.Time
}

// Store is a [store.Store] in a SQLite file. It is safe for concurrent use.
type Store struct {
	*tables.Tables
	hub  *feed.Hub
	file *sqlitefile.File
}

var _ store.Store = (*Store)(nil)

// Migrate brings the file's tables to the version that this program works
// with.
func Migrate(ctx context.Context, file *sqlitefile.File) error {
	return file.Exclusive(ctx, func(db *sql.DB) error { return migrate.Up(ctx, migrate.SQLite, db) })
}

// Open returns the store in file. It returns a [store.SchemaError] if its
// tables are of another version. The file stays the caller's and is closed
// after the store.
func Open(ctx context.Context, file *sqlitefile.File, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	err := migrate.Check(ctx, migrate.SQLite, func(ctx context.Context, query string, dest *int64) error {
		return file.Read().QueryRowContext(ctx, query).Scan(dest)
	})
	if err != nil {
		return nil, failed("open", err)
	}
	// All who have the file open share it, and so what they tell each other.
	shared, err := file.Shared("store feed", func() (any, error) { return &feed.Hub{}, nil })
	if err != nil {
		return nil, failed("open", err)
	}
	hub, ok := shared.(*feed.Hub)
	if !ok {
		return nil, failed("open", errors.New("what the file's users share is something else"))
	}
	return &Store{Tables: tables.New(database{file, hub}, tables.Options{Now: o.Now, Batch: batch}), hub: hub, file: file}, nil
}

// Follow implements [store.Feed]. All that writes is in this process, so that
// nothing can be missed.
func (s *Store) Follow(subjects ...store.Subject) (changed <-chan struct{}, stop func()) {
	return s.hub.Follow(subjects...)
}

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context) error {
	if err := s.file.Err(); err != nil {
		return failed("ping", err)
	}
	var one int
	return failed("ping", s.file.Read().QueryRowContext(ctx, "select 1").Scan(&one))
}

// Close implements [store.Store]. There is nothing to release: the file is its
// opener's.
func (s *Store) Close() error { return nil }

func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlite: %s: %w", what, err)
}
