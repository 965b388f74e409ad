package sqlitefile_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
)

func TestSettingsOnEveryConnection(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	want := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000"}
	for name, value := range want {
		var got string
		if err := f.Read().QueryRow("pragma " + name).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != value {
			t.Errorf("reader: %s = %s, want %s", name, got, value)
		}
		err := f.Write(context.Background(), func(tx *sqlitefile.Tx) error {
			return tx.Get("pragma "+name, nil, &got)
		})
		if err != nil || got != value {
			t.Errorf("writer: %s = %s, %v, want %s", name, got, err, value)
		}
	}
}

func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	if _, err := f.Read().Exec("insert into t values (1)"); err == nil {
		t.Fatal("a reader wrote")
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	_, err := sqlitefile.Open(path)
	if !errors.Is(err, sqlitefile.ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	if !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("%q does not name the process", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	_, path := withTable(t)
	out, err := childCommand(path).Output()
	if err == nil || !strings.Contains(string(out), "another gateway uses this directory") {
		t.Fatalf("child: %q, %v", out, err)
	}
}

func TestFilesAreTheOwnersOnly(t *testing.T) {
	t.Parallel()
	_, path := withTable(t)
	for _, name := range []string{path, path + "-wal", path + ".lock"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode().Perm())
		}
	}
}

func TestOddPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "what?mode=ro.db", "hash#tag.db", "per%20cent.db", "ünï.db"} {
		path := filepath.Join(t.TempDir(), "dir", name)
		f := open(t, path)
		write(t, f, "create table t (v integer)")
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestNotADatabase(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/gateway.db"
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitefile.Open(path); err == nil || !strings.Contains(err.Error(), "not a database") {
		t.Fatalf("got %v", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Err(); !errors.Is(err, sqlitefile.ErrClosed) {
		t.Errorf("Err = %v", err)
	}
	none := func(*sqlitefile.Tx) error { return nil }
	if err := f.Write(context.Background(), none); !errors.Is(err, sqlitefile.ErrClosed) {
		t.Errorf("Write = %v", err)
	}
	if err := f.Submit(none, func(error) { t.Error("done was called") }); !errors.Is(err, sqlitefile.ErrClosed) {
		t.Errorf("Submit = %v", err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the write-ahead log was not folded in: %v", err)
	}
}

// A process that is killed in the middle of group commits has stored all that
// it confirmed, and leaves no lock behind.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		confirmed := runUntilKilled(t, path, 200+100*round)
		f := open(t, path)
		stored := values(t, f)
		for _, v := range confirmed {
			if _, ok := slices.BinarySearch(stored, v); !ok {
				t.Fatalf("%d was confirmed and is not stored", v)
			}
		}
		if last := stored[len(stored)-1]; int(last) != len(stored)-1 {
			t.Fatalf("%d values up to %d: a later job was stored without an earlier one", len(stored), last)
		}
		write(t, f, "delete from t")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// runUntilKilled returns what a child confirmed before it was killed, n values
// or some more.
func runUntilKilled(t *testing.T, path string, n int) []int64 {
	t.Helper()
	cmd := childCommand(path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var confirmed []int64
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		v, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			t.Errorf("child: %s", lines.Text())
			break
		}
		confirmed = append(confirmed, v)
		if len(confirmed) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(confirmed) < n {
		t.Fatalf("the child confirmed %d values", len(confirmed))
	}
	return confirmed
}

func childCommand(path string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestShared(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	own := errors.New("own")
	if _, err := f.Shared("key", func() (any, error) { return nil, own }); !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
	for n := range 3 {
		v, err := f.Shared("key", func() (any, error) { return n, nil })
		if v != 0 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
	}
}
