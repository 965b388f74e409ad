package store

import (
	"context"
	"time"
)

// APIKey is an API key as it is stored: without its secret.
type APIKey struct {
	// ID names the key and is part of its text; Name is for people and need not
	// be unique.
	ID, Name string
	// Salt and Hash are what the secret is compared with.
	Salt, Hash []byte
	// Claims is what the key proves, as a JSON object.
	Claims string
	// CreatedBy and RevokedBy are who did it, for the audit.
	CreatedBy, RevokedBy string
	// ExpiresAt is zero for a key that does not expire, RevokedAt for one that
	// is not revoked, UsedAt for one that nobody has used yet. UsedAt is coarse.
	CreatedAt, ExpiresAt, RevokedAt, UsedAt time.Time
}

// KeyUse says when a key was used last.
type KeyUse struct {
	ID string
	At time.Time
}

// KeyPlace is a place in the list of keys: that of the key which has been made
// then and has the id. The zero value is before all.
type KeyPlace struct {
	CreatedAt time.Time
	ID        string
}

// MaxAPIKeys bounds how many keys there can be, as each gateway has a copy of
// all: past it an expired or revoked one has to be removed first, which
// [APIKeys.ExpireAPIKeys] does.
const MaxAPIKeys = 10_000

// APIKeys keeps API keys. Implementations are safe for concurrent use, also by
// several gateways; a method that returned nil has made its change durable.
// Times are kept to the millisecond. [ErrText] refuses a text.
//
// Changes are numbered as those of [Members] are.
type APIKeys interface {
	// CreateAPIKey stores a new key; of one that is there already nothing is
	// changed, so that a call may be repeated. [ErrFull]: there are too many. A
	// [NameError] refuses the name of a key that is neither revoked nor expired.
	CreateAPIKey(ctx context.Context, key APIKey) error
	// RevokeAPIKey makes a key worthless for ever. Of one that is revoked already
	// nothing is changed. [ErrNotFound]: there is no such key.
	RevokeAPIKey(ctx context.Context, id, by string) error
	// APIKeys returns all keys, also expired and revoked ones, in the order in
	// which they were created.
	APIKeys(ctx context.Context) ([]APIKey, error)
	// APIKeysAfter returns up to limit of them, behind a place in that order.
	APIKeysAfter(ctx context.Context, after KeyPlace, limit int) ([]APIKey, error)
	// UseAPIKeys records when keys were used. An earlier time than the recorded
	// one, and an unknown key, change nothing. It is no change that is numbered.
	UseAPIKeys(ctx context.Context, uses []KeyUse) error
	// APIKeyChanges returns up to limit keys that changed after the cursor, and
	// the cursor to ask with next, as [Members.MembershipChanges] does.
	APIKeyChanges(ctx context.Context, after Cursor, limit int) ([]APIKey, Cursor, error)
	// ExpireAPIKeys removes keys that expired or were revoked before the time,
	// and returns how many. A reader of changes drops them by itself.
	ExpireAPIKeys(ctx context.Context, before time.Time) (int64, error)
}
