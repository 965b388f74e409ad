package client

import (
	"fmt"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Notice is what [Options.OnNotice] is told: one of the types below. New types
// may be added; ignore what you do not know.
type Notice interface{ notice() }

type (
	// Connected: a session began, the first or a later one. It follows on the one
	// before without a Disconnected when a TokenSource replaced an expired token.
	Connected struct{ Session Session }

	// Disconnected: the connection broke. With Final it will not come back, as
	// [Client.Err] says too; otherwise the client is connecting again.
	Disconnected struct {
		Err   error
		Final bool
	}

	// Gap: messages to Topic were lost before the next one that arrives.
	Gap struct {
		Topic   string // "" if it concerns several
		Reason  string // "retention", "lagged", "recreated", "damaged"; "local" if this client was too slow
		Dropped uint64 // how many, 0 if that is not known
	}

	// Refused: the gateway refused something that nobody waits for: a Post, a raw
	// frame, an acknowledgement. For a Post, Err.To is the address and
	// Err.MessageID what Post returned, as far as the gateway told.
	Refused struct{ Err *Error }

	// CredentialExpiring: the gateway announced that the session ends At, unless
	// the credential is renewed, which a TokenSource does without further ado. Not
	// all gateways announce it.
	CredentialExpiring struct{ At time.Time }

	// HandlerFailed: a handler returned an error or panicked.
	HandlerFailed struct {
		Message *Message
		Err     error
	}

	// LateReply: an answer to a [Client.Request] that was no longer waited for. It
	// is acknowledged and not given to the handler.
	LateReply struct{ Message *Message }

	// Frame: a frame that this package has no other way to hand on, such as answers
	// to [Client.SendFrame].
	Frame struct{ Frame *aetherv1.DownstreamMessage }

	// Missed: OnNotice was too slow, and Count notices were dropped before the
	// next one.
	Missed struct{ Count int }
)

// String names the message, too, if it is known.
func (r Refused) String() string {
	if r.Err == nil || r.Err.MessageID == "" {
		return fmt.Sprint(r.Err)
	}
	return fmt.Sprintf("%v (message id %s)", r.Err, r.Err.MessageID)
}

func (Connected) notice()          {}
func (Disconnected) notice()       {}
func (Gap) notice()                {}
func (Refused) notice()            {}
func (CredentialExpiring) notice() {}
func (HandlerFailed) notice()      {}
func (LateReply) notice()          {}
func (Frame) notice()              {}
func (Missed) notice()             {}

const maxNotices = 1024

// notices hands notices to OnNotice in order, from its own goroutine, so that
// user code never stops the receive loop. Bounded: the oldest are dropped and
// counted.
type notices struct {
	call func(Notice)
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	queue  []Notice
	missed int
}

func newNotices(call func(Notice)) *notices {
	return &notices{call: call, wake: make(chan struct{}, 1)}
}

func (n *notices) put(x Notice) {
	if n.call == nil {
		return
	}
	n.mu.Lock()
	if len(n.queue) >= maxNotices {
		n.queue[0] = nil
		n.queue = n.queue[1:]
		n.missed++
	}
	n.queue = append(n.queue, x)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run calls until stop is closed and everything before it was handed on.
func (n *notices) run(stop <-chan struct{}) {
	for {
		select {
		case <-n.wake:
			n.drain()
		case <-stop:
			n.drain()
			return
		}
	}
}

func (n *notices) drain() {
	for {
		n.mu.Lock()
		queue, missed := n.queue, n.missed
		n.queue, n.missed = nil, 0
		n.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		if missed > 0 {
			n.call(Missed{Count: missed})
		}
		for _, x := range queue {
			n.call(x)
		}
	}
}
