package sqlitefile_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
)

func insert(v int64) func(*sqlitefile.Tx) error {
	return func(tx *sqlitefile.Tx) error {
		_, err := tx.Exec("insert into t (v) values ($1)", v)
		return err
	}
}

// hold occupies the writer until the returned function is called, so that
// what is submitted meanwhile forms one batch.
func hold(t *testing.T, f *sqlitefile.File) (release func()) {
	t.Helper()
	running, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	err := f.Submit(func(*sqlitefile.Tx) error {
		close(running)
		<-free
		return nil
	}, func(err error) { done <- err })
	if err != nil {
		t.Fatal(err)
	}
	<-running
	return func() {
		close(free)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestFailingJobLeavesItsNeighbours(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	own := errors.New("own")
	release := hold(t, f)
	var mu sync.Mutex
	var order []int
	results := map[int]error{}
	var all sync.WaitGroup
	submit := func(i int, fn func(*sqlitefile.Tx) error) {
		all.Add(1)
		err := f.Submit(fn, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			order, results[i] = append(order, i), err
			all.Done()
		})
		if err != nil {
			t.Error(err)
		}
	}
	submit(0, insert(10))
	submit(1, func(tx *sqlitefile.Tx) error {
		if err := insert(11)(tx); err != nil {
			return err
		}
		return own // its insert is undone
	})
	submit(2, insert(10)) // a duplicate
	submit(3, insert(12))
	submit(4, func(tx *sqlitefile.Tx) error { _, err := tx.Exec("nonsense"); return err })
	submit(5, insert(13))
	release()
	all.Wait()
	if got := values(t, f); !slices.Equal(got, []int64{10, 12, 13}) {
		t.Errorf("stored %v", got)
	}
	for _, i := range []int{0, 3, 5} {
		if results[i] != nil {
			t.Errorf("job %d: %v", i, results[i])
		}
	}
	if !errors.Is(results[1], own) || results[2] == nil || results[4] == nil {
		t.Errorf("results %v", results)
	}
	if !slices.IsSorted(order) {
		t.Errorf("done in order %v", order)
	}
	if err := f.Err(); err != nil {
		t.Error(err)
	}
}

func TestSingleFailingJob(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	own := errors.New("own")
	err := f.Write(context.Background(), func(tx *sqlitefile.Tx) error {
		return errors.Join(insert(1)(tx), own)
	})
	if !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
	if got := values(t, f); len(got) != 0 {
		t.Errorf("stored %v", got)
	}
	write(t, f, "insert into t values (2)")
}

func TestConcurrentWrites(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	const writers, each = 16, 20
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if err := f.Write(context.Background(), insert(int64(w*each+i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := values(t, f); len(got) != writers*each {
		t.Errorf("stored %d", len(got))
	}
}

func TestWriteCancelledBeforeItRuns(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	release := hold(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- f.Write(ctx, insert(1)) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	release()
	write(t, f, "insert into t values (2)")
	if got := values(t, f); !slices.Equal(got, []int64{2}) {
		t.Errorf("stored %v", got)
	}
}

// A write whose context ends while it runs tells how it came out.
func TestWriteCancelledWhileItRuns(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	ctx, cancel := context.WithCancel(context.Background())
	err := f.Write(ctx, func(tx *sqlitefile.Tx) error {
		cancel()
		return insert(1)(tx)
	})
	if err != nil {
		t.Errorf("got %v", err)
	}
	if got := values(t, f); !slices.Equal(got, []int64{1}) {
		t.Errorf("stored %v", got)
	}
}

func TestCloseFinishesWhatWasSubmitted(t *testing.T) {
	t.Parallel()
	f, path := withTable(t)
	release := hold(t, f)
	done := make(chan error, 10)
	for i := range 10 {
		if err := f.Submit(insert(int64(i)), func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	release()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := values(t, open(t, path)); len(got) != 10 {
		t.Errorf("stored %v", got)
	}
}

// Submits that wait for room in the queue end when the file is closed.
func TestFullQueueAndClose(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	release := hold(t, f)
	const jobs = 1500
	var submitted, refused, done int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range jobs {
		all.Go(func() {
			err := f.Submit(func(*sqlitefile.Tx) error { return nil }, func(error) { mu.Lock(); done++; mu.Unlock() })
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				submitted++
			case errors.Is(err, sqlitefile.ErrClosed):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	all.Wait()
	release()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if submitted+refused != jobs || done != submitted || refused == 0 {
		t.Errorf("%d submitted, %d done, %d refused", submitted, done, refused)
	}
}

func TestExclusive(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	release := hold(t, f)
	var all sync.WaitGroup
	all.Go(func() {
		err := f.Exclusive(context.Background(), func(db *sql.DB) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			if _, err := tx.Exec("alter table t add column w integer"); err != nil {
				return err
			}
			return tx.Commit()
		})
		if err != nil {
			t.Error(err)
		}
	})
	for i := range 20 {
		all.Go(func() {
			if err := f.Write(context.Background(), insert(int64(i))); err != nil {
				t.Error(err)
			}
		})
	}
	release()
	all.Wait()
	write(t, f, "update t set w = v")
	own := errors.New("own")
	if err := f.Exclusive(context.Background(), func(*sql.DB) error { return own }); !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
	write(t, f, "update t set w = v")
}

// More statement texts than the writer keeps prepared.
func TestManyStatements(t *testing.T) {
	t.Parallel()
	f, _ := withTable(t)
	err := f.Write(context.Background(), func(tx *sqlitefile.Tx) error {
		query := "insert into t values ($1)"
		for i := range 300 {
			query += " "
			if _, err := tx.Exec(query, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := values(t, f); len(got) != 300 {
		t.Errorf("stored %d", len(got))
	}
}
