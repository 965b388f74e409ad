package embedded

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/streams"
)

// producer is a name under which entries are appended to a partition.
type producer struct {
	d         *Driver
	part      *partition
	name      string
	lastID    uint64
	confirmed func(id uint64)
	done      chan struct{}

	gone bool // under part.mu: takes no more entries

	mu       sync.Mutex // held while confirmed runs
	finished bool       // done is closed, no more confirms
}

// open registers the producer and reads its last id. That is a job of the
// writer, so that it comes after the entries that an earlier producer of this
// name has handed over.
func (p *producer) open(ctx context.Context) error {
	p.part.mu.Lock()
	if p.d.closed.Load() {
		p.part.mu.Unlock()
		return streams.ErrClosed
	}
	p.part.producers[p] = struct{}{}
	p.part.mu.Unlock()
	err := p.part.file.Write(ctx, func(tx *sqlitefile.Tx) error {
		var err error
		p.lastID, err = lastID(tx, p.part.n, p.name)
		return err
	})
	if err != nil {
		_ = p.Close()
		return fmt.Errorf("embedded: open a producer: %w", err)
	}
	return nil
}

// LastID implements [streams.Producer].
func (p *producer) LastID() uint64 { return p.lastID }

// Send implements [streams.Producer].
func (p *producer) Send(id uint64, entry []byte) error {
	if id == 0 || id > math.MaxInt64 {
		return errID
	}
	data := bytes.Clone(entry)
	if data == nil {
		data = []byte{} // nil would be no blob
	}
	return p.part.append(item{from: p, id: id, at: p.d.o.Clock.Now().UnixMilli(), data: data})
}

// Done implements [streams.Producer].
func (p *producer) Done() <-chan struct{} { return p.done }

// Close implements [streams.Producer]. Entries not yet confirmed are stored or
// not.
func (p *producer) Close() error {
	p.part.mu.Lock()
	p.part.forget(p)
	p.part.mu.Unlock()
	p.finish()
	return nil
}

func (p *producer) confirm(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.finished {
		p.confirmed(id)
	}
}

// finish waits for a confirm that runs, and lets no more through.
func (p *producer) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.finished {
		p.finished = true
		close(p.done)
	}
}
