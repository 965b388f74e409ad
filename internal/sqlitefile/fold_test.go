package sqlitefile_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
)

// Readers that follow on each other without a gap kept the write-ahead log
// from beginning anew: it grew with every write for as long as they went on.
func TestReadersDoNotGrowTheLog(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	write(t, f, "create table blobs (b blob)")
	const step = 2 << 20
	if err := f.SetFoldStep(step); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64<<10)
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	reader := func() *sql.Tx {
		tx, err := f.Read().BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Error(err)
			return nil
		}
		var n int
		if err := tx.QueryRow("select count(*) from blobs").Scan(&n); err != nil { // its snapshot begins
			t.Error(err)
		}
		return tx
	}
	// One that never ends: nothing can be done, writes go on.
	old := reader()
	for size() < step+step/2 {
		write(t, f, "insert into blobs values ($1)", data)
	}

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for next := reader(); old != nil && next != nil; old, next = next, reader() {
			_ = old.Rollback() // next has begun: there is always one
			select {
			case <-stop:
				_ = next.Rollback()
				return
			default:
			}
		}
	}()
	for range 150 { // 9 MB
		write(t, f, "insert into blobs values ($1)", data)
	}
	if size() > 4*step {
		t.Errorf("the log has %d bytes", size())
	}
	close(stop)
	<-stopped
}
