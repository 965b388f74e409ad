package store

import (
	"context"
	"time"
)

// Revoked says what a revocation names.
type Revoked string

// What can be revoked, besides API keys, which say so themselves.
const (
	// RevokedToken is one token, by its id (the claim jti) or its fingerprint.
	RevokedToken Revoked = "token"
	// RevokedSubject is all credentials of a subject (the claim sub).
	RevokedSubject Revoked = "subject"
	// RevokedUser is all credentials of a user (the claim user).
	RevokedUser Revoked = "user"
	// RevokedIdentity is all credentials, as far as they are used for an identity.
	RevokedIdentity Revoked = "identity"
)

// Valid reports whether r is one of those.
func (r Revoked) Valid() bool {
	switch r {
	case RevokedToken, RevokedSubject, RevokedUser, RevokedIdentity:
		return true
	}
	return false
}

// Revocation takes credentials back before they expire.
type Revocation struct {
	What Revoked
	// ID is the token's id or fingerprint, the subject, the user, or the identity.
	ID string
	// Before spares credentials that were issued after it. It is not looked at
	// for a token.
	Before time.Time
	// Until is when the last credential that it concerns has expired, so that it
	// may be forgotten; zero: it is kept for ever.
	Until time.Time
	// Reason and By are for the audit, At is when it was stored.
	Reason, By string
	At         time.Time
}

// MaxRevocations bounds how many revocations there can be, as each gateway has a
// copy of all.
const MaxRevocations = 100_000

// Revocations keeps what was revoked. Implementations are safe for concurrent
// use, also by several gateways; a method that returned nil has made its change
// durable. Times are kept to the millisecond. [ErrText] refuses a text.
//
// Changes are numbered as those of [Members] are. There is no way back: who is
// to come again gets a new credential.
type Revocations interface {
	// Revoke stores a revocation. Of one for the same thing the later Before and
	// the later Until are kept. [ErrRevoked] refuses what cannot be revoked,
	// [ErrFull]: there are too many.
	Revoke(ctx context.Context, r Revocation) error
	// RevocationChanges returns up to limit revocations that changed after the
	// cursor, and the cursor to ask with next, as [Members.MembershipChanges]
	// does. From 0 on it lists all.
	RevocationChanges(ctx context.Context, after Cursor, limit int) ([]Revocation, Cursor, error)
	// ExpireRevocations removes those whose Until is before the time, and returns
	// how many. A reader of changes drops them by itself.
	ExpireRevocations(ctx context.Context, before time.Time) (int64, error)
}
