package streams

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
)

// TailOptions configure a [Tail]. Driver and Handle are required.
type TailOptions struct {
	Driver    Driver
	Partition int
	// Start is where the first opening begins, and every one until an entry
	// was handled. Usually [Next].
	Start Start
	// Handle gets the entries, with rising offsets, each once, also over
	// reconnects, from one goroutine at a time. While it runs the tail reads
	// no further.
	Handle func(Entry)
	// Up is called when the log was opened or reopened, before the first
	// Handle of that opening.
	Up func()
	// Down is called when an opening has ended, after the last Handle of it.
	Down func(error)
	// Rewritten is called when the log turns out to hold something else at the
	// offset of the last entry handled: it has lost its end, or is another one.
	// Nothing is handled any more until [Tail.Rewind]. Like Handle it is called
	// by the tail's goroutines; it must not call the tail.
	Rewritten func()
	// Logger gets lost and regained connections. Default: none.
	Logger *slog.Logger
	// Clock defaults to [RealClock].
	Clock Clock
}

// Tail reads on at the end of a partition, whatever happens to its
// connection: it reopens at the last entry that it has handed on, sees whether
// that is still the same, and goes on behind it.
//
// A peer that is silent and one that has nothing to say look alike. Who knows
// that something should have come calls [Tail.Reset].
//
// Methods are safe for concurrent use; Close must not be called from a
// callback. A Tail must be closed.
type Tail struct {
	o     TailOptions
	guard guard

	// handling is held while a callback runs; it guards what follows.
	handling sync.Mutex
	last     uint64 // offset of the last entry handled
	lastData []byte // its bytes
	handled  bool   // there is such an entry
	start    Start  // where to begin while there is none
	stalled  bool   // Rewritten was called: nothing is handled
	rewound  bool   // Rewind was called: nothing is handled before the next opening
	skip     *Start // where the next opening begins; nil: behind last

	trouble atomic.Pointer[error] // why there is no connection; nil: there is one

	reset    chan struct{} // buffered
	stop     chan struct{}
	stopOnce sync.Once
	stopped  chan struct{}
}

// opening is one consumer of a tail.
type opening struct {
	up chan struct{} // closed when Up was called: entries may pass
	// over is closed when the consumer is given up: entries that still come
	// are dropped.
	over    chan struct{}
	skipped bool // it began where Restart said
}

// NewTail returns a tail and starts it. It connects in the background.
func NewTail(o TailOptions) *Tail {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = RealClock()
	}
	if o.Up == nil {
		o.Up = func() {}
	}
	if o.Down == nil {
		o.Down = func(error) {}
	}
	if o.Rewritten == nil {
		o.Rewritten = func() {}
	}
	o.Logger = o.Logger.With("partition", o.Partition)
	t := &Tail{
		o:       o,
		guard:   guard{clock: o.Clock},
		start:   o.Start,
		reset:   make(chan struct{}, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	t.inTrouble(errConnecting)
	go t.run()
	return t
}

// Reset drops the connection and reopens where it was.
func (t *Tail) Reset() {
	select {
	case t.reset <- struct{}{}:
	default:
	}
}

// Restart drops the connection and begins anew at from. What lies between the
// last handled entry and there is passed over; what lies before that entry is
// not handled again.
func (t *Tail) Restart(from Start) {
	t.handling.Lock()
	t.skip = &from
	t.handling.Unlock()
	t.Reset()
}

// Close stops the tail. When it has returned, nothing is called any more.
func (t *Tail) Close() {
	t.stopOnce.Do(func() { close(t.stop) })
	<-t.stopped
}

func (t *Tail) run() {
	defer close(t.stopped)
	retry := newBackoff()
	failures := 0
	for {
		o := &opening{up: make(chan struct{}), over: make(chan struct{})}
		c, err := guardOpen(&t.guard, t.stop, func(ctx context.Context) (Consumer, error) {
			return t.o.Driver.OpenConsumer(ctx, t.o.Partition, t.from(o), func(e Entry) { t.handle(o, e) })
		})
		switch {
		case err == nil:
			t.o.Logger.Info("tail connected", "failures", failures)
			failures = 0
			before := t.o.Clock.Now()
			t.inTrouble(nil)
			t.inTrouble(t.serve(o, c))
			if t.o.Clock.Now().Sub(before) > retry.MaxInterval {
				retry.Reset()
			}
		default:
			// A consumer that comes late may already be handing entries over.
			close(o.over)
			t.inTrouble(err)
			if failures++; failures == 1 && !errors.Is(err, errStopped) {
				t.o.Logger.Warn("tail cannot connect; it keeps trying", "error", err)
			}
		}
		if !pause(t.o.Clock, retry.NextBackOff(), t.stop) {
			return
		}
	}
}

func (t *Tail) from(o *opening) Start {
	t.handling.Lock()
	defer t.handling.Unlock()
	if t.skip != nil {
		o.skipped = true
		return *t.skip
	}
	if t.rewound {
		t.rewound, t.stalled = false, false
	}
	if t.handled {
		return From(t.last)
	}
	return t.start
}

// serve hands entries on until the connection ends, is reset, or the tail is
// closed, and returns which.
func (t *Tail) serve(o *opening, c Consumer) error {
	select {
	case <-t.reset: // was meant for an earlier connection
	default:
	}
	t.handling.Lock()
	if o.skipped {
		t.skip = nil
	} else if t.skip != nil {
		t.Reset() // asked for while this was being opened
	}
	t.o.Up()
	if t.rewound { // since this opening began
		t.Reset()
	}
	t.handling.Unlock()
	close(o.up)

	err := ErrClosed
	select {
	case <-c.Done():
	case <-t.reset:
		err = errReset
	case <-t.stop:
		err = errStopped
	}

	// Entries that wait in handle give way before the lock is asked for, so
	// that a consumer that has much to hand on cannot go on for long.
	close(o.over)
	t.handling.Lock()
	t.o.Down(err)
	t.handling.Unlock()
	if !errors.Is(err, errStopped) {
		t.o.Logger.Warn("tail lost its connection", "error", err)
	}
	if !t.guard.close(c) {
		t.o.Logger.Warn("a consumer does not close; it is left behind")
	}
	return err
}

// handle hands an entry on if its opening is not over and the entry is new.
func (t *Tail) handle(o *opening, e Entry) {
	select {
	case <-o.up:
	case <-o.over:
		return
	}
	t.handling.Lock()
	defer t.handling.Unlock()
	select {
	case <-o.over:
		return
	default:
	}
	switch {
	case t.stalled || t.rewound:
		return
	case t.handled && e.Offset == t.last && !bytes.Equal(e.Data, t.lastData):
		t.stalled = true
		t.o.Rewritten()
		return
	case t.handled && e.Offset <= t.last:
		return
	}
	t.last, t.lastData, t.handled = e.Offset, e.Data, true
	t.o.Handle(e)
}

// Rewind makes the tail begin anew at start: the log there is not the one that
// was read before (delivery rule C2). What the present connection still hands on
// is dropped.
func (t *Tail) Rewind(start Start) {
	t.handling.Lock()
	t.last, t.lastData, t.handled = 0, nil, false
	t.start, t.rewound = start, true
	t.handling.Unlock()
	t.Reset()
}
