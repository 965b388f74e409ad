package claims

import (
	"context"
	"errors"
	"time"
)

// None is the position before the first.
const None int64 = -1

// Bounds of what is kept and asked.
const (
	// MaxOpen is how many messages of an address may be claimed and not done.
	// Past it nothing more is claimed.
	MaxOpen = 1 << 14
	// MaxCopy is how many open claims a gateway gets a copy of; of a group with
	// more it gets none.
	MaxCopy = 4096
	// MaxRound bounds the candidates of a round.
	MaxRound = 1024
	// Keep is how long a group is kept that no gateway has worked on.
	Keep = 10 * time.Minute
)

// ErrUnavailable says that nothing can be claimed now. What the rounds of the
// call have done is not known.
var ErrUnavailable = errors.New("claims: not available")

// Claims keeps the groups of all gateways. Implementations are safe for
// concurrent use, but the rounds of one gateway on one group must follow each
// other.
type Claims interface {
	// Do makes rounds, at most one for each address, in one exchange, and
	// fills in their answers. With an error no answer counts, and what was
	// asked may have been done or not: the next round of each group is to be
	// made with Recall, which tells.
	Do(ctx context.Context, rounds []*Round) error
	// Sweep forgets groups that no gateway has worked on for [Keep], and
	// returns messages that nobody will finish. It is to be called again while
	// it returns some.
	Sweep(ctx context.Context) ([]Lost, error)
}

// Enter says how a gateway takes part in a group.
type Enter uint8

const (
	// Stay goes on in the group that the gateway has entered.
	Stay Enter = iota
	// Begin is for a gateway whose first worker has come, and which knows
	// nothing that the group does not.
	Begin
	// Resume is for a gateway that knows of the group from before: its state
	// may have been lost, and is put together from what the gateways know.
	Resume
	// Reset is Stay for a log that ends below the floor, since it was made
	// anew: the floor falls to the Cursor, unless another gateway has seen to
	// that.
	Reset
)

// Claim is an open message.
type Claim struct {
	Position uint64
	// Attempts is how often it has been delivered before.
	Attempts uint8
}

// Owned is a claim with its owner's instance id, empty if it is free. Of an
// orphan it may name several, separated by commas: the owner is one of them.
type Owned struct {
	Claim
	Owner string
}

// Lost is a message that was given up with its group.
type Lost struct {
	Topic string
	Claim
}

// Round is what a gateway asks about one address, and the answer.
type Round struct {
	Topic string
	// Serial rises with each round of a gateway: one that comes too late has
	// no effect.
	Serial uint64
	Enter  Enter
	// Incarnation is the one of the last answer, for Stay and Begin; with Begin
	// it may be empty.
	Incarnation string
	// Listening says that there are workers; Tail is what the gateway's tail
	// had handed on when the first of them came, or the last of them left.
	Listening bool
	Tail      int64
	// For Resume and Reset: up to where the gateway knows everything decided, and the
	// stretch after Left up to Back during which nobody listened here; both
	// None if there was none, Back alone if nobody listens now.
	Cursor, Left, Back int64

	// Resets is that of the last answer, for Reset.
	Resets int

	// Done are finished messages, Free those that another is to get; the
	// Attempts of the latter count.
	Done []uint64
	Free []Claim
	// Own are this gateway's claims, for Resume.
	Own []Claim
	// Orphans are claims of others that the gateway has a copy of. Those at or
	// below the floor that are not known, and whose owner is dead or nobody,
	// become free.
	Orphans []Owned
	// Candidates are messages behind the Cursor, in their order and none left
	// out. Max is how many are wanted, free ones included, of which MaxFree at
	// most.
	Candidates   []uint64
	Max, MaxFree int
	// Copy asks for the open claims of all; Recall for those of this gateway,
	// however many.
	Copy, Recall bool

	Answer Answer
}

// Status is the outcome of a round.
type Status uint8

const (
	// OK means that everything was done.
	OK Status = iota
	// Anew means that nothing was done: the group does not know the gateway,
	// which has to enter again.
	Anew
	// Late means that nothing was done, since a later round has been.
	Late
)

// Answer is the answer to a [Round].
type Answer struct {
	Status      Status
	Incarnation string
	// Wait is for how long nothing can be claimed, since gateways tell what
	// they know.
	Wait time.Duration
	// Floor is up to where everything is decided.
	Floor int64
	// Resets is how often the floor has fallen.
	Resets int
	// Others is how many other gateways have workers, Free how many messages
	// wait for a worker after they were given back.
	Others, Free int
	// Granted are candidates, Taken free messages, that are this gateway's
	// now.
	Granted []uint64
	Taken   []Claim
	// Table are the open claims: those of this gateway if Recalled, those of
	// all others too if Complete. Peers are the other gateways in the group.
	Table              []Owned
	Recalled, Complete bool
	Peers              []string
}
