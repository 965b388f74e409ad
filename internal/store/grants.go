package store

import (
	"context"
	"time"
)

// Grant lets a delegate act for a subject, as it is stored. Times are kept to the
// millisecond; a zero time is none.
type Grant struct {
	// ID names the grant, RootID the first one of its chain: its own id if it is
	// that. ParentID is empty for the first, Depth 0.
	ID, RootID, ParentID string
	Depth                int32
	// SubjectType and SubjectID are for whom it lets act: a kind and an identity
	// string, or the bare id of a user.
	SubjectType, SubjectID string
	// DelegateType and DelegateID are who may act: as those of the subject. Both
	// are empty as long as the delegate of a task is not known.
	DelegateType, DelegateID string
	// IssuedBy is who made it: an identity string, or an operator's name.
	IssuedBy string
	// AudienceType and AudienceID bind it to a session, a task or a principal;
	// empty: to nothing but the delegate.
	AudienceType, AudienceID string
	// Workspaces are those that it names: with any of them it ends.
	Workspaces []string
	// Terms are what it allows, as a JSON object of package grants.
	Terms     string
	CreatedAt time.Time

	// What follows changes, by the methods of [Grants] only.

	// ExpiresAt may be moved, up to RenewableUntil.
	ExpiresAt, RenewableUntil, RenewedAt time.Time
	RevokedAt                            time.Time
	RevokedBy, RevokeReason              string
}

// GrantFilter chooses grants. Empty fields choose all.
type GrantFilter struct {
	SubjectType, SubjectID string
	// Delegates are ids of delegates, of which one must be the grant's.
	Delegates                []string
	AudienceType, AudienceID string
	// Ended takes those, too, that were revoked or have expired.
	Ended bool
}

// MaxGrants bounds how many grants there can be, as each gateway has a copy of
// all that hold.
const MaxGrants = 50_000

// GrantRest is how long a grant that was revoked or has expired stays, so that
// every gateway that reaches the database has heard of it.
const GrantRest = time.Hour

// Grants keeps grants. Implementations are safe for concurrent use, also by
// several gateways; a method that returned nil has made its change durable, and
// one that failed can be repeated. [ErrText] refuses a text.
//
// Changes are numbered as those of [Members] are.
type Grants interface {
	// AddGrants stores new grants, all or none; of one that is there already
	// nothing is changed. CreatedAt is set by the store. [ErrNotFound]: the parent of one does not exist,
	// was revoked, or has expired. [ErrFull]: there are too many, in all or of
	// the subject, which may have up to limit; what ended [GrantRest] ago makes
	// room.
	AddGrants(ctx context.Context, list []Grant, limit int) error
	// Grant returns a grant, also one that has ended; ok is false if there is
	// none.
	Grant(ctx context.Context, id string) (g Grant, ok bool, err error)
	// Grants returns up to limit grants after the first offset ones, the newest
	// first, and how many there are in all.
	Grants(ctx context.Context, f GrantFilter, offset, limit int) (list []Grant, total int, err error)
	// RenewGrant moves the expiry of a grant that holds, and returns the grant as
	// it is then. done is false, and nothing changes, if the grant has ended, or
	// the time is not later than its expiry, or later than it may be renewed to,
	// or later than its parent expires.
	RenewGrant(ctx context.Context, id string, until time.Time) (g Grant, done bool, err error)
	// RevokeGrants ends grants, and all that derive from them, for ever. Of
	// those that were revoked before nothing is changed. It returns how many
	// were not. Unknown ids are none.
	RevokeGrants(ctx context.Context, ids []string, by, reason string) (int, error)
	// RevokeGrantsOf ends all grants with an audience, as RevokeGrants does.
	RevokeGrantsOf(ctx context.Context, audienceType, audienceID, by, reason string) (int, error)
	// DelegateGrants gives the grants that hold and have an audience to another
	// delegate, and returns how many.
	DelegateGrants(ctx context.Context, audienceType, audienceID, delegateType, delegateID string) (int, error)
	// GrantChanges returns up to limit grants that changed after the cursor,
	// revoked ones too, as [Members.MembershipChanges] does.
	GrantChanges(ctx context.Context, after Cursor, limit int) ([]Grant, Cursor, error)
	// ExpireGrants removes grants that ended before the time, and returns how
	// many. A reader of changes drops them by itself.
	ExpireGrants(ctx context.Context, before time.Time) (int64, error)
}
