package store

import (
	"context"
	"time"
)

// Note is a note of absence (delivery rule C3): an address that nobody held may
// have mail from Position on, that one included. 0 is a position.
type Note struct {
	Address  string
	Position uint64
	// Workspace is whose quota counts the note, the sender's. The first one to
	// write the note of an address pays.
	Workspace string
}

// Raise moves a note up.
type Raise struct {
	Address string
	// From is the position that the note must have; To the one that it gets.
	From, To uint64
}

// Notes keeps notes of absence. Implementations are safe for concurrent use,
// also by several gateways; a method that returned nil has made its change
// durable, before anything is sent that relies on it.
type Notes interface {
	// NoteAbsence gives each address the note min(existing, Position) and
	// returns the notes as they are then, in the order of the call (delivery
	// rule C3). All are one statement where the engine has one for it. Only if
	// its own position came back has this gateway written the note, and may it
	// raise it. It also makes the notes as new as now, whatever their
	// positions: a gateway that goes on sending to an absent address repeats
	// it from time to time, so that the note does not expire before the mail.
	//
	// The same address twice in one call: the lower wins. [ErrRange] and
	// [ErrText] refuse the whole call; after another error it may be repeated,
	// any part of it may have been done.
	NoteAbsence(ctx context.Context, notes []Note) ([]uint64, error)
	// Note returns the note of an address; ok is false if there is none.
	// That there is none can be trusted (delivery rule C4) for what the log
	// held when it was asked: who is to begin at the end of the log takes the
	// end first and asks then.
	Note(ctx context.Context, address string) (position uint64, ok bool, err error)
	// RaiseNotes moves those notes up that still have the position From, when
	// the log has shown that no mail lies below To (delivery rule C3). It
	// returns how many it moved; less, if the answer to an earlier attempt was
	// lost.
	RaiseNotes(ctx context.Context, raises []Raise) (int64, error)
	// DeleteNotes removes those notes that still have the position given, when
	// everything from there on was read and committed (delivery rule C6). It
	// returns how many it removed, as RaiseNotes does. Workspaces are ignored.
	DeleteNotes(ctx context.Context, notes []Note) (int64, error)
	// ExpireNotes removes notes that nobody wrote or raised since before, and
	// returns how many. The log must hold nothing as old as that; what it lost
	// then is told by nobody.
	ExpireNotes(ctx context.Context, before time.Time) (int64, error)
	// CountNotes returns how many notes there are, by workspace. A workspace
	// without notes is not in it.
	CountNotes(ctx context.Context) (map[string]int64, error)
}
