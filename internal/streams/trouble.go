package streams

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stuckAfter is how long an entry may be without a confirm before its log
// counts as one that takes none. It is below the Timeout at which sends are
// answered, so that who asks knows before those who send.
const stuckAfter = 2 * time.Second

var (
	errConnecting = errors.New("it is being connected to")
	errLost       = errors.New("the connection is gone")
	errSilent     = fmt.Errorf("it has not answered within %v", openTimeout)
	errLeftBehind = errors.New("calls to it do not end")
)

// troubleOf words an error for who asks what is wrong.
func troubleOf(err error) error {
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, errReset), errors.Is(err, errStopped):
		return errLost
	case errors.Is(err, errHung):
		return errLeftBehind
	// Of the waiter itself: a driver's own error says more.
	case err == context.DeadlineExceeded: //nolint:errorlint // see above
		return errSilent
	}
	return err
}

// Trouble says why nothing can be stored now; nil if, as far as is known,
// everything can. A log that is connected but confirms nothing is seen when it
// has been given something to store.
func (w *Writer[T]) Trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fatal != nil:
		return w.fatal
	case w.closing:
		return ErrClosed
	case w.session == nil:
		return w.trouble
	case len(w.suffix) == 0:
		return nil
	}
	if age := w.o.Clock.Now().Sub(w.suffix[0].since); age > stuckAfter {
		return fmt.Errorf("nothing has been confirmed for %v", age.Round(time.Second))
	}
	return nil
}

// inTrouble notes why there is no connection.
func (w *Writer[T]) inTrouble(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = troubleOf(err)
}

// Trouble says why nothing can be read now; nil if there is a connection.
func (t *Tail) Trouble() error {
	if err := t.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// inTrouble notes why there is no connection; nil: there is one.
func (t *Tail) inTrouble(err error) {
	if err == nil {
		t.trouble.Store(nil)
		return
	}
	err = troubleOf(err)
	t.trouble.Store(&err)
}
