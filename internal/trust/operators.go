package trust

import (
	"context"

	"github.com/aether-gateway/gateway/internal/auth"
)

// Operators checks the credentials of those who connect as no principal: as its
// verifier does, and that they count. It is safe for concurrent use.
type Operators struct {
	Verifier *auth.Verifier
	Trust    *Credentials
}

// Shown is that of [auth.Verifier]; [auth.ErrRevoked] and [auth.ErrKeysAway] come
// besides.
func (o Operators) Shown(ctx context.Context, shown auth.Shown) (*auth.Credential, error) {
	c, err := o.Verifier.Shown(ctx, shown)
	if err != nil {
		return nil, err
	}
	if err := o.Trust.Revoked(c, ""); err != nil {
		return nil, err
	}
	return c, nil
}
