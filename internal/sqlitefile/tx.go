package sqlitefile

import (
	"context"
	"database/sql"
)

// maxStatements bounds the prepared statements of the writer. Its users run a
// few dozen constant texts; past the bound all are dropped and prepared anew.
const maxStatements = 128

// Tx is the transaction of a job. It is used by the job's function only, and
// only until that returns. Rows are closed before the next call.
//
// Its calls take no context: a statement that is interrupted makes SQLite
// undo the whole transaction, the neighbours' jobs included.
type Tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newTx(ctx context.Context, db *sql.DB) (*Tx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &Tx{conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

// Exec runs a statement that returns no rows.
func (tx *Tx) Exec(query string, args ...any) (sql.Result, error) {
	s, err := tx.prepare(query)
	if err != nil {
		return nil, err
	}
	return s.Exec(args...)
}

// Query runs a statement that returns rows. The caller closes them.
func (tx *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	s, err := tx.prepare(query)
	if err != nil {
		return nil, err
	}
	return s.Query(args...)
}

// Get reads the columns of the first row into dest. It returns
// [sql.ErrNoRows] if there is none.
func (tx *Tx) Get(query string, args []any, dest ...any) error {
	s, err := tx.prepare(query)
	if err != nil {
		return err
	}
	return s.QueryRow(args...).Scan(dest...)
}

func (tx *Tx) prepare(query string) (*sql.Stmt, error) {
	if s, ok := tx.stmts[query]; ok {
		return s, nil
	}
	if len(tx.stmts) >= maxStatements {
		tx.forget()
	}
	s, err := tx.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	tx.stmts[query] = s
	return s, nil
}

func (tx *Tx) forget() {
	for _, s := range tx.stmts {
		_ = s.Close()
	}
	clear(tx.stmts)
}

func (tx *Tx) close() {
	tx.forget()
	_ = tx.conn.Close()
}

func (tx *Tx) run(query string) error {
	_, err := tx.Exec(query)
	return err
}
