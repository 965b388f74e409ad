package store

import (
	"context"
	"time"
)

// Ruling is what an operator decided about a membership.
type Ruling int

const (
	// Unruled leaves the membership to the user's tokens.
	Unruled Ruling = iota
	// RuledIn makes the user a member, with or without a token.
	RuledIn
	// RuledOut keeps the user out, whatever any token says, until it is ruled
	// otherwise.
	RuledOut
)

func (r Ruling) String() string {
	switch r {
	case Unruled:
		return "none"
	case RuledIn:
		return "in"
	case RuledOut:
		return "out"
	}
	return "unknown"
}

// Membership is what is known of a user in a workspace.
type Membership struct {
	User, Workspace string
	// Until is when the last of the user's verified tokens for the workspace
	// expires; zero if there was none.
	Until time.Time
	// Ruling is the operator's.
	Ruling Ruling
}

// Member reports whether the user is a member at a time: a ruling beats any
// token, and a token is worth nothing from the instant of its expiry on.
func (m Membership) Member(now time.Time) bool {
	switch m.Ruling {
	case Unruled:
		return now.Before(m.Until)
	case RuledIn:
		return true
	}
	return false
}

// Cursor says how far a reader of changes has come. The zero value is the
// beginning; others come from [Members].
type Cursor int64

// Members keeps which users are in which workspaces. Implementations are safe
// for concurrent use, also by several gateways; a method that returned nil has
// made its change durable.
//
// Changes are numbered in the order in which they become visible, so that a
// gateway can keep a copy up to date by asking for what is new. For that they
// wait for each other. [ErrText] refuses a text, [ErrRuling] a ruling.
type Members interface {
	// LearnMembership records the workspaces of a user's verified token. Of
	// two times the later is kept, rulings stay. A token that says nothing new
	// changes nothing and waits for nobody. A time not after 1970 teaches
	// nothing; one of which the milliseconds are cut off is earlier, never
	// later.
	LearnMembership(ctx context.Context, user string, workspaces []string, until time.Time) error
	// RuleMembership records what an operator decided; the last one counts.
	// [Unruled] takes an earlier ruling back. [ErrNotFound] refuses it in a
	// workspace that was deleted.
	RuleMembership(ctx context.Context, user, workspace string, r Ruling) error
	// MembershipsOf returns all that is known of a user, by workspace: also
	// what has expired, and where the user is ruled out.
	MembershipsOf(ctx context.Context, user string) ([]Membership, error)
	// Ruled returns all memberships with a ruling, by workspace and user.
	Ruled(ctx context.Context, r Ruling) ([]Membership, error)
	// MembershipChanges returns up to limit memberships that changed after the
	// cursor, as they are now, in the order of their last change, and the
	// cursor to ask with next. Fewer than limit means that there is no more
	// for now. [ErrCursor] says that the store is not the one that the cursor
	// came from; then the reader forgets its copy and begins at 0. So does one
	// that has not asked for as long as [Members.ExpireMemberships] keeps what
	// is over. The reader drops expired ones by itself. limit is at least 1.
	MembershipChanges(ctx context.Context, after Cursor, limit int) ([]Membership, Cursor, error)
	// ExpireMemberships removes unruled memberships that ended and last
	// changed before the time, and returns how many.
	ExpireMemberships(ctx context.Context, before time.Time) (int64, error)
}
