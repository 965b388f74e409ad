package streams

import "time"

// confirmed is called by the driver for each entry that is safely stored.
//
// It tells the items in the driver's goroutine: handing them to another one
// would cost a wake-up for each entry.
func (w *Writer[T]) confirmed(s *session, id uint64) {
	w.settling.Lock()
	defer w.settling.Unlock()

	w.mu.Lock()
	if w.session != s || id > s.sent {
		// Of a connection that is given up. Its entries are being sent again,
		// so their bytes must stay; they will be confirmed once more.
		w.mu.Unlock()
		return
	}
	for _, b := range w.suffix {
		if b.id == id {
			b.confirmed = true
		}
	}
	n := 0
	for n < len(w.suffix) && w.suffix[n].confirmed {
		n++
	}
	if n == 0 {
		w.mu.Unlock()
		return
	}
	w.storedID = w.suffix[n-1].id
	w.settled = append(w.settled[:0], w.suffix[:n]...)
	rest := copy(w.suffix, w.suffix[n:])
	clear(w.suffix[rest:])
	w.suffix = w.suffix[:rest]
	w.telling = true
	wake := w.wantRoom
	w.wantRoom = false
	w.mu.Unlock()
	if wake {
		s.signal()
	}

	for _, b := range w.settled {
		w.tellStored(b)
	}

	w.mu.Lock()
	for _, b := range w.settled {
		w.recycle(b)
	}
	w.telling = false
	w.release()
	w.mu.Unlock()
	clear(w.settled)
}

// tellStored tells the items of a confirmed entry. Those whose envelopes were
// emptied for a resend are Unknown: nobody can say which copy was stored.
func (w *Writer[T]) tellStored(b *batch[T]) {
	if b.marks == nil {
		w.o.Settled(b.items, Stored)
		return
	}
	var stored, unknown []T
	for i := range b.items {
		switch {
		case !b.is(i, emptied):
			stored = append(stored, b.items[i])
		case !b.is(i, told):
			unknown = append(unknown, b.items[i])
		}
	}
	w.tell(unknown, Unknown)
	w.tell(stored, Stored)
}

func (w *Writer[T]) tell(items []T, outcome Outcome) {
	if len(items) > 0 {
		w.o.Settled(items, outcome)
	}
}

// sweepOnTime runs the janitor: one timer for all that can time out.
func (w *Writer[T]) sweepOnTime() {
	defer w.janitor.Stop()
	for {
		select {
		case <-w.janitor.C():
			w.sweep()
		case <-w.stop:
			return
		}
	}
}

// sweep answers what has waited too long (delivery rule P4). Items in an entry
// are told Unknown, all of it at once, and the entry stays in the suffix to be
// resent; pending ones are told NotStored and dropped. Items that follow a
// failed one fail with it; all others are left alone.
func (w *Writer[T]) sweep() {
	w.settling.Lock()
	defer w.settling.Unlock()

	w.mu.Lock()
	now := w.o.Clock.Now()
	overdue := func(t time.Time) bool { return now.Sub(t) >= w.o.Timeout }
	failed := newFailures(w.o.Follows, w.o.FollowsKey)
	all := func(*T) bool { return true }

	var unknown, notStored []T
	for _, b := range w.suffix {
		if s := w.session; s != nil && b.id <= s.sent && overdue(b.sentAt) {
			// The peer took an entry and is silent since: stopped, or cut off
			// without a word.
			s.drop()
		}
		choose := failed.followed
		if overdue(b.since) && !b.timedOut {
			b.timedOut = true
			choose = all
			failed.add(b.items)
		}
		unknown = b.tell(unknown, choose)
	}
	for len(w.pending) > 0 && overdue(w.pending[0].since) {
		b := w.pending[0]
		failed.add(b.items)
		notStored = append(notStored, b.items...)
		w.pending = append(w.pending[:0], w.pending[1:]...)
		w.recycle(b)
	}
	if !failed.none() {
		w.dropPending(func(item *T) bool {
			if !failed.followed(item) {
				return false
			}
			notStored = append(notStored, *item)
			return true
		})
	}
	w.arm(now)
	w.telling = true
	w.mu.Unlock()

	w.tell(unknown, Unknown)
	w.tell(notStored, NotStored)

	w.mu.Lock()
	w.telling = false
	w.release()
	w.mu.Unlock()
}

// arm sets the janitor's timer to the next time at which something can be
// overdue, but at most a tick away; without anything to watch it stays off.
func (w *Writer[T]) arm(now time.Time) {
	w.armed = len(w.pending)+len(w.suffix) > 0
	if !w.armed {
		if len(w.free) > idleFree {
			clear(w.free[idleFree:])
			w.free = w.free[:idleFree]
		}
		return
	}
	next := w.tick
	soon := func(t time.Time) { next = min(next, t.Add(w.o.Timeout).Sub(now)) }
	for _, b := range w.suffix {
		if !b.timedOut {
			soon(b.since)
		}
	}
	if len(w.pending) > 0 {
		soon(w.pending[0].since)
		// All items of a batch time out together. So that the last ones are
		// not answered much too early, a batch stops growing after a tick.
		if b := w.pending[len(w.pending)-1]; now.Sub(b.since) >= w.tick {
			b.sealed = true
		}
	}
	w.janitor.Reset(max(next, time.Millisecond))
}

// fail ends the writer for good: nothing can be stored under its name.
func (w *Writer[T]) fail(err error) {
	w.mu.Lock()
	w.fatal = err
	w.mu.Unlock()
	w.abandon()
}
