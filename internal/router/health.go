package router

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnready says that the log cannot be written or read at present.
var ErrUnready = errors.New("router: the log is not available")

// Check reports whether every partition can be written and read now, and what
// is wrong with those that cannot.
func (r *Router) Check(context.Context) error {
	select {
	case <-r.ready:
	default:
		return ErrUnready
	}
	var errs []error
	for i := range r.parts {
		if err := r.CheckPartition(i); err != nil {
			errs = append(errs, fmt.Errorf("%w: partition %d of the log %w", ErrUnready, i, err))
		}
	}
	return errors.Join(errs...)
}

// Partitions returns how many partitions the log has.
func (r *Router) Partitions() int { return len(r.parts) }

// CheckPartition reports whether one partition can be written and read now:
// nil, or what is wrong, in words that follow "the partition".
func (r *Router) CheckPartition(n int) error { return r.parts[n].trouble() }

// Health is how many partitions cannot be written or read now.
type Health struct{ Unwritable, Unreadable int }

// Health counts the partitions that are in trouble.
func (r *Router) Health() (h Health) {
	for _, p := range r.parts {
		if p.writer.Trouble() != nil {
			h.Unwritable++
		}
		if p.unread() != nil {
			h.Unreadable++
		}
	}
	return h
}

func (p *partition) trouble() error {
	var errs []error
	if err := p.writer.Trouble(); err != nil {
		errs = append(errs, fmt.Errorf("cannot be written: %w", err))
	}
	if err := p.unread(); err != nil {
		errs = append(errs, fmt.Errorf("cannot be read: %w", err))
	}
	return errors.Join(errs...)
}

var errNoMarker = errors.New("what is written to it has not come back yet")

// unread says why the tail is not to be relied upon: it is down, has not come
// by the marker of its opening (delivery rule M3), or lags.
func (p *partition) unread() error {
	if err := p.tail.Trouble(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.handover {
		return errNoMarker
	}
	if !p.lagSince.IsZero() {
		if lag := p.r.now().Sub(p.lagSince); lag > lagTolerance {
			return fmt.Errorf("what is written to it has not come back for %v", lag.Round(time.Second))
		}
	}
	return nil
}
