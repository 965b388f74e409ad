package sqlitefile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"

	"modernc.org/sqlite"
)

// busyTimeout is how long a connection waits for a lock, in milliseconds.
const busyTimeout = "5000"

// settings are given to every connection and read back from it. A build or a
// file that silently ignores one of them would lose what was confirmed.
var settings = []struct{ key, pragma, set, want string }{
	{"_busy_timeout", "busy_timeout", busyTimeout, busyTimeout},
	{"_foreign_keys", "foreign_keys", "1", "1"},
	{"_journal_mode", "journal_mode", "WAL", "wal"},
	{"_synchronous", "synchronous", "FULL", "2"},
}

// connector opens connections with the settings and asserts them.
type connector struct{ driver.Connector }

func newPool(path string, readOnly bool, conns int) (*sql.DB, error) {
	query := url.Values{}
	for _, s := range settings {
		query.Set(s.key, s.set)
	}
	query.Set("_dqs", "0")       // a misspelled column is an error, not a text
	query.Set("_defensive", "1") // no statement may corrupt the file
	query.Set("_error_rc", "1")
	if readOnly {
		query.Set("mode", "ro")
		query.Set("_query_only", "1")
	} else {
		// Measured with entries of 100 KB and of 300 B: larger pages make the
		// former twice as fast, and cost the latter nothing. They are fixed
		// when the file is created. The write-ahead log is folded into the
		// file at 16 MB, the writer's cache holds as much.
		query.Add("_pragma", "page_size(16384)")
		query.Add("_pragma", "wal_autocheckpoint(1000)")
		query.Add("_pragma", "cache_size(-16384)")
	}
	dsn := (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
	inner, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector{inner})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		if err := assertPragma(ctx, conn, s.pragma, s.want); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

func assertPragma(ctx context.Context, conn driver.Conn, name, want string) error {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return errors.New("sqlitefile: the driver cannot be asked for its settings")
	}
	rows, err := q.QueryContext(ctx, "pragma "+name, nil)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	// A pragma that this build does not have returns no row.
	got := ""
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err == nil && len(row) > 0 {
		got = fmt.Sprint(row[0])
	} else if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if got != want {
		return &PragmaError{Name: name, Want: want, Got: got}
	}
	return nil
}
