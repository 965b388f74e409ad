package sqlitefile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"golang.org/x/sys/unix"
)

// A full disk fails the jobs that need room, and all jobs tell the truth about
// what is stored; when there is room again, writing goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	write(t, f, "create table blobs (v integer primary key, b blob)")
	write(t, f, "pragma max_page_count = 20")
	large := make([]byte, 200_000)
	release := hold(t, f)
	results := make(chan error, 3)
	for i, fn := range []func(*sqlitefile.Tx) error{
		insert(1),
		func(tx *sqlitefile.Tx) error {
			_, err := tx.Exec("insert into blobs values (1, $1)", append(large, large...))
			return err
		},
		insert(2),
	} {
		if err := f.Submit(fn, func(err error) { results <- err }); err != nil {
			t.Fatal(i, err)
		}
	}
	release()
	first, full, second := <-results, <-results, <-results
	if full == nil || !strings.Contains(full.Error(), "full") {
		t.Errorf("the large job: %v", full)
	}
	want := 0
	for _, err := range []error{first, second} {
		if err == nil {
			want++
		}
	}
	if got := values(t, f); len(got) != want {
		t.Errorf("%d jobs were confirmed, stored is %v", want, got)
	}
	if err := f.Err(); err != nil {
		t.Errorf("a full disk is not a broken one: %v", err)
	}
	write(t, f, "pragma max_page_count = 1000000")
	write(t, f, "insert into blobs values (2, $1)", large)
	write(t, f, "insert into t values (3)")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := values(t, open(t, path)); len(got) != want+1 {
		t.Errorf("stored is %v", got)
	}
}

// When the system fails under a write, the file takes no more: nobody knows
// what the next sync would bring to the disk. Opened anew it holds all that
// was confirmed.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), limitedEnv+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f = open(t, path)
	if got := values(t, f); len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("stored is %v", got)
	}
	write(t, f, "insert into t values (3)")
}

// limitedChild writes until it may not make its files larger. It ends with
// code 1 if that does not break the file.
func limitedChild(path string) {
	signal.Ignore(unix.SIGXFSZ)
	f, err := sqlitefile.Open(path)
	check(err)
	ctx := context.Background()
	check(f.Write(ctx, insert(1)))
	check(f.Write(ctx, insert(2)))
	info, err := os.Stat(path + "-wal")
	check(err)
	limit := uint64(info.Size()) + 10_000 // a piece of a page
	check(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}))
	first, second := f.Write(ctx, insert(4)), f.Write(ctx, insert(5))
	if !errors.Is(first, sqlitefile.ErrBroken) || !errors.Is(second, sqlitefile.ErrBroken) || !errors.Is(f.Err(), sqlitefile.ErrBroken) {
		fmt.Println("writes:", first, second, "file:", f.Err())
		os.Exit(1)
	}
	_ = f.Close()
}

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
