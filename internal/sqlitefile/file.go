package sqlitefile

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// readers is the size of the read pool. More would not read faster on the
// cores that an embedded gateway has; a read past it waits for its turn.
const readers = 4

// File is an open SQLite file. It is safe for concurrent use.
type File struct {
	path  string
	lock  *os.File
	write *sql.DB // one connection, the writer goroutine's
	read  *sql.DB

	// queue holds the jobs that wait, [queueLen] at most; a Submit past that
	// blocks until the writer has taken some.
	queue   chan *job
	closing chan struct{} // closed first: no new jobs
	stopped chan struct{} // closed by the writer when the last job is done

	mu     sync.RWMutex // held for reading while a job is enqueued
	closed bool

	// foldAt is the size of the write-ahead log, in bytes, at which the writer
	// insists on folding it in; foldStep is how much it grows before the next
	// attempt. Of the writer's goroutine.
	foldAt, foldStep int64

	errMu  sync.Mutex
	broken error

	sharedMu sync.Mutex
	shared   map[string]any // a few constant keys
}

// Open opens the SQLite file at path, and creates it and its directory
// (readable by the owner only) if missing. It returns [ErrInUse] while someone
// else has it open, and a [PragmaError] if the file cannot be made durable.
func Open(path string) (*File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlitefile: %w", err)
	}
	f := &File{
		path:     abs,
		queue:    make(chan *job, queueLen),
		closing:  make(chan struct{}),
		stopped:  make(chan struct{}),
		foldAt:   foldStep,
		foldStep: foldStep,
		shared:   map[string]any{},
	}
	tx, err := f.open()
	if err != nil {
		_ = f.release()
		return nil, fmt.Errorf("sqlitefile: open %s: %w", filepath.Base(abs), err)
	}
	go f.run(tx)
	return f, nil
}

func (f *File) open() (*Tx, error) {
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if f.lock, err = lockFile(f.path + ".lock"); err != nil {
		return nil, err
	}
	// SQLite gives its other files the permissions of this one.
	created, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := created.Close(); err != nil {
		return nil, err
	}
	if f.write, err = newPool(f.path, false, 1); err != nil {
		return nil, err
	}
	tx, err := newTx(context.Background(), f.write)
	if err != nil {
		return nil, err
	}
	if f.read, err = newPool(f.path, true, readers); err == nil {
		err = f.read.Ping()
	}
	if err == nil {
		err = syncDir(dir) // the names of the files are durable too
	}
	if err != nil {
		tx.close()
		return nil, err
	}
	return tx, nil
}

// Path returns the absolute path of the file.
func (f *File) Path() string { return f.path }

// Read returns the pool of read-only connections. A read sees what was
// committed when it began. Its users close their rows, and do not close it.
func (f *File) Read() *sql.DB { return f.read }

// Shared returns what the users of this file share under a key. If there is
// nothing yet, it calls create and keeps what that returns without an error.
// It lives as long as the File.
func (f *File) Shared(key string, create func() (any, error)) (any, error) {
	f.sharedMu.Lock()
	defer f.sharedMu.Unlock()
	if v, ok := f.shared[key]; ok {
		return v, nil
	}
	v, err := create()
	if err == nil {
		f.shared[key] = v
	}
	return v, err
}

// Err returns why the file takes no more writes: [ErrBroken] or [ErrClosed],
// wrapped; nil while it does.
func (f *File) Err() error {
	select {
	case <-f.closing:
		return ErrClosed
	default:
	}
	return f.brokenBy()
}

// Close finishes the jobs that were submitted and closes the file. It must
// not be called from a job.
func (f *File) Close() error {
	f.mu.RLock()
	first := !f.closed
	f.mu.RUnlock()
	if first {
		f.shut()
	}
	<-f.stopped
	return f.release()
}

// shut ends the queue, once.
func (f *File) shut() {
	f.errMu.Lock()
	select {
	case <-f.closing:
	default:
		close(f.closing) // wakes those who wait for room and hold mu
	}
	f.errMu.Unlock()

	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.queue)
	}
}

// release closes what is open. Readers go first, so that the writer's
// connection is the last one and folds the write-ahead log into the file.
func (f *File) release() error {
	f.errMu.Lock()
	defer f.errMu.Unlock()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = fmt.Errorf("sqlitefile: close: %w", err)
		}
	}
	if f.read != nil {
		keep(f.read.Close())
	}
	if f.write != nil {
		keep(f.write.Close())
	}
	if f.lock != nil {
		keep(unlockFile(f.lock))
		f.lock = nil
	}
	return first
}

func (f *File) brokenBy() error {
	f.errMu.Lock()
	defer f.errMu.Unlock()
	return f.broken
}

func (f *File) breakBy(err error) {
	f.errMu.Lock()
	defer f.errMu.Unlock()
	if f.broken == nil {
		f.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}
