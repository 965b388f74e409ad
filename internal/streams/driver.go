package streams

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrClosed is returned by what was closed, or whose connection is gone.
	ErrClosed = errors.New("streams: closed")
	// ErrNameUsed is returned by [Driver.OpenProducer] when a producer name
	// that was announced as new is already known to the log (delivery rule P1).
	ErrNameUsed = errors.New("streams: producer name has been used before")
)

// Entry is what a partition stores under one offset: the encoded form of one
// or more envelopes.
type Entry struct {
	// Offset is the entry's place in its partition. Offsets rise, but are not
	// dense.
	Offset uint64
	// Data is read-only. Whoever received it may keep it.
	Data []byte
}

// Start says where a consumer begins. The zero value is [First].
type Start struct {
	kind   startKind
	offset uint64
	time   time.Time
}

type startKind uint8

const (
	startFirst startKind = iota
	startNext
	startOffset
	startTime
)

// First begins at the first entry that the log still has.
func First() Start { return Start{kind: startFirst} }

// Next begins behind the last entry that was stored when the consumer opened.
func Next() Start { return Start{kind: startNext} }

// From begins at offset, inclusive; at the first entry that is left if
// retention has removed it; and, if the log does not reach so far yet, at the
// first entry with an offset not below it.
func From(offset uint64) Start { return Start{kind: startOffset, offset: offset} }

// Since begins with the first entry that was stored at t or later, by the
// log's own clock, and may begin a little before that.
func Since(t time.Time) Start { return Start{kind: startTime, time: t} }

// Time returns the time of a [Since] start.
func (s Start) Time() (t time.Time, ok bool) { return s.time, s.kind == startTime }

// Offset returns the offset of a [From] start.
func (s Start) Offset() (offset uint64, ok bool) { return s.offset, s.kind == startOffset }

// IsNext reports whether the start is [Next].
func (s Start) IsNext() bool { return s.kind == startNext }

// Driver stores entries. It is safe for concurrent use.
//
// A driver does not reconnect: a producer or consumer that has lost its
// connection closes its Done channel and is opened anew by its user. Every
// call ends when its context does.
type Driver interface {
	// Partitions returns how many partitions there are; they are numbered
	// from 0.
	Partitions() int

	// OpenProducer opens a producer on a partition. name identifies it for
	// deduplication: an id that is not above the last one stored under a name
	// is confirmed and not stored again (delivery rules P1, P2).
	//
	// confirmed is called with each id that is safely stored, from one
	// goroutine at a time, in rising order; it must not block.
	OpenProducer(ctx context.Context, partition int, name string, confirmed func(id uint64)) (Producer, error)

	// OpenConsumer reads entries in the order of their offsets and hands each
	// to handle, from one goroutine. A handle that takes its time slows the
	// consumer down and nothing else.
	OpenConsumer(ctx context.Context, partition int, from Start, handle func(Entry)) (Consumer, error)

	// First returns the first entry that the partition still has. Everything
	// below its offset was never there or has been removed. If there is none,
	// Data is nil and the offset is the one below which nothing is left, as far
	// as that is known, else 0.
	First(ctx context.Context, partition int) (Entry, error)

	// Close closes the driver and all that was opened with it.
	Close() error
}

// Producer appends entries to one partition. Send and Close may be called
// concurrently with each other, Send by one goroutine at a time.
type Producer interface {
	// LastID returns the highest id that the log had stored under this
	// producer's name when it opened, 0 for none.
	LastID() uint64
	// Send hands an entry over for storing. Ids rise with each call. The
	// bytes must stay unchanged until the id is confirmed or the producer
	// closed. It returns [ErrClosed] when the connection is gone; the outcome
	// of what was sent and not confirmed is then unknown.
	Send(id uint64, entry []byte) error
	// Done is closed when the producer can store nothing more.
	Done() <-chan struct{}
	// Close closes the producer. No confirm comes after it has returned.
	Close() error
}

// Consumer reads one partition until it is closed.
type Consumer interface {
	// Done is closed when nothing more will be handed on.
	Done() <-chan struct{}
	// Close stops the consumer. When it has returned, handle is not running
	// and not called again. It must not be called from handle.
	Close() error
}
