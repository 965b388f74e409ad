package streams

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// MaxEnvelopeBytes is the size of an envelope at most. A broker frame holds
// 1 MiB, and the entry and the frame have heads of their own.
const MaxEnvelopeBytes = 1<<20 - 16<<10

var (
	// ErrFull is returned by [Writer.Append] when MaxPendingBytes are waiting
	// or unconfirmed.
	ErrFull = errors.New("streams: too much is waiting to be stored")
	// ErrUnavailable is returned by [Writer.Append] when the log has not been
	// reachable for longer than Timeout.
	ErrUnavailable = errors.New("streams: the log cannot be reached")
	// ErrTooLarge is returned by [Writer.Append] for an envelope of more than
	// MaxEnvelopeBytes.
	ErrTooLarge = fmt.Errorf("streams: an envelope is larger than %d bytes", MaxEnvelopeBytes)
	// ErrEmpty is returned by [Writer.Append] for an envelope of no bytes,
	// which could not be read again.
	ErrEmpty = errors.New("streams: an envelope is empty")
)

// Outcome is what became of an appended envelope (delivery rule P4).
type Outcome uint8

const (
	// Stored: the log has confirmed it.
	Stored Outcome = iota + 1
	// NotStored: it is surely not stored and will not be.
	NotStored
	// Unknown: it may be stored, or become so later.
	Unknown
)

// String returns the outcome's name, for logs.
func (o Outcome) String() string {
	switch o {
	case Stored:
		return "stored"
	case NotStored:
		return "not stored"
	case Unknown:
		return "unknown"
	}
	return "invalid"
}

// WriterOptions configure a [Writer]. Driver and Name are required.
type WriterOptions[T any] struct {
	Driver    Driver
	Partition int
	// Name is the producer's name: random, never used before, the same for
	// the writer's whole life (delivery rule P1).
	Name string
	// Logger gets lost and regained connections. Default: none.
	Logger *slog.Logger
	// Clock defaults to [RealClock].
	Clock Clock

	// MaxPendingBytes bounds what waits and what is unconfirmed, together;
	// when it is reached, Append returns [ErrFull]. Each envelope counts some
	// 70 bytes more than its own. Default 32 MiB.
	MaxPendingBytes int
	// Timeout is how long an appended envelope may be without an outcome, how
	// long the log may be away before Append refuses, and how long an entry
	// may be unconfirmed before its connection is taken for dead. Default 5 s.
	Timeout time.Duration
	// MaxUnconfirmed is how many entries may be on their way. Default 4.
	MaxUnconfirmed int
	// Pace is the least time between two entries, so that they become fuller:
	// a broker charges for entries, not for envelopes. An entry after a pause
	// waits for Linger only, and one that is full for nothing. Default 2 ms.
	Pace time.Duration
	// Linger is how long the first entry after a pause waits, so that what else
	// its envelopes have set off, above all their live delivery, does not have
	// to share the cores with a broker that has just been woken. On two cores a
	// message is at its receiver 80 µs earlier for it. Default none.
	Linger time.Duration

	// Settled is told the outcome of each item, in the order of appending as
	// far as the outcome is the same, from one goroutine at a time. items is
	// valid during the call only. It must not block and not call Flush or
	// Close; it may call Append and Remove.
	//
	// Items that were told Unknown are told Stored if their entry is
	// confirmed later. Nothing else is told twice.
	Settled func(items []T, outcome Outcome)
	// Follows reports whether later must not be stored after failed was not,
	// because order is promised between them (delivery rule P4: same sender
	// and address). It is called under the writer's lock and must not call the
	// writer. Nil: order is promised to nobody.
	Follows func(failed, later *T) bool
	// Voided, if set, is asked before an entry is sent, also again, under the
	// writer's lock. It returns nil, or who tells which items may not be stored
	// any more: their envelopes are replaced by empty ones (delivery rules L2,
	// P5), and Settled is told Unknown. It must not call the writer.
	Voided func() func(item *T) bool
	// FollowsKey, if set, returns equal numbers for items of which one follows
	// the other. It spares Follows the comparison of all with all when much
	// fails at once.
	FollowsKey func(*T) uint64
}

// Writer stores envelopes in one partition. It forms entries of what waits,
// keeps them until they are confirmed, and connects and resends by itself
// (delivery rules P1, P2, P4, P5). Each envelope comes with an item, which is
// what the caller wants to be reminded of when its outcome is known.
//
// All methods are safe for concurrent use. A Writer must be closed.
type Writer[T any] struct {
	o     WriterOptions[T]
	guard guard
	tick  time.Duration

	// settling serialises the calls of Settled. It is taken before mu.
	settling sync.Mutex

	mu        sync.Mutex
	pending   []*batch[T] // formed by Append, no id yet; bounded by MaxPendingBytes
	suffix    []*batch[T] // have an id, not confirmed, ids rising; at most MaxUnconfirmed
	free      []*batch[T] // recycled; at most maxFree
	bytes     int         // size of pending, suffix and what is being settled
	appended  uint64      // items, ever
	lastID    uint64      // last publishing id given
	storedID  uint64      // last publishing id confirmed
	session   *session    // nil while there is no connection
	downSince time.Time
	trouble   error // why there is no session, while there is none
	wantItem  bool  // the sender sleeps until there is something to send
	wantRoom  bool  // the sender sleeps until an entry is confirmed
	armed     bool  // the janitor's timer runs
	telling   bool  // Settled is being called for batches that are in no list
	waiters   []waiter
	closing   bool
	fatal     error

	janitor Timer
	stop    chan struct{} // closed: stop working
	tasks   sync.WaitGroup
	closed  chan struct{} // closed: Close is done
	settled []*batch[T]   // scratch, under settling
}

