// Package store is the durable state of the gateway as small interfaces, with
// one implementation on PostgreSQL and one on SQLite.
//
// It knows rows and their guards. What a row means for delivery is decided by
// those who use it.
package store

import (
	"context"
	"time"
)

// Commit moves the committed position of an identity in an address's log.
type Commit struct {
	// Identity is the principal's identity string; Address the one that it
	// reads.
	Identity, Address string
	// Position is the last one that is done (delivery rule C1). 0 is a
	// position.
	Position uint64
	// Epoch is the fencing number of the lease under which it was reached.
	Epoch uint64
}

// Position is a committed position as it is stored.
type Position struct {
	Identity, Address string
	Position          uint64
	Epoch             uint64
}

// Positions keeps committed positions. Implementations are safe for
// concurrent use; a method that returned nil has made its change durable.
type Positions interface {
	// Position returns the committed position; ok is false if there is none.
	Position(ctx context.Context, identity, address string) (position uint64, ok bool, err error)
	// PositionsOf returns every position of an identity, by address.
	PositionsOf(ctx context.Context, identity string) ([]Position, error)
	// PositionsUnder returns every position whose address begins with prefix,
	// taken literally, ordered by address and identity.
	PositionsUnder(ctx context.Context, prefix string) ([]Position, error)
	// Commit stores the positions, in one statement where the engine has one
	// for it. One that would fall, or whose epoch is below the stored one,
	// changes nothing and is no error (delivery rule C1); of one that would
	// fall under a newer epoch the epoch is stored. The same key twice in one
	// call: the higher wins; under several epochs each is judged, the oldest
	// first. [ErrRange] and [ErrText] refuse the whole call; after another
	// error it may be repeated, any part of it may have been done.
	Commit(ctx context.Context, commits []Commit) error
	// RewindPositions lowers positions: the log that they were reached in is gone,
	// and another one, which ends below them, is in its place (delivery rule
	// C2). One that is not above Position, or whose epoch is newer, or that does
	// not exist, is left as it is and is no error. It is for the session that
	// holds the address; it may be repeated.
	RewindPositions(ctx context.Context, to []Commit) error
	// ExpirePositions removes positions that nobody moved since before, and
	// returns how many.
	ExpirePositions(ctx context.Context, before time.Time) (int64, error)
}

// Store is a whole engine.
type Store interface {
	Positions
	Notes
	Marks
	Members
	APIKeys
	Revocations
	Grants
	Rules
	Implementations
	Placement
	Workspaces
	Feed
	Audit
	Mailboxes
	Stored
	Tasks
	KV
	// Ping reports whether the engine answers.
	Ping(ctx context.Context) error
	// Close releases the engine's connections.
	Close() error
}
