package presence

import (
	"context"
	"time"
)

// What gateways that share leases agree on (delivery rules L2 to L4).
const (
	// Beat is how often a gateway says that it lives.
	Beat = time.Second
	// FenceAfter is when a gateway that could not say so stops to act.
	FenceAfter = 4 * time.Second
	// TTL is when others may take what it held.
	TTL = 5 * time.Second
	// Staleness is F: what a certain answer of the directory may be late by.
	Staleness = TTL
	// HandOver is how long a session that takes over waits for the watermark
	// of its predecessor.
	HandOver = 500 * time.Millisecond
	// Remembered is how long a session that has ended can still be resumed:
	// found by its id, with its names and its last watermark.
	Remembered = 2 * time.Minute
)

// Bounds of what is leased and sent.
const (
	MaxNames     = 1024     // of one lease
	MaxName      = 2048     // bytes of a name
	MaxSessionID = 128      // bytes
	MaxWatermark = 16 << 10 // bytes
	MaxNotice    = 64 << 10 // bytes of a payload
	MaxKind      = 64       // bytes
)

// Lease is the right to act under some names, until it is released or lost.
type Lease struct {
	// SessionID names the holder.
	SessionID string
	// Names are the identity strings that are held together.
	Names []string
	// Epoch is the fencing number: higher than that of every earlier lease on
	// any of the names, and not below the Unix milliseconds at issue (delivery
	// rule L1).
	Epoch uint64
	// Hold tells whether the lease is still held. It is nil where leases
	// cannot be lost.
	Hold *Hold
}

// Lost reports whether the lease has no effect any more: the gateway has
// fenced itself, or another session has taken over. It is asked before each
// write batch, publish and commit (delivery rule L2), so it costs two readings
// of a clock and no lock. What is lost stays lost.
func (l Lease) Lost() bool { return l.Hold != nil && l.Hold.Lost() }

// Leases hands out leases. Implementations are safe for concurrent use.
type Leases interface {
	// Acquire takes all names or none. A name that ends in "::*" stands for
	// every name that begins with what comes before the star, and conflicts
	// with each of them. It returns [ErrHeld] if any is taken,
	// [ErrUnavailable] if that cannot be said now.
	Acquire(ctx context.Context, sessionID string, names ...string) (Lease, error)
	// Release gives the names back. A lease that is not current any more is
	// left alone. With [ErrUnavailable] it is given back as soon as that can
	// be done; the caller need not ask again.
	Release(ctx context.Context, lease Lease) error
	// Holder returns the session that holds name, as far as this gateway
	// knows.
	Holder(name string) (sessionID string, held bool)
}

// Claim asks for a lease.
type Claim struct {
	// SessionID is the new session's, never used before.
	SessionID string
	// Names are taken all or none.
	Names []string
	// Resume is the id of the session to take over from, or empty. It must be
	// the id of the holder of the first name, or of a predecessor whose
	// successors have not been confirmed (delivery rule L5).
	Resume string
}

// Grant is the answer to a [Claim].
type Grant struct {
	Lease Lease
	// Resumed says that the claim's Resume named the session from which the
	// lease came, or that session has ended less than [Remembered] ago.
	Resumed bool
	// Watermark is what the predecessor left, nil if it left nothing. Exact
	// says that the predecessor wrote it after it had stopped; otherwise the
	// store may know more (delivery rule L4).
	Watermark []byte
	Exact     bool
}

// Holding is what is known of a session.
type Holding struct {
	// SessionID is that of the current holder: a successor's, if the session
	// that was asked for has been taken over and its id still counts.
	SessionID string
	Names     []string
	Epoch     uint64
	// Ended says that the session has ended and is merely remembered.
	Ended bool
}

// Registry is [Leases] with takeover. Implementations are safe for concurrent
// use.
type Registry interface {
	Leases
	// Claim takes all names or none, like Acquire; with the id of their
	// holder it takes them over: it asks the holder's gateway to stop that
	// session (see [Handler]), waits for it at most [HandOver], and moves the
	// lease to the new session with a higher epoch, so that nobody else can
	// come between (delivery rules L4, L5). With a wrong Resume it returns
	// [ErrHeld], like Acquire.
	Claim(ctx context.Context, claim Claim) (Grant, error)
	// Confirm says that the first frame of a resumed session has come: from
	// now on its predecessors' ids are worth nothing (delivery rule L5). It
	// never blocks, and costs nothing for a session that did not resume.
	Confirm(lease Lease)
	// Mark keeps the watermark that is written into the lease's record with
	// the next renewal (delivery rule L4). It never blocks. The watermark is
	// the caller's own format, at most [MaxWatermark] bytes, not to be
	// changed any more; a longer one is [ErrInvalid]. The caller takes care
	// that it never falls.
	Mark(lease Lease, watermark []byte) error
	// Find returns what a session holds, or held until [Remembered] ago;
	// [ErrNotFound] if it is not known. Whoever asks for a client must check
	// that the names are the client's to use.
	Find(ctx context.Context, sessionID string) (Holding, error)
}

// Handler is told what becomes of this gateway's sessions. Its methods are
// called concurrently.
type Handler interface {
	// Yield stops a session for one that takes it over: when it returns with
	// exact, nothing of the session can have an effect any more, and watermark
	// says exactly what it was done with (delivery rule L4). ctx ends when the
	// other side waits no longer. The session's own Release, which may come
	// during the call or after it, gives nothing away.
	//
	// Without exact, or after ctx has ended, the lease is taken all the same,
	// and Lost follows.
	Yield(ctx context.Context, sessionID string) (watermark []byte, exact bool)
	// Lost says that a lease is gone: the gateway is fenced ([ErrFenced]), or
	// another session has taken it ([ErrSuperseded]). The session must end
	// without any effect. It must not block, and must not call back into the
	// registry from the same goroutine.
	Lost(lease Lease, why error)
}

// Gateway is presence as one gateway sees it: its leases, all others'
// whereabouts, its peers.
type Gateway interface {
	Registry
	Directory
	Notices
	// Start begins to take part. h may be nil: then sessions are taken over
	// without their knowledge. It returns [ErrInstanceInUse] if another
	// gateway has this one's instance id; an outage is no error, see Status.
	// It is called once, before any claim.
	Start(ctx context.Context, h Handler) error
	// Status returns nil if leases can be acquired, else the reason.
	Status() error
	// Fence returns the fence of this gateway now; nil where there is none.
	Fence() *Fence
	// Close gives all leases back as far as that is possible before ctx ends,
	// and stops. Handler.Lost is not called for them.
	Close(ctx context.Context) error
}
