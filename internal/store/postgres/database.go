package postgres

import (
	"context"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/tables"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// database is the [tables.DB] of a store. Each call has the store's limit of
// time and survives one lost connection.
type database struct{ s *Store }

// Read implements [tables.DB].
func (d database) Read(ctx context.Context, what string, fn func(tables.Reader) error) error {
	return d.s.call(ctx, what, func(ctx context.Context) error { return judged(fn(conn{ctx, d.s.pool})) })
}

// Write implements [tables.DB].
func (d database) Write(ctx context.Context, what string, fn func(tables.Writer) error) error {
	return d.s.call(ctx, what, func(ctx context.Context) error { return judged(fn(conn{ctx, d.s.pool})) })
}

// Transact implements [tables.DB].
func (d database) Transact(ctx context.Context, what string, fn func(tables.Writer) error) error {
	return d.s.call(ctx, what, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, d.s.pool, func(tx pgx.Tx) error { return judged(fn(conn{ctx, tx})) })
	})
}

// querier is the pool, whose statements are transactions of their own, or a
// transaction.
type querier interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// conn is a [tables.Writer] for one call.
type conn struct {
	ctx context.Context
	q   querier
}

// Query implements [tables.Reader].
func (c conn) Query(query string, args []any, row func(tables.Scan) error) error {
	rows, err := c.q.Query(c.ctx, query, args...)
	if err != nil {
		return said(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return said(rows.Err())
}

// Exec implements [tables.Writer].
func (c conn) Exec(query string, args ...any) (int64, error) {
	tag, err := c.q.Exec(c.ctx, query, args...)
	return tag.RowsAffected(), said(err)
}

// Changed implements [tables.Writer].
func (c conn) Changed(subject store.Subject) error {
	_, err := c.q.Exec(c.ctx, "select pg_notify($1, $2)", channel, string(subject))
	return said(err)
}

// Bulk implements [tables.Writer]: always one statement.
func (c conn) Bulk(b *tables.Bulk, _ int, row func(tables.Scan) error, args ...any) (int64, error) {
	if row == nil {
		return c.Exec(b.Rows, args...)
	}
	return 0, c.Query(b.Rows, args, row)
}
