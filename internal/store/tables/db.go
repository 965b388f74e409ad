package tables

import (
	"context"
	"slices"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// DB runs statements on one engine. A function that it is given may be run
// again from its beginning after a lost connection, so it keeps nothing from an
// earlier run. The text what says what was tried, for the error; it wraps what
// the driver said, and nil stays nil.
type DB interface {
	// Read runs fn outside of a transaction.
	Read(ctx context.Context, what string, fn func(Reader) error) error
	// Write runs fn, which runs one statement. It returns nil when that is
	// durable.
	Write(ctx context.Context, what string, fn func(Writer) error) error
	// Transact runs fn in one transaction, and returns nil when that is
	// durable. An error of fn undoes it.
	Transact(ctx context.Context, what string, fn func(Writer) error) error
}

// Scan reads the columns of the row at hand.
type Scan func(dest ...any) error

// Reader runs statements that change nothing.
type Reader interface {
	// Query calls row for each row of the answer.
	Query(query string, args []any, row func(Scan) error) error
}

// Writer runs statements.
type Writer interface {
	Reader
	// Exec returns how many rows the statement changed.
	Exec(query string, args ...any) (int64, error)
	// Bulk runs a statement for n rows. Each argument is a column, a []string
	// or []int64 of length n, or one value for all rows. If row is not nil, it
	// is called for each row of the answer. Bulk returns how many rows were
	// changed if row is nil.
	Bulk(b *Bulk, n int, row func(Scan) error, args ...any) (int64, error)
	// Changed has those who follow the subject told, when the transaction is
	// visible and only if it becomes so. It is for [DB.Transact].
	Changed(subject store.Subject) error
}

// Bulk is a statement for many rows, as two texts with the same parameters: an
// engine takes the one that it can run.
type Bulk struct {
	// Row has the values of one row.
	Row string
	// Rows has the columns of all rows, as arrays, so that a call of any size
	// is one statement of one text.
	Rows string
}

// Options configure [Tables].
type Options struct {
	// Now is the clock that says when a row was written. Required.
	Now func() time.Time
	// Batch is how many rows a call stores at once; 0 is all.
	Batch int
	// ForUpdate ends a select that keeps others from changing the row until the
	// transaction has ended; empty where transactions follow one another.
	ForUpdate string
}

// Tables implements the interfaces of package store on a [DB]. It is safe for
// concurrent use.
type Tables struct {
	db DB
	o  Options
}

// New returns the tables in db.
func New(db DB, o Options) *Tables { return &Tables{db: db, o: o} }

func (t *Tables) now() int64 { return t.o.Now().UnixMilli() }

// batches cuts rows as the engine wants them. No rows are no batch.
func batches[T any](t *Tables, rows []T) [][]T {
	if t.o.Batch <= 0 || len(rows) <= t.o.Batch {
		if len(rows) == 0 {
			return nil
		}
		return [][]T{rows}
	}
	return slices.Collect(slices.Chunk(rows, t.o.Batch))
}

// expireBatch is how many rows one statement expires, so that nobody waits long
// for it.
const expireBatch = 1000

// expire removes rows until none is left. The query takes a time in Unix
// milliseconds and how many rows to remove at most. It asks for the time twice:
// PostgreSQL looks at a row that was written meanwhile once more, but only with
// the outer condition.
func (t *Tables) expire(ctx context.Context, what, query string, before time.Time) (int64, error) {
	for total := int64(0); ; {
		var removed int64
		err := t.db.Write(ctx, what, func(w Writer) (err error) {
			removed, err = w.Exec(query, before.UnixMilli(), expireBatch)
			return err
		})
		if err != nil {
			return total, err
		}
		total += removed
		if removed < expireBatch {
			return total, nil
		}
	}
}

// one reads at most one row; found is false if there is none.
func one(r Reader, query string, args []any, dest ...any) (found bool, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		found = true
		return scan(dest...)
	})
	return found, err
}

// bulk is a statement for n rows that answers nothing.
func (t *Tables) bulk(ctx context.Context, what string, b *Bulk, n int, args ...any) (changed int64, err error) {
	err = t.db.Write(ctx, what, func(w Writer) (err error) {
		changed, err = w.Bulk(b, n, nil, args...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// counts returns the numbers of a query, by the text before each.
func (t *Tables) counts(ctx context.Context, what, query string) (map[string]int64, error) {
	var counts map[string]int64
	err := t.db.Read(ctx, what, func(r Reader) error {
		counts = map[string]int64{}
		return r.Query(query, nil, func(scan Scan) error {
			var text string
			var n int64
			err := scan(&text, &n)
			counts[text] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// tell has the followers of a subject told if a statement has changed rows.
func tell(w Writer, changed int64, err error, subject store.Subject) error {
	if err != nil || changed == 0 {
		return err
	}
	return w.Changed(subject)
}
