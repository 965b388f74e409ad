package presence

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrHeld is returned when somebody else holds a lease that is asked for.
	// The error may be a [*HeldError].
	ErrHeld = errors.New("presence: identity is held by another session")
	// ErrUnavailable is returned when leases cannot be handed out now. The
	// error may be an [*UnavailableError].
	ErrUnavailable = errors.New("presence: leases are not available")
	// ErrInstanceInUse says that another live gateway has the same instance
	// id.
	ErrInstanceInUse = errors.New("presence: another gateway runs with this instance id")
	// ErrNotFound says that a session is not known.
	ErrNotFound = errors.New("presence: no such session")
	// ErrInvalid says that a name, an id or a payload cannot be used.
	ErrInvalid = errors.New("presence: invalid argument")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("presence: closed")

	// ErrFenced is why leases are lost by a gateway that could not renew.
	ErrFenced = errors.New("presence: the gateway could not renew its leases in time")
	// ErrSuperseded is why a lease is lost to another session.
	ErrSuperseded = errors.New("presence: another session has taken the lease")

	// ErrOverflow is returned when too many notices wait to be sent.
	ErrOverflow = errors.New("presence: too many notices are waiting")
)

// HeldError is [ErrHeld] with the holder's session, which is not for the
// client's eyes: who knows it can take the session over. Its text does not
// contain it.
type HeldError struct{ SessionID string }

func (e *HeldError) Error() string { return ErrHeld.Error() }

// Is makes it an [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// UnavailableError is [ErrUnavailable] with a reason.
type UnavailableError struct {
	// Reason is a sentence without credentials.
	Reason string
	// RetryAfter is when it may be better, 0 if that is not known.
	RetryAfter time.Duration
	// Refused says that whoever keeps the leases does not let this gateway in,
	// a wrong password for example, and will not by being waited for.
	Refused bool
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s: %s", ErrUnavailable.Error(), e.Reason)
}

// Is makes it an [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }
