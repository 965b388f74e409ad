package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/positions"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Position implements [store.Positions].
func (s *Store) Position(ctx context.Context, identity, address string) (uint64, bool, error) {
	if err := positions.CheckTexts(identity, address); err != nil {
		return 0, false, err
	}
	var position int64
	found := true
	err := s.call(ctx, "read a position", func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, positions.Select, identity, address).Scan(&position)
		found = !errors.Is(err, pgx.ErrNoRows)
		if !found {
			return nil
		}
		return err
	})
	if err != nil || !found {
		return 0, false, err
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
	var all []store.Position
	err := s.call(ctx, "list positions", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Position, error) {
			var p store.Position
			var position, epoch int64
			err := row.Scan(&p.Identity, &p.Address, &position, &epoch)
			p.Position, p.Epoch = uint64(position), uint64(epoch)
			return p, err
		})
		return err
	})
	return all, err
}

// commit takes arrays, so that a call of any size is one statement of one
// text.
const commit = positions.Insert +
	"select c.i, c.a, c.p, c.e, $5::bigint from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as c (i, a, p, e)" +
	positions.OnConflict

// Commit implements [store.Positions]. A call is one statement, unless a key
// comes under several epochs.
func (s *Store) Commit(ctx context.Context, commits []store.Commit) error {
	rounds, err := positions.Rounds(commits)
	if err != nil || len(rounds) == 0 {
		return err
	}
	now := s.o.Now().UnixMilli()
	return s.call(ctx, "commit positions", func(ctx context.Context) error {
		if len(rounds) == 1 {
			return commitRound(ctx, s.pool, rounds[0], now)
		}
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			for _, round := range rounds {
				if err := commitRound(ctx, tx, round, now); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

type executor interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

func commitRound(ctx context.Context, db executor, round []store.Commit, now int64) error {
	n := len(round)
	identities, addresses := make([]string, n), make([]string, n)
	numbers, epochs := make([]int64, n), make([]int64, n)
	for i, c := range round {
		identities[i], addresses[i] = c.Identity, c.Address
		numbers[i], epochs[i] = int64(c.Position), int64(c.Epoch)
	}
	_, err := db.Exec(ctx, commit, identities, addresses, numbers, epochs, now)
	return err
}

// ExpirePositions implements [store.Positions].
func (s *Store) ExpirePositions(ctx context.Context, before time.Time) (int64, error) {
	for total := int64(0); ; {
		var removed int64
		err := s.call(ctx, "expire positions", func(ctx context.Context) error {
			tag, err := s.pool.Exec(ctx, positions.Expire, before.UnixMilli(), positions.ExpireBatch)
			removed = tag.RowsAffected()
			return err
		})
		if err != nil {
			return total, err
		}
		total += removed
		if removed < positions.ExpireBatch {
			return total, nil
		}
	}
}
