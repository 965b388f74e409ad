package store

import (
	"context"
	"time"
)

// StoredBytes is how much a workspace has in a partition of the log, sent within
// one slot of time.
type StoredBytes struct {
	// Slot is the slot's number: time divided by its width.
	Slot      int64
	Workspace string
	Bytes     int64
	// First and Last are the offsets between which the slot lies in the log,
	// whoever sent.
	First, Last uint64
}

// StoredUsage is what a partition held when the log had been counted up to a
// position.
type StoredUsage struct {
	// Width is that of a slot. Numbers of slots mean nothing under another one.
	Width time.Duration
	// Position is the last one that was counted.
	Position uint64
	Rows     []StoredBytes
}

// Stored keeps what workspaces have in the log, as all gateways count it alike.
// Implementations are safe for concurrent use, also by several gateways; a method
// that returned nil has made its change durable.
type Stored interface {
	// LoadStored returns what was saved last of a partition; ok is false if
	// nothing was.
	LoadStored(ctx context.Context, partition int) (u StoredUsage, ok bool, err error)
	// SaveStored replaces the rows of those slots that are in u and removes
	// those of slots below oldest, in one step. It does nothing, and returns
	// false, if what is there was counted as far or further, or was saved after
	// notSince: another gateway has just done it. What was counted with another
	// width is replaced as a whole.
	SaveStored(ctx context.Context, partition int, u StoredUsage, oldest int64, notSince time.Time) (saved bool, err error)
	// ResetStored removes what is known of a partition whose log was made anew.
	ResetStored(ctx context.Context, partition int) error
}
