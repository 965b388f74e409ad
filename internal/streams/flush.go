package streams

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// session is one connection of a writer, from an opened producer to its end.
type session struct {
	// sent is the highest id handed to this producer, under the writer's
	// lock; 0 means that the whole suffix has to be sent again.
	sent uint64

	wake  chan struct{} // buffered: there is something for the sender to look at
	reset chan struct{} // buffered: the connection is to be dropped
	stop  chan struct{} // closed: over
}

func newSession() *session {
	return &session{
		wake:  make(chan struct{}, 1),
		reset: make(chan struct{}, 1),
		stop:  make(chan struct{}),
	}
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// drop asks for the end of the session; nil has none.
func (s *session) drop() {
	if s == nil {
		return
	}
	select {
	case s.reset <- struct{}{}:
	default:
	}
}

// run keeps the writer connected until it stops.
func (w *Writer[T]) run() {
	retry := newBackoff()
	failures := 0
	for {
		s := newSession()
		p, err := guardOpen(&w.guard, w.stop, func(ctx context.Context) (Producer, error) {
			return w.o.Driver.OpenProducer(ctx, w.o.Partition, w.o.Name, func(id uint64) { w.confirmed(s, id) })
		})
		if err == nil {
			err = w.knownOnlyToUs(p)
		}
		switch {
		case errors.Is(err, ErrNameUsed):
			w.o.Logger.Error("the log knows this producer's name from somebody else; nothing is written", "error", err)
			w.fail(err)
			return
		case err == nil:
			w.o.Logger.Info("writer connected", "failures", failures)
			failures = 0
			before := w.o.Clock.Now()
			why := w.serve(s, p)
			w.inTrouble(why)
			if !errors.Is(why, errStopped) {
				w.o.Logger.Warn("writer lost its connection", "error", why)
			}
			if w.o.Clock.Now().Sub(before) > retry.MaxInterval {
				retry.Reset()
			}
		case !errors.Is(err, errStopped):
			w.inTrouble(err)
			if failures++; failures == 1 {
				w.o.Logger.Warn("writer cannot connect; it keeps trying", "error", err)
			}
		}
		if !pause(w.o.Clock, retry.NextBackOff(), w.stop) {
			return
		}
	}
}

// knownOnlyToUs closes a producer whose name has stored ids that this writer
// has not given: everything up to them would be confirmed and dropped
// (delivery rule P1).
func (w *Writer[T]) knownOnlyToUs(p Producer) error {
	w.mu.Lock()
	given, stored := w.lastID, w.storedID
	w.mu.Unlock()
	last := p.LastID()
	if last < stored {
		w.o.Logger.Error("the log has lost entries that it had confirmed, or has forgotten this producer's name",
			"last", last, "confirmed", stored)
	}
	if last <= given {
		return nil
	}
	w.guard.close(p)
	return fmt.Errorf("%w: last id %d, given %d", ErrNameUsed, last, given)
}

// serve sends through p until its connection ends, is reset, or the writer
// stops, and returns which.
func (w *Writer[T]) serve(s *session, p Producer) (why error) {
	w.mu.Lock()
	w.session = s
	w.wantItem, w.wantRoom = false, false
	w.mu.Unlock()

	sender := make(chan struct{})
	go func() {
		defer close(sender)
		w.send(s, p)
	}()
	why = ErrClosed
	select {
	case <-p.Done():
	case <-sender:
	case <-s.reset:
		why = errReset
	case <-w.stop:
		why = errStopped
	}

	w.mu.Lock()
	w.session = nil
	w.trouble = errLost
	w.downSince = w.o.Clock.Now()
	w.mu.Unlock()
	close(s.stop)
	closed := w.guard.close(p)
	if w.guard.wait(sender) && closed {
		return why
	}
	// The producer was left behind and may still read the entries.
	w.o.Logger.Warn("a producer does not close; it is left behind")
	w.mu.Lock()
	for _, b := range w.suffix {
		b.shared = true
	}
	w.mu.Unlock()
	return why
}

// send is the flusher of one session (delivery rule P2): it alone gives ids
// and enqueues, so ids rise in the order of enqueueing. It ends with the
// session, or when the producer refuses.
func (w *Writer[T]) send(s *session, p Producer) {
	timer := w.o.Clock.NewTimer(w.o.Pace)
	timer.Stop()
	defer timer.Stop()
	var last time.Time // when the last new entry went
	for {
		id, data, wait, idle := w.next(s, &last)
		switch {
		case id != 0:
			// No lock is held: Send may block until a confirm is taken.
			if p.Send(id, data) != nil {
				return
			}
		case wait > 0:
			timer.Reset(wait)
			select {
			case <-timer.C():
			case <-s.stop:
				return
			}
		default:
			select {
			case <-s.wake:
			case <-s.stop:
				return
			}
			if idle && w.o.Linger > 0 {
				nap(w.o.Linger)
			}
		}
	}
}

// next returns the entry to be sent now; or how long to wait for the pace; or
// neither, when the sender has to sleep until it is woken; idle says that it
// does so because there is nothing to send.
func (w *Writer[T]) next(s *session, last *time.Time) (id uint64, data []byte, wait time.Duration, idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != s {
		return 0, nil, 0, false // over; stop is closed or about to be
	}
	for _, b := range w.suffix {
		if b.id > s.sent {
			w.void(b)
			b.sentAt = w.o.Clock.Now()
			s.sent = b.id
			return b.id, b.data, 0, false
		}
	}
	if len(w.pending) == 0 {
		w.wantItem = true
		return 0, nil, 0, true
	}
	if len(w.suffix) >= w.o.MaxUnconfirmed {
		w.wantRoom = true
		return 0, nil, 0, false
	}
	now := w.o.Clock.Now()
	// The pace makes entries fuller. One that has another behind it cannot
	// become so: it does not wait.
	if wait := last.Add(w.o.Pace).Sub(now); wait > 0 && len(w.pending) == 1 {
		return 0, nil, wait, false
	}
	b := w.pending[0]
	copy(w.pending, w.pending[1:])
	w.pending[len(w.pending)-1] = nil
	w.pending = w.pending[:len(w.pending)-1]
	w.void(b)
	w.lastID++
	b.id, b.sentAt = w.lastID, now
	w.suffix = append(w.suffix, b)
	s.sent, *last = b.id, now
	return b.id, b.data, 0, false
}

// void empties the envelopes of a batch that is about to be sent and may not be
// stored (delivery rule P5).
func (w *Writer[T]) void(b *batch[T]) {
	if w.o.Voided != nil {
		if voided := w.o.Voided(); voided != nil {
			for i := range b.items {
				if voided(&b.items[i]) {
					b.set(i, removed)
				}
			}
		}
	}
	before := b.size()
	b.empty()
	w.bytes += b.size() - before
}
