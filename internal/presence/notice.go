package presence

import (
	"fmt"
	"strings"
)

// Notice is what one gateway tells another.
type Notice struct {
	// From is the sender's [Instance].ID.
	From string
	// Kind says who listens.
	Kind    string
	Payload []byte
}

// KindGone is a notice that a gateway gets from its own presence: From is a
// gateway that lives no longer, Payload its configured name. It follows the end
// of that gateway's leases by at most [Beat] and what the network takes.
const KindGone = "presence.gone"

// reserved begins the kinds that nobody may send.
const reserved = "presence."

// CheckNotice returns [ErrInvalid] if a notice cannot be sent.
func CheckNotice(kind string, payload []byte) error {
	switch {
	case kind == "" || len(kind) > MaxKind || strings.HasPrefix(kind, reserved):
		return fmt.Errorf("%w: notice kind %.64q", ErrInvalid, kind)
	case len(payload) > MaxNotice:
		return fmt.Errorf("%w: a notice of %d bytes, %d are allowed", ErrInvalid, len(payload), MaxNotice)
	}
	return nil
}

// Notices are small messages between gateways. They are lossy by nature: one
// may be lost while connections break, or when a listener is slow; a gateway
// that is not there gets none, and none is repeated. Those of one sender arrive
// in the order in which they were sent. What must not be lost is sent again
// until it is answered, or can be read elsewhere. Implementations are safe for
// concurrent use.
type Notices interface {
	// Send sends to the gateway with that id, which may be the own one, or to
	// all others if to is empty. It does not wait: nil says that the notice
	// was taken. A full queue is [ErrOverflow], what [CheckNotice] refuses
	// [ErrInvalid].
	Send(to, kind string, payload []byte) error
	// Listen calls f for each notice of a kind until stop is called, after
	// which no call begins. Calls come from one goroutine, so f must return
	// soon; what piles up meanwhile beyond a bound is dropped. One listener
	// per kind: a second one replaces the first.
	Listen(kind string, f func(Notice)) (stop func())
}
