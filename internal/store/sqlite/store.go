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
	"slices"
	"time"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/positions"
)

// Options configure a [Store]. The zero value is fine.
type Options struct {
	// Now is the clock that says when a position was moved. Default
	// [time.Now].
	Now func() time.Time
}

// Store is a [store.Store] in a SQLite file. It is safe for concurrent use.
type Store struct {
	file *sqlitefile.File
	o    Options
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
	return &Store{file: file, o: o}, nil
}

// Position implements [store.Positions].
func (s *Store) Position(ctx context.Context, identity, address string) (uint64, bool, error) {
	if err := positions.CheckTexts(identity, address); err != nil {
		return 0, false, err
	}
	var position int64
	err := s.file.Read().QueryRowContext(ctx, positions.Select, identity, address).Scan(&position)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, failed("read a position", err)
	}
	return uint64(position), true, nil
}

// PositionsOf implements [store.Positions].
func (s *Store) PositionsOf(ctx context.Context, identity string) ([]store.Position, error) {
	if err := positions.CheckTexts(identity); err != nil {
		return nil, err
	}
	return s.list(ctx, positions.SelectOf, identity)
}

// PositionsUnder implements [store.Positions].
func (s *Store) PositionsUnder(ctx context.Context, prefix string) ([]store.Position, error) {
	if err := positions.CheckTexts(prefix); err != nil {
		return nil, err
	}
	if behind, ok := positions.Behind(prefix); ok {
		return s.list(ctx, positions.SelectBetween, prefix, behind)
	}
	return s.list(ctx, positions.SelectFrom, prefix)
}

func (s *Store) list(ctx context.Context, query string, args ...any) ([]store.Position, error) {
	rows, err := s.file.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, failed("list positions", err)
	}
	defer func() { _ = rows.Close() }()
	var all []store.Position
	for rows.Next() {
		var p store.Position
		var position, epoch int64
		if err := rows.Scan(&p.Identity, &p.Address, &position, &epoch); err != nil {
			return nil, failed("list positions", err)
		}
		p.Position, p.Epoch = uint64(position), uint64(epoch)
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, failed("list positions", err)
	}
	return all, nil
}

// Commit implements [store.Positions]. The one writer of the file does it in
// one transaction, or, so that it does not keep the log waiting, in several of
// commitBatch rows; then a failed call may have done its beginning.
func (s *Store) Commit(ctx context.Context, commits []store.Commit) error {
	rounds, err := positions.Rounds(commits)
	if err != nil {
		return err
	}
	now := s.o.Now().UnixMilli()
	for _, round := range rounds {
		for batch := range slices.Chunk(round, commitBatch) {
			if err := s.commit(ctx, batch, now); err != nil {
				return failed("commit positions", err)
			}
		}
	}
	return nil
}

// commitBatch rows take the writer some 5 ms.
const commitBatch = 500

func (s *Store) commit(ctx context.Context, batch []store.Commit, now int64) error {
	return s.file.Write(ctx, func(tx *sqlitefile.Tx) error {
		for _, c := range batch {
			if _, err := tx.Exec(upsert, c.Identity, c.Address, int64(c.Position), int64(c.Epoch), now); err != nil {
				return err
			}
		}
		return nil
	})
}

const upsert = positions.Insert + "values ($1, $2, $3, $4, $5)" + positions.OnConflict

// ExpirePositions implements [store.Positions].
func (s *Store) ExpirePositions(ctx context.Context, before time.Time) (int64, error) {
	for total := int64(0); ; {
		var removed int64
		err := s.file.Write(ctx, func(tx *sqlitefile.Tx) error {
			result, err := tx.Exec(positions.Expire, before.UnixMilli(), positions.ExpireBatch)
			if err != nil {
				return err
			}
			removed, err = result.RowsAffected()
			return err
		})
		if err != nil {
			return total, failed("expire positions", err)
		}
		total += removed
		if removed < positions.ExpireBatch {
			return total, nil
		}
	}
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
