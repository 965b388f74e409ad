package streams

import "context"

// waiter is a Flush that waits for the items up to a number.
type waiter struct {
	upTo uint64
	done chan struct{}
}

// Flush waits until every item appended before has been told an outcome, or
// until ctx ends; it returns the error of ctx then.
func (w *Writer[T]) Flush(ctx context.Context) error {
	w.mu.Lock()
	done := make(chan struct{})
	w.waiters = append(w.waiters, waiter{w.appended, done})
	w.release()
	w.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.waiters {
		if w.waiters[i].done == done {
			w.waiters = append(w.waiters[:i], w.waiters[i+1:]...)
			return ctx.Err()
		}
	}
	return nil // released meanwhile
}

// release wakes the flushes whose items have all been told.
func (w *Writer[T]) release() {
	if w.telling || len(w.waiters) == 0 {
		return // whoever tells looks again afterwards
	}
	lowest := w.appended + 1 // of the items without an outcome
	if len(w.pending) > 0 {
		lowest = w.pending[0].first
	}
	for _, b := range w.suffix {
		if b.untold > 0 {
			lowest = b.first
			break
		}
	}
	kept := w.waiters[:0]
	for _, f := range w.waiters {
		if f.upTo < lowest {
			close(f.done)
			continue
		}
		kept = append(kept, f)
	}
	w.waiters = kept
}

// Close refuses further items, flushes until ctx ends, then stops: what is
// still pending is told NotStored, what is in an unconfirmed entry Unknown.
// It returns the error of ctx if it had to do so. Further calls wait for the
// first.
func (w *Writer[T]) Close(ctx context.Context) error {
	w.mu.Lock()
	first := !w.closing
	w.closing = true
	w.mu.Unlock()
	if !first {
		select {
		case <-w.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := w.Flush(ctx)
	close(w.stop)
	w.tasks.Wait()
	w.abandon()
	close(w.closed)
	return err
}

// abandon tells everything that is left. There is no session any more and no
// further Append succeeds.
func (w *Writer[T]) abandon() {
	w.settling.Lock()
	defer w.settling.Unlock()

	w.mu.Lock()
	var unknown, notStored []T
	for _, b := range w.suffix {
		unknown = b.tell(unknown, func(*T) bool { return true })
	}
	for _, b := range w.pending {
		notStored = append(notStored, b.items...)
	}
	w.suffix, w.pending, w.free, w.bytes = nil, nil, nil, 0
	w.telling = true
	w.mu.Unlock()

	w.tell(unknown, Unknown)
	w.tell(notStored, NotStored)

	w.mu.Lock()
	w.telling = false
	w.release()
	w.mu.Unlock()
}
