package embedded

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// batchEntries and batchBytes bound what a consumer reads at once. The
	// bytes may be passed by the last entry.
	batchEntries = 64
	batchBytes   = 1 << 20
)

// consumer reads a partition upwards.
type consumer struct {
	d      *Driver
	part   *partition
	handle func(streams.Entry)
	ctx    context.Context
	stop   context.CancelFunc
	wake   chan struct{} // buffered: something was committed
	done   chan struct{}
}

func (d *Driver) consume(p *partition, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	ctx, stop := context.WithCancel(context.Background())
	c := &consumer{
		d: d, part: p, handle: handle, ctx: ctx, stop: stop,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.closed.Load() {
		stop()
		return nil, streams.ErrClosed
	}
	position, _ := from.Offset()
	if from.IsNext() {
		position = p.next
	}
	p.consumers[c] = struct{}{}
	if since, ok := from.Time(); ok {
		go c.runSince(since, p.next)
		return c, nil
	}
	go c.run(position)
	return c, nil
}

// runSince is run from a time on. end is the offset behind the last entry.
func (c *consumer) runSince(since time.Time, end uint64) {
	position, err := c.part.since(c.ctx, since, end)
	if err != nil {
		c.leave()
		close(c.done)
		return
	}
	c.run(position)
}

// since returns the offset of the first entry below end that was stored at a
// time or later, or end. Times rise with offsets, but for steps of the clock.
func (p *partition) since(ctx context.Context, t time.Time, end uint64) (uint64, error) {
	low, high := uint64(0), end
	for low < high {
		middle := low + (high-low)/2
		var at int64
		err := p.file.Read().QueryRowContext(ctx, p.sql.at, toRow(middle)).Scan(&at)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			high = middle
		case err != nil:
			return 0, err
		case at < t.UnixMilli():
			low = middle + 1
		default:
			high = middle
		}
	}
	return low, nil
}

func (c *consumer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run hands on the entries from an offset on. An error of the file ends it.
func (c *consumer) run(position uint64) {
	defer close(c.done)
	defer c.leave()
	batch := make([]streams.Entry, 0, batchEntries)
	for c.ctx.Err() == nil {
		var end uint64 // everything below it is in batch, trimmed, or handled
		var err error
		batch, end, err = c.next(position, batch[:0])
		if err != nil {
			return
		}
		if end <= position {
			select {
			case <-c.wake:
			case <-c.ctx.Done():
			}
			continue
		}
		for _, e := range batch {
			if c.ctx.Err() != nil {
				return
			}
			c.handle(e)
		}
		clear(batch)
		position = end
	}
}

// next returns committed entries from position on, and the position behind
// them; position itself if nothing is committed there yet.
func (c *consumer) next(position uint64, batch []streams.Entry) ([]streams.Entry, uint64, error) {
	c.part.mu.Lock()
	committed := c.part.next
	if position < committed {
		batch = c.part.recent.from(position, batch)
	}
	c.part.mu.Unlock()
	if position >= committed {
		return batch, position, nil
	}
	if n := len(batch); n > 0 {
		return batch, batch[n-1].Offset + 1, nil
	}
	return c.part.read(c.ctx, position, committed, batch)
}

// read reads entries from the file, from position on and below end.
func (p *partition) read(ctx context.Context, position, end uint64, batch []streams.Entry) ([]streams.Entry, uint64, error) {
	rows, err := p.file.Read().QueryContext(ctx, p.sql.read, toRow(position), toRow(end), cap(batch))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	for bytes := 0; bytes < batchBytes && rows.Next(); {
		var offset int64
		data := []byte{}
		if err := rows.Scan(&offset, &data); err != nil {
			return nil, 0, err
		}
		batch = append(batch, streams.Entry{Offset: uint64(offset), Data: data})
		if bytes += len(data); bytes >= batchBytes || len(batch) == cap(batch) {
			return batch, uint64(offset) + 1, nil
		}
	}
	// No more below end: what is missing was trimmed.
	return batch, end, rows.Err()
}

// first returns the first entry that is left; without one, the offset that the
// next will have.
func (p *partition) first(ctx context.Context) (streams.Entry, error) {
	p.mu.Lock()
	next := p.next // before the rows: what comes after it is no loss
	p.mu.Unlock()
	var offset int64
	data := []byte{}
	err := p.file.Read().QueryRowContext(ctx, p.sql.first).Scan(&offset, &data)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return streams.Entry{Offset: next}, nil
	case err != nil:
		return streams.Entry{}, err
	}
	return streams.Entry{Offset: uint64(offset), Data: data}, nil
}

func (c *consumer) leave() {
	c.stop()
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	delete(c.part.consumers, c)
}

// Done implements [streams.Consumer].
func (c *consumer) Done() <-chan struct{} { return c.done }

// Close implements [streams.Consumer].
func (c *consumer) Close() error {
	c.stop()
	<-c.done
	return nil
}
