package sqlitefile_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"go.uber.org/goleak"
)

// childEnv names the file that a child process of a test writes to until it
// is killed.
const childEnv = "SQLITEFILE_TEST_CHILD"

// limitedEnv names the file of a child process that cannot make it larger.
const limitedEnv = "SQLITEFILE_TEST_LIMITED"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
		return
	}
	if path := os.Getenv(limitedEnv); path != "" {
		limitedChild(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// child writes rising numbers for ever and prints each that is confirmed.
func child(path string) {
	f, err := sqlitefile.Open(path)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	next := int64(0)
	for {
		// Several at once, so that the kill hits group commits.
		const n = 16
		acks := make(chan int64, n)
		for range n {
			v := next
			next++
			err := f.Submit(
				func(tx *sqlitefile.Tx) error {
					_, err := tx.Exec("insert into t (v) values ($1)", v)
					return err
				},
				func(err error) {
					if err != nil {
						panic(err)
					}
					acks <- v
				})
			if err != nil {
				panic(err)
			}
		}
		for range n {
			fmt.Fprintln(out, <-acks)
		}
		_ = out.Flush()
	}
}

func open(t *testing.T, path string) *sqlitefile.File {
	t.Helper()
	f, err := sqlitefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// withTable opens a fresh file with a table t (v integer unique).
func withTable(t *testing.T) (f *sqlitefile.File, path string) {
	t.Helper()
	path = t.TempDir() + "/gateway.db"
	f = open(t, path)
	write(t, f, "create table t (v integer primary key)")
	return f, path
}

func write(t *testing.T, f *sqlitefile.File, query string, args ...any) {
	t.Helper()
	err := f.Write(context.Background(), func(tx *sqlitefile.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, f *sqlitefile.File) []int64 {
	t.Helper()
	rows, err := f.Read().Query("select v from t order by v")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []int64
	for rows.Next() {
		var v int64
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