// maxFree bounds the recycled batches; idleFree is how many of them a writer
// keeps that has nothing to do.
const (
	maxFree  = 32
	idleFree = 4
)

// NewWriter returns a writer and starts it. It connects in the background.
func NewWriter[T any](o WriterOptions[T]) *Writer[T] {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = RealClock()
	}
	if o.MaxPendingBytes <= 0 {
		o.MaxPendingBytes = 32 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxUnconfirmed <= 0 {
		o.MaxUnconfirmed = 4
	}
	if o.Pace <= 0 {
		o.Pace = 2 * time.Millisecond
	}
	if o.Settled == nil {
		o.Settled = func([]T, Outcome) {}
	}
	o.Logger = o.Logger.With("partition", o.Partition)
	w := &Writer[T]{
		o:         o,
		guard:     guard{clock: o.Clock},
		tick:      max(o.Timeout/10, time.Millisecond),
		downSince: o.Clock.Now(),
		trouble:   errConnecting,
		stop:      make(chan struct{}),
		closed:    make(chan struct{}),
	}
	w.janitor = o.Clock.NewTimer(w.tick)
	w.armed = true
	w.tasks.Go(w.run)
	w.tasks.Go(w.sweepOnTime)
	return w
}

// Append copies the envelope and returns; Settled is told later what became of
// it. Envelopes are stored in the order of Append. It does no I/O and waits
// for nobody. After an error the envelope is not stored and Settled is not
// told: [ErrFull], [ErrUnavailable], [ErrTooLarge], [ErrEmpty], [ErrClosed],
// or what [Writer.Err] returns.
func (w *Writer[T]) Append(envelope []byte, item T) error {
	if len(envelope) == 0 {
		return ErrEmpty
	}
	if len(envelope) > MaxEnvelopeBytes {
		return ErrTooLarge
	}
	sum := checksum(envelope) // before the lock: it is the larger part of the work

	w.mu.Lock()
	if err := w.refusal(); err != nil {
		w.mu.Unlock()
		return err
	}
	if w.bytes+encodedSize(len(envelope))+itemOverhead > w.o.MaxPendingBytes {
		w.mu.Unlock()
		return ErrFull
	}
	b := w.growing(len(envelope))
	before := b.size()
	b.add(envelope, sum, item)
	w.bytes += b.size() - before
	w.appended++
	if !w.armed {
		w.armed = true
		w.janitor.Reset(w.tick)
	}
	s := w.session
	wake := w.wantItem && s != nil
	w.wantItem = w.wantItem && !wake
	w.mu.Unlock()

	if wake {
		s.signal()
	}
	return nil
}

func (w *Writer[T]) refusal() error {
	switch {
	case w.fatal != nil:
		return w.fatal
	case w.closing:
		return ErrClosed
	case w.session == nil && w.o.Clock.Now().Sub(w.downSince) > w.o.Timeout:
		return ErrUnavailable
	}
	return nil
}

// growing returns the pending batch that an envelope of so many bytes goes to.
func (w *Writer[T]) growing(envelope int) *batch[T] {
	if n := len(w.pending); n > 0 && w.pending[n-1].takes(envelope) {
		return w.pending[n-1]
	}
	var b *batch[T]
	if n := len(w.free); n > 0 {
		b, w.free[n-1] = w.free[n-1], nil
		w.free = w.free[:n-1]
	} else {
		b = new(batch[T])
	}
	b.data = BeginEntry(b.data)
	b.first = w.appended + 1
	b.since = w.o.Clock.Now()
	w.bytes += b.size()
	w.pending = append(w.pending, b)
	return b
}

// recycle puts a batch that is in no list any more aside for the next one.
func (w *Writer[T]) recycle(b *batch[T]) {
	w.bytes -= b.size()
	if b.shared || len(w.free) >= maxFree || cap(b.data) > 2*MaxEntryBytes {
		return
	}
	clear(b.items)
	*b = batch[T]{data: b.data[:0], items: b.items[:0]}
	w.free = append(w.free, b)
}

// Remove drops the items that match and returns those that were pending, in
// the order of appending: they are surely not stored, and Settled is not told.
//
// Matching items of entries already formed are stored if the entry's first
// copy is; before a resend their envelopes are replaced by empty ones
// (delivery rule P5). Settled is told of them: Stored, or Unknown after such a
// resend. match is called under the writer's lock and must not call it.
func (w *Writer[T]) Remove(match func(*T) bool) (dropped []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.suffix {
		for i := range b.items {
			if match(&b.items[i]) {
				b.set(i, removed)
			}
		}
	}
	w.dropPending(func(item *T) bool {
		if !match(item) {
			return false
		}
		dropped = append(dropped, *item)
		return true
	})
	w.release()
	return dropped
}

// dropPending takes the pending items that choose selects out of their batches.
func (w *Writer[T]) dropPending(choose func(*T) bool) {
	kept := w.pending[:0]
	for _, b := range w.pending {
		size := b.size()
		b.drop(choose)
		w.bytes += b.size() - size
		if len(b.items) == 0 {
			w.recycle(b)
			continue
		}
		kept = append(kept, b)
	}
	clear(w.pending[len(kept):])
	w.pending = kept
}

// Connected reports whether a producer is open.
func (w *Writer[T]) Connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != nil
}

// Err returns the error that ended the writer for good, like [ErrNameUsed], or
// nil. A lost connection is no such error.
func (w *Writer[T]) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// Reset closes the producer and opens it anew; what is unconfirmed is sent
// again. Without a connection it does nothing: the writer is connecting
// already.
func (w *Writer[T]) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session.drop()
}
