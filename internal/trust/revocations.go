package trust

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
)

// Revoked returns nil for a credential that counts, used for an identity (empty:
// for none, as operators do). [auth.ErrRevoked] says that it does not,
// [auth.ErrKeysAway] that nothing is known yet.
func (c *Credentials) Revoked(cr *auth.Credential, identity string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.known {
		return auth.ErrKeysAway
	}
	if cr.Type == auth.TypeAPIKey {
		if k := c.keys[cr.KeyID]; k == nil || !k.stored.RevokedAt.IsZero() {
			return auth.ErrRevoked
		}
	}
	for _, m := range []mark{
		{store.RevokedToken, cr.ID},
		{store.RevokedToken, cr.Fingerprint},
		{store.RevokedSubject, cr.Subject},
		{store.RevokedUser, cr.User},
		{store.RevokedIdentity, identity},
	} {
		if m.id == "" {
			continue
		}
		r, ok := c.revoked[m]
		// Times of issue are whole seconds, often cut: one of the same second
		// counts as before. Who does not say when it was issued cannot be after.
		if ok && (m.what == store.RevokedToken || cr.IssuedAt.IsZero() || cr.IssuedAt.Unix() <= r.Before.Unix()) {
			return auth.ErrRevoked
		}
	}
	return nil
}

// ErrRevocation is wrapped by the errors of what is wrong with a revocation. Their
// texts are for operators.
var ErrRevocation = errors.New("this cannot be revoked")

const maxRevocationText = 1024 // bytes of each text; no credential has a longer one

// Revoke takes credentials back: on every gateway they are refused, and sessions
// that go on them end. A zero Before, of anything but a token, is now.
// [ErrRevocation] and [store.ErrFull] refuse it; after another error, which is the
// store's, it may be repeated.
func (c *Credentials) Revoke(ctx context.Context, r store.Revocation) error {
	switch {
	case !r.What.Valid():
		return fmt.Errorf("%w: it is no token, subject, user or identity", ErrRevocation)
	case r.ID == "" || !utf8.ValidString(r.ID) || strings.ContainsRune(r.ID, 0):
		return fmt.Errorf("%w: the %s needs a name", ErrRevocation, r.What)
	case max(len(r.ID), len(r.Reason), len(r.By)) > maxRevocationText:
		return fmt.Errorf("%w: a text in it has more than %d bytes", ErrRevocation, maxRevocationText)
	}
	if r.What != store.RevokedToken && r.Before.IsZero() {
		r.Before = c.o.Now()
	}
	if err := c.o.Store.Revoke(ctx, r); err != nil {
		return err
	}
	c.changed(ctx)
	return nil
}
