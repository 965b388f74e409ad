package sqlite

import (
	"context"
	"database/sql"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/feed"
	"github.com/aether-gateway/gateway/internal/store/tables"
)

// database is the [tables.DB] of a store. All that it writes at once is a job
// of the file's one writer, and so a transaction.
type database struct {
	file *sqlitefile.File
	hub  *feed.Hub
}

// batch rows take the writer some 5 ms, so that it does not keep the log
// waiting.
const batch = 500

// Read implements [tables.DB].
func (d database) Read(ctx context.Context, what string, fn func(tables.Reader) error) error {
	return failed(what, fn(reader{ctx, d.file.Read()}))
}

// Write implements [tables.DB].
func (d database) Write(ctx context.Context, what string, fn func(tables.Writer) error) error {
	var w *writer
	err := d.file.Write(ctx, func(tx *sqlitefile.Tx) error {
		w = &writer{tx: tx}
		return fn(w)
	})
	if err == nil {
		d.hub.Changed(w.changed...)
	}
	return failed(what, err)
}

// Transact implements [tables.DB].
func (d database) Transact(ctx context.Context, what string, fn func(tables.Writer) error) error {
	return d.Write(ctx, what, fn)
}

// reader is a [tables.Reader] for one call.
type reader struct {
	ctx context.Context
	db  *sql.DB
}

// Query implements [tables.Reader].
func (r reader) Query(query string, args []any, row func(tables.Scan) error) error {
	rows, err := r.db.QueryContext(r.ctx, query, args...)
	if err != nil {
		return err
	}
	return each(rows, row)
}

func each(rows *sql.Rows, row func(tables.Scan) error) error {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// writer is a [tables.Writer] for one job.
type writer struct {
	tx      *sqlitefile.Tx
	changed []store.Subject
}

// Query implements [tables.Reader].
func (w *writer) Query(query string, args []any, row func(tables.Scan) error) error {
	rows, err := w.tx.Query(query, args...)
	if err != nil {
		return err
	}
	return each(rows, row)
}

// Exec implements [tables.Writer].
func (w *writer) Exec(query string, args ...any) (int64, error) {
	result, err := w.tx.Exec(query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Changed implements [tables.Writer].
func (w *writer) Changed(subject store.Subject) error {
	w.changed = append(w.changed, subject)
	return nil
}

// Bulk implements [tables.Writer], a row at a time: arrays, which SQLite would
// have to take as JSON, were not faster.
func (w *writer) Bulk(b *tables.Bulk, n int, row func(tables.Scan) error, args ...any) (int64, error) {
	var total int64
	values := make([]any, len(args))
	for i := range n {
		for k, arg := range args {
			switch column := arg.(type) {
			case []string:
				values[k] = column[i]
			case []int64:
				values[k] = column[i]
			default:
				values[k] = arg
			}
		}
		if row != nil {
			if err := w.Query(b.Row, values, row); err != nil {
				return 0, err
			}
			continue
		}
		changed, err := w.Exec(b.Row, values...)
		if err != nil {
			return 0, err
		}
		total += changed
	}
	return total, nil
}
