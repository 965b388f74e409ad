package auth

import (
	"context"
	"strings"
)

// APIKeyPrefix begins every API key. No token begins with it.
const APIKeyPrefix = "ak_"

// maxAPIKey bounds an API key before anything looks for it.
const maxAPIKey = 256 // bytes

// APIKeys knows the API keys that are valid now. It is safe for concurrent use.
type APIKeys interface {
	// Find gives the id of a key and the claims that are bound to it; a zero
	// ExpiresAt is a key that does not expire. An unknown key, or one that was
	// revoked or has expired, is an error that wraps ErrAPIKey; that the keys
	// cannot be had at present one that wraps ErrKeysAway. The time it takes must
	// not depend on how much of a wrong key is right.
	//
	// The key begins with APIKeyPrefix and has at most 256 bytes. It must be
	// neither kept nor shown.
	Find(ctx context.Context, key string) (id string, c Claims, err error)
}

// KeyOver is ErrAPIKey for a key that was good: it was revoked, or has expired.
// The client is told no more than of any other; the id is for the audit.
type KeyOver struct{ ID string }

func (*KeyOver) Error() string { return ErrAPIKey.Error() }

// Unwrap gives ErrAPIKey.
func (*KeyOver) Unwrap() error { return ErrAPIKey }

func isAPIKey(shown string) bool { return strings.HasPrefix(shown, APIKeyPrefix) }

func (v *Verifier) verifyAPIKey(ctx context.Context, key string) (*Credential, error) {
	if v.apiKeys == nil || len(key) > maxAPIKey {
		return nil, ErrAPIKey
	}
	id, claims, err := v.apiKeys.Find(ctx, key)
	if err != nil {
		return nil, err
	}
	// A key has no clock of another machine in it, so it gets no leeway.
	if !claims.ExpiresAt.IsZero() && !v.clock().Before(claims.ExpiresAt) {
		return nil, &KeyOver{ID: id}
	}
	if err := claims.check(); err != nil {
		return nil, err
	}
	c := claims.credential(TypeAPIKey)
	c.KeyID = id
	return c, nil
}

// WithAPIKeys is a Verifier like this one that also takes API keys.
func (v *Verifier) WithAPIKeys(keys APIKeys) *Verifier {
	also := *v
	also.apiKeys = keys
	return &also
}
