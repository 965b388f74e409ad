// Package presence says who is connected: a lease per identity, so that one
// session at a time speaks and listens under a name.
//
// It knows names and numbers only. What a lease entitles to is decided by the
// session that holds it.
package presence

import (
	"context"
	"errors"
)

// ErrHeld is returned when somebody else holds a lease that is asked for.
var ErrHeld = errors.New("presence: identity is held by another session")

// Lease is the right to act under some names, until it is released.
type Lease struct {
	// SessionID names the holder.
	SessionID string
	// Names are the identity strings that are held together.
	Names []string
	// Epoch is the fencing number: higher than that of every earlier lease on
	// any of the names, and not below the Unix milliseconds at issue (delivery
	// rule L1).
	Epoch uint64
}

// Leases hands out leases. Implementations are safe for concurrent use.
type Leases interface {
	// Acquire takes all names or none. A name that ends in "::*" stands for
	// every name that begins with what comes before the star, and conflicts
	// with each of them. It returns [ErrHeld] if any is taken.
	Acquire(ctx context.Context, sessionID string, names ...string) (Lease, error)
	// Release gives the names back. A lease that is not current any more is
	// left alone.
	Release(ctx context.Context, lease Lease) error
	// Holder returns the session that holds name.
	Holder(name string) (sessionID string, held bool)
}
