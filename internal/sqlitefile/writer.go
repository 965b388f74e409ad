package sqlitefile

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
)

const (
	// queueLen bounds the jobs that wait for the writer.
	queueLen = 1024
	// maxBatch bounds the jobs of one transaction, so that the first of a
	// crowd does not wait for all of it.
	maxBatch = 256
)

// job is one user's part of a transaction.
type job struct {
	fn     func(*Tx) error
	alone  func(*sql.DB) error // instead of fn: outside of any transaction
	done   func(error)
	state  atomic.Int32
	result error
}

const (
	jobWaits int32 = iota
	jobRuns
	jobCancelled
)

// Submit hands fn over to the writer, which runs it in a transaction together
// with other jobs and then calls done with the outcome: nil when what fn wrote
// is on the disk, else the error and nothing was written. An error of fn undoes
// its own writes only. Jobs run in the order of submission, and done functions
// are called in that order too, exactly once each.
//
// fn and done run in the writer's goroutine: they hold up all writes, and must
// not call a method of this File that writes or closes. Submit blocks while
// the queue is full. It returns [ErrClosed] after Close, and does not call done
// then.
func (f *File) Submit(fn func(*Tx) error, done func(error)) error {
	return f.enqueue(context.Background(), &job{fn: fn, done: done})
}

// Write runs fn as Submit does and waits for its outcome. If ctx ends before
// fn has begun, fn does not run and Write returns the error of ctx; once it has
// begun, Write waits for the disk, so that the outcome is always known.
func (f *File) Write(ctx context.Context, fn func(*Tx) error) error {
	return f.wait(ctx, &job{fn: fn})
}

// Exclusive runs fn with a pool of one connection for writing while no other
// job runs, and outside of a transaction: for migrations. fn leaves no
// connection and no transaction open.
func (f *File) Exclusive(ctx context.Context, fn func(*sql.DB) error) error {
	return f.wait(ctx, &job{alone: fn})
}

func (f *File) wait(ctx context.Context, j *job) error {
	outcome := make(chan error, 1)
	j.done = func(err error) { outcome <- err }
	if err := f.enqueue(ctx, j); err != nil {
		return err
	}
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		if j.state.CompareAndSwap(jobWaits, jobCancelled) {
			return ctx.Err()
		}
		return <-outcome
	}
}

func (f *File) enqueue(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return ErrClosed
	}
	select {
	case <-f.closing:
		return ErrClosed
	default:
	}
	select {
	case f.queue <- j:
		return nil
	case <-f.closing:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the writer. It ends when the queue is closed and empty.
func (f *File) run(tx *Tx) {
	defer close(f.stopped)
	batch := make([]*job, 0, maxBatch)
	for j := range f.queue {
		batch = append(batch[:0], j)
		batch = f.gather(batch)
		tx = f.process(tx, batch)
		clear(batch)
	}
	if tx != nil {
		tx.close()
	}
}

// gather appends what waits, without waiting.
func (f *File) gather(batch []*job) []*job {
	for len(batch) < maxBatch {
		select {
		case j, ok := <-f.queue:
			if !ok {
				return batch
			}
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// process runs a batch in its order and returns the writer's connection, nil
// if it has none.
func (f *File) process(tx *Tx, batch []*job) *Tx {
	for len(batch) > 0 {
		n := 0
		for n < len(batch) && batch[n].alone == nil {
			n++
		}
		if n > 0 {
			tx = f.commit(tx, batch[:n])
			batch = batch[n:]
			continue
		}
		tx = f.runAlone(tx, batch[0])
		batch = batch[1:]
	}
	return tx
}

func (f *File) runAlone(tx *Tx, j *job) *Tx {
	if !j.state.CompareAndSwap(jobWaits, jobRuns) {
		return tx
	}
	if err := f.brokenBy(); err != nil {
		j.done(err)
		return tx
	}
	if tx != nil {
		tx.close()
	}
	err := j.alone(f.write)
	// A failure leaves the writer without a connection; commit tries again.
	next, _ := newTx(context.Background(), f.write)
	j.done(err)
	return next
}

// commit runs jobs in one transaction and tells each its outcome.
func (f *File) commit(tx *Tx, jobs []*job) *Tx {
	live := jobs[:0]
	for _, j := range jobs {
		if j.state.CompareAndSwap(jobWaits, jobRuns) {
			live = append(live, j)
		}
	}
	if len(live) == 0 {
		return tx
	}
	err := f.brokenBy()
	if err == nil && tx == nil {
		tx, err = newTx(context.Background(), f.write)
	}
	if err == nil {
		err = f.transact(tx, live)
	}
	for _, j := range live {
		if j.result == nil {
			j.result = err
		}
		j.done(j.result)
	}
	if tx != nil && err == nil {
		f.fold(tx)
	}
	return tx
}

// transact commits jobs. The results of those that failed by themselves are in
// the jobs; an error is that of all others.
func (f *File) transact(tx *Tx, jobs []*job) error {
	err := tx.run("begin immediate")
	if err == nil {
		err = runJobs(tx, jobs)
		if err == nil {
			err = tx.run("commit")
		}
		if err != nil {
			_ = tx.run("rollback") // fails if SQLite has done so already
		}
	}
	if err == nil {
		return nil
	}
	if breaks(err) {
		f.breakBy(err)
		return f.brokenBy()
	}
	return fmt.Errorf("sqlitefile: %w", err)
}

// runJobs runs the functions, each behind a savepoint if it has neighbours. An
// error means that the transaction is lost.
func runJobs(tx *Tx, jobs []*job) error {
	if len(jobs) == 1 {
		jobs[0].result = jobs[0].fn(tx)
		return jobs[0].result
	}
	for _, j := range jobs {
		if err := tx.run("savepoint job"); err != nil {
			return err
		}
		if j.result = j.fn(tx); j.result != nil {
			// A full or failing disk makes SQLite undo everything; then the
			// savepoint is gone and this fails.
			if err := tx.run("rollback to job"); err != nil {
				return fmt.Errorf("%w (undone with a neighbour: %w)", err, j.result)
			}
		}
		if err := tx.run("release job"); err != nil {
			return err
		}
	}
	return nil
}
