package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	maxPartitions = 256
	// maxName is the length of a producer's name, the same as the broker's.
	maxName = 255
)

var (
	errPartition = errors.New("embedded: no such partition")
	errName      = fmt.Errorf("embedded: a producer's name has 1 to %d bytes", maxName)
	errID        = errors.New("embedded: a publishing id is between 1 and 2^63-1")
)

// Options configure a [Driver].
type Options struct {
	// Partitions is their number, 1 to 256. It is fixed when the log is born.
	Partitions int
	// Extra is how many partitions come behind those. They are not addressed by
	// the placement, and may be added to a log that was born without them.
	Extra int
	// MaxAge is how long entries are kept. 0: without end.
	MaxAge time.Duration
	// MaxBytes is how much is kept of each partition, in bytes of entries; the
	// newest entry always is. 0: without bound.
	MaxBytes int64
	// TrimInterval is the time between two looks for what retention no longer
	// keeps. Default 1 s.
	TrimInterval time.Duration
	// Clock defaults to [streams.RealClock].
	Clock streams.Clock
}

// Driver is a [streams.Driver] on a SQLite file. Drivers on one file share its
// log and see each other's entries; each looks after retention by its own
// options.
type Driver struct {
	file       *sqlitefile.File
	o          Options
	partitions []*partition // shared by the drivers on this file

	stop    context.CancelFunc // ends the trimmer
	trimmer sync.WaitGroup

	closed    atomic.Bool // looked at under a partition's lock
	closeOnce sync.Once
}

var _ streams.Driver = (*Driver)(nil)

// Open opens the log of file, and creates it if there is none. A log of
// another format or number of partitions is a [FormatError]. The file stays
// the caller's and is closed after the driver.
func Open(file *sqlitefile.File, o Options) (*Driver, error) {
	if o.Extra < 0 || o.Extra > maxPartitions {
		return nil, fmt.Errorf("embedded: the number of extra partitions is %d, not 0 to %d", o.Extra, maxPartitions)
	}
	if o.Partitions < 1 || o.Partitions > maxPartitions {
		return nil, fmt.Errorf("embedded: the number of partitions is %d, not 1 to %d", o.Partitions, maxPartitions)
	}
	if o.MaxAge < 0 || o.MaxBytes < 0 {
		return nil, errors.New("embedded: retention is negative")
	}
	if o.TrimInterval <= 0 {
		o.TrimInterval = time.Second
	}
	if o.Clock == nil {
		o.Clock = streams.RealClock()
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &Driver{file: file, o: o, stop: stop}
	err := file.Write(ctx, func(tx *sqlitefile.Tx) error {
		if err := create(tx, o.Partitions); err != nil {
			return err
		}
		count := o.Partitions + o.Extra
		if err := createPartitions(tx, o.Partitions, count); err != nil {
			return err
		}
		shared, err := partitionsOf(tx, file, count)
		if err != nil {
			return err
		}
		if len(shared) < count {
			return fmt.Errorf("embedded: the file is open with %d partitions in all, not %d", len(shared), count)
		}
		d.partitions = shared[:count]
		return nil
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("embedded: open the log: %w", err)
	}
	if o.MaxAge > 0 || o.MaxBytes > 0 {
		d.trimmer.Go(func() { d.trimOnTime(ctx) })
	}
	return d, nil
}

// partitionsOf returns the state of the log, which the first driver on the
// file makes. No append can run meanwhile.
func partitionsOf(tx *sqlitefile.Tx, file *sqlitefile.File, count int) ([]*partition, error) {
	shared, err := file.Shared("log", func() (any, error) {
		partitions := make([]*partition, count)
		for n := range partitions {
			partitions[n] = newPartition(file, n)
			if err := tx.Get(selectPartition, []any{n}, &partitions[n].next, new(int64)); err != nil {
				return nil, err
			}
		}
		return partitions, nil
	})
	if err != nil {
		return nil, err
	}
	return shared.([]*partition), nil
}

// Partitions implements [streams.Driver].
func (d *Driver) Partitions() int { return len(d.partitions) }

// OpenProducer implements [streams.Driver]. Besides what the interface says:
// confirmed runs in the goroutine that writes the file, it must not close its
// producer, and only calls Send if it is known not to block. Ids are between 1
// and 2^63-1.
func (d *Driver) OpenProducer(ctx context.Context, partition int, name string, confirmed func(id uint64)) (streams.Producer, error) {
	if partition < 0 || partition >= len(d.partitions) {
		return nil, errPartition
	}
	if name == "" || len(name) > maxName {
		return nil, errName
	}
	p := &producer{d: d, part: d.partitions[partition], name: name, confirmed: confirmed, done: make(chan struct{})}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// OpenConsumer implements [streams.Driver].
func (d *Driver) OpenConsumer(ctx context.Context, partition int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	if partition < 0 || partition >= len(d.partitions) {
		return nil, errPartition
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.consume(d.partitions[partition], from, handle)
}

// First implements [streams.Driver].
func (d *Driver) First(ctx context.Context, partition int) (streams.Entry, error) {
	if partition < 0 || partition >= len(d.partitions) {
		return streams.Entry{}, errPartition
	}
	if d.closed.Load() {
		return streams.Entry{}, streams.ErrClosed
	}
	return d.partitions[partition].first(ctx)
}

// Close implements [streams.Driver]. Entries that were sent and not confirmed
// are stored or not. It waits for the handles that run.
func (d *Driver) Close() error {
	d.closeOnce.Do(func() {
		d.closed.Store(true)
		d.stop()
		for _, p := range d.partitions {
			p.leave(d)
		}
		d.trimmer.Wait()
	})
	return nil
}

// toRow converts what is unsigned outside and signed in a row; values above
// the range of a row are out of the range of all rows.
func toRow(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
