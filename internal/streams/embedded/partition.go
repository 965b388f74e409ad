package embedded

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// maxPending and maxPendingBytes bound what waits for the writer on a
	// partition; a Send past one of them blocks until a commit has begun.
	maxPending      = 256
	maxPendingBytes = 16 << 20
)

// item is an entry on its way into the file.
type item struct {
	from *producer
	id   uint64
	at   int64  // when it was sent, in Unix milliseconds
	data []byte // a copy: its sender may go away before it is written
}

// partition is the state of one partition in memory, shared by all drivers on
// the file. What is durable is read from the file by each job: after a failed one there
// is nothing here to be put right.
type partition struct {
	file *sqlitefile.File
	n    int
	sql  texts
	room sync.Cond // there is room in pending, or a producer ended

	mu        sync.Mutex
	pending   []item // bounded by maxPending, maxPendingBytes
	bytes     int    // of pending
	queued    bool   // a job that will take pending is in the file's queue
	next      uint64 // the offset behind the last committed entry
	recent    recent // the last committed entries
	producers map[*producer]struct{}
	consumers map[*consumer]struct{}

	// Of the job that runs, in the writer's goroutine: there is at most one,
	// because the next is submitted when this has begun.
	taken  []item
	stored []streams.Entry // those of taken that were no repeats
	after  uint64          // next, once committed
}

func newPartition(file *sqlitefile.File, n int) *partition {
	p := &partition{
		file: file, n: n, sql: textsOf(n),
		producers: map[*producer]struct{}{},
		consumers: map[*consumer]struct{}{},
	}
	p.room.L = &p.mu
	return p
}

// append puts an entry on its way. It blocks while too much is.
func (p *partition) append(it item) error {
	p.mu.Lock()
	for !it.from.gone && p.full(len(it.data)) {
		p.room.Wait()
	}
	if it.from.gone {
		p.mu.Unlock()
		return streams.ErrClosed
	}
	p.pending = append(p.pending, it)
	p.bytes += len(it.data)
	submit := !p.queued
	p.queued = true
	p.mu.Unlock()
	if !submit {
		return nil
	}
	if err := p.file.Submit(p.write, p.written); err != nil {
		p.fail() // nothing of pending will be written
		return streams.ErrClosed
	}
	return nil
}

// full reports whether so many bytes have to wait. One entry is always let in.
func (p *partition) full(bytes int) bool {
	return len(p.pending) >= maxPending || len(p.pending) > 0 && p.bytes+bytes > maxPendingBytes
}

// write stores all that is pending. It runs in the writer's goroutine.
func (p *partition) write(tx *sqlitefile.Tx) error {
	p.mu.Lock()
	p.taken, p.pending = p.pending, p.taken[:0]
	p.bytes, p.queued = 0, false
	p.room.Broadcast()
	p.mu.Unlock()

	p.stored = p.stored[:0]
	if len(p.taken) == 0 {
		return nil // their producers have failed
	}
	var next, bytes int64
	if err := tx.Get(selectPartition, []any{p.n}, &next, &bytes); err != nil {
		return err
	}
	for i := 0; i < len(p.taken); {
		n := 1 // entries under one name in a row
		for i+n < len(p.taken) && p.taken[i+n].from.name == p.taken[i].from.name {
			n++
		}
		if err := p.writeRun(tx, p.taken[i:i+n], &next, &bytes); err != nil {
			return err
		}
		i += n
	}
	p.after = uint64(next)
	if len(p.stored) == 0 {
		return nil
	}
	_, err := tx.Exec(updatePartition, p.n, next, bytes)
	return err
}

// writeRun stores entries of one name. Those whose id is not above the last
// one stored under it are repeats and are passed over (delivery rule P2).
func (p *partition) writeRun(tx *sqlitefile.Tx, items []item, next, bytes *int64) error {
	name := items[0].from.name
	last, err := lastID(tx, p.n, name)
	if err != nil {
		return err
	}
	before := last
	for _, it := range items {
		if it.id <= last {
			continue
		}
		if _, err := tx.Exec(p.sql.insert, *next, it.at, it.data); err != nil {
			return fmt.Errorf("store entry %d of partition %d: %w", *next, p.n, err)
		}
		p.stored = append(p.stored, streams.Entry{Offset: uint64(*next), Data: it.data})
		last = it.id
		*next++
		*bytes += int64(len(it.data))
	}
	if last == before {
		return nil
	}
	_, err = tx.Exec(upsertProducer, p.n, name, toRow(last), *next-1)
	return err
}

func lastID(tx *sqlitefile.Tx, partition int, name string) (uint64, error) {
	var last int64
	err := tx.Get(selectLastID, []any{partition, name}, &last)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	return uint64(last), nil
}

// written is told the outcome of write, before the next write.
func (p *partition) written(err error) {
	if err != nil {
		p.failProducers(p.taken)
	} else {
		p.publish()
		for _, it := range p.taken {
			it.from.confirm(it.id)
		}
	}
	clear(p.taken)
	clear(p.stored)
}

// publish lets consumers have what was committed.
func (p *partition) publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stored) == 0 {
		return
	}
	for _, e := range p.stored {
		p.recent.add(e)
	}
	p.next = p.after
	for c := range p.consumers {
		c.signal()
	}
}

// failProducers ends the producers of entries that were not stored. What they
// have pending is dropped: stored behind a gap, it would make the log take a
// resend of the gap for a repeat.
func (p *partition) failProducers(items []item) {
	p.mu.Lock()
	failed := map[*producer]struct{}{}
	for _, it := range items {
		failed[it.from] = struct{}{}
	}
	kept := p.pending[:0]
	for _, it := range p.pending {
		if _, ok := failed[it.from]; ok {
			p.bytes -= len(it.data)
			continue
		}
		kept = append(kept, it)
	}
	clear(p.pending[len(kept):])
	p.pending = kept
	for f := range failed {
		p.forget(f)
	}
	p.mu.Unlock()
	for f := range failed {
		f.finish()
	}
}

// fail ends all producers: the file takes no jobs any more.
func (p *partition) fail() {
	p.mu.Lock()
	items := p.pending
	p.pending, p.bytes, p.queued = nil, 0, false
	p.mu.Unlock()
	p.failProducers(items)
}

// forget takes a producer out; its Sends fail from now on. mu is held.
func (p *partition) forget(f *producer) {
	f.gone = true
	delete(p.producers, f)
	p.room.Broadcast()
}

// leave ends the producers and consumers of a driver that was closed.
func (p *partition) leave(d *Driver) {
	p.mu.Lock()
	var producers []*producer
	for f := range p.producers {
		if f.d == d {
			producers = append(producers, f)
			p.forget(f)
		}
	}
	var consumers []*consumer
	for c := range p.consumers {
		if c.d == d {
			consumers = append(consumers, c)
			c.stop()
		}
	}
	p.mu.Unlock()
	for _, f := range producers {
		f.finish()
	}
	for _, c := range consumers {
		<-c.done
	}
}
