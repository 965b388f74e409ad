package check

import (
	"fmt"
	"strings"
	"time"
)

// Kind says what an event tells.
type Kind string

// The kinds of events. The fields that each one uses stand behind it; all have
// At.
const (
	// Attempt: a sender is about to hand a message to its client. Sender, To, Seq.
	Attempt Kind = "attempt"
	// Stored: the attempt has a receipt. Sender, To, Seq, Duplicate.
	Stored Kind = "stored"
	// Refused: the attempt was surely not stored. Sender, To, Seq, Text.
	Refused Kind = "refused"
	// Unknown: the attempt failed and may have been stored. Sender, To, Seq, Text.
	Unknown Kind = "unknown"
	// Joined: a client has a session. Who, Session, Gateway, and Sender: the
	// address by which receivers know what it sends.
	Joined Kind = "joined"
	// Left: the session is over, for the client. Who, Session.
	Left Kind = "left"
	// Delivered: a frame with a message came, repeats included. Who, Session,
	// Gateway, Sender, To, Seq, Redelivered, Position.
	Delivered Kind = "delivered"
	// Processed: the receiver's program has done its work on a message and is
	// about to acknowledge it. Who, Sender, To, Seq.
	Processed Kind = "processed"
	// Gap: a receiver was told of a loss. Who, Session, Text: the address, "" for
	// several.
	Gap Kind = "gap"
	// Garbled: something came that is no message of the workload, or a changed
	// one. Who, Session, Text.
	Garbled Kind = "garbled"
	// Up and Down: a gateway's process began to serve, or has ended. Gateway.
	Up   Kind = "up"
	Down Kind = "down"
	// Fault: something was broken. Who: the kind of fault, Text: the details,
	// Gateway: the process whose frames it holds up, if it does. Emptied.
	Fault Kind = "fault"
	// Healed: it is whole again. All as for Fault.
	Healed Kind = "healed"
	// Created: a task was created, as its creator knows. Who, Task, Most, Text:
	// whom it is for.
	Created Kind = "created"
	// Handed: an orchestrator was given a start. Who, Task, Text: whom to start.
	Handed Kind = "handed"
	// Began: a worker has a task, as the gateway has confirmed. Who, Task, Attempt.
	Began Kind = "began"
	// Ended: the gateway has confirmed that a worker has completed a task. Who,
	// Task, Attempt.
	Ended Kind = "ended"
	// Told: a creator was told how a task stands. Who, Session, Task, Attempt,
	// Status.
	Told Kind = "told"
	// Is: how a task stood when an operator asked, noted again when that has
	// changed. Task, Attempt, Most, Status, Text: whom it starts, "" if it is no
	// start, Since: when it was created and Until: when it ended, to the second.
	Is Kind = "is"
)

// NoPosition is the position of a delivery that had none.
const NoPosition = -1

// Event is one thing that a client or the harness noted. Events of a history
// are in the order in which they were noted, and At never falls.
type Event struct {
	At   time.Duration // since the start
	Kind Kind

	Who     string `json:",omitempty"`
	Session string `json:",omitempty"`
	Gateway string `json:",omitempty"` // a process, "gateway/start": another one after each start

	Sender string `json:",omitempty"` // the address by which receivers know it
	To     string `json:",omitempty"`
	Seq    int    `json:",omitempty"` // from 1, per sender and address, in the order of first attempts

	Duplicate   bool   `json:",omitempty"`
	Emptied     bool   `json:",omitempty"` // what gateways know in common of open work is lost
	Redelivered bool   `json:",omitempty"`
	Position    int64  `json:",omitempty"`
	Text        string `json:",omitempty"`

	Task          string        `json:",omitempty"`
	Attempt, Most int           `json:",omitempty"`
	Status        string        `json:",omitempty"`
	Since, Until  time.Duration `json:",omitempty"`
}

// Message names a message.
type Message struct {
	Sender, To string
	Seq        int
}

// Message returns the message that the event is about; its zero value if none.
func (e Event) Message() Message { return Message{e.Sender, e.To, e.Seq} }

// String names the message for people.
func (m Message) String() string { return fmt.Sprintf("%s → %s #%d", m.Sender, m.To, m.Seq) }

// String is the event as one line.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%10.3fs  %-9s", e.At.Seconds(), e.Kind)
	if e.Seq != 0 {
		fmt.Fprintf(&b, "  %s", e.Message())
	}
	for _, f := range []struct{ name, value string }{
		{"who", e.Who}, {"session", e.Session}, {"gateway", e.Gateway}, {"task", e.Task}, {"status", e.Status}, {"text", e.Text},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, "  %s=%s", f.name, f.value)
		}
	}
	if e.Kind == Delivered && e.Position != NoPosition {
		fmt.Fprintf(&b, "  position=%d.%d", e.Position/1024, e.Position%1024)
	}
	if e.Attempt > 0 {
		fmt.Fprintf(&b, "  attempt=%d", e.Attempt)
	}
	if e.Redelivered {
		b.WriteString("  redelivered")
	}
	if e.Duplicate {
		b.WriteString("  duplicate")
	}
	return b.String()
}

// Receiver says what a client may get.
type Receiver struct {
	Name string // as in Event.Who
	// Exclusive is the address that it alone reads, Workers the one whose
	// messages it shares with others; "" for none. Shared are those of which all
	// get everything.
	Exclusive, Workers string
	Shared             []string
	// Own is the address by which its own broadcasts are known, which it is not
	// sent.
	Own string
	// Class is the row of the table in which its exclusive address is counted.
	Class string
	// Remembers: it recognises repeats, so it must process nothing twice.
	Remembers bool
}

// History is a whole run. It ends when all that was promised should have come.
type History struct {
	Receivers []Receiver
	Events    []Event
	// Race is how much later than its client a sender may note an answer: what
	// was sent so shortly before a failure was noted counts as sent after it.
	Race time.Duration
	// Fence is how long a session may still be given messages when a later one
	// of the same receiver has begun, without the time for which a fault held up
	// its frames. 0: for ever.
	Fence time.Duration
	// Reach is how long after its receipt a broadcast may come. A session that
	// ends earlier need not get it.
	Reach time.Duration
	// Memory is how long open work may depend on one of the gateways that were
	// there when it was sent, or on what they know in common: if both are lost
	// within this time after it, messages to workers may be.
	Memory time.Duration
}
