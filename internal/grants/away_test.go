package grants

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/store"
)

var errAway = errors.New("away")

type inner interface{ store.Grants }

// awayStore is a store that can be away.
type awayStore struct {
	inner
	away atomic.Bool
}

func (s *awayStore) AddGrants(ctx context.Context, list []store.Grant, limit int) error {
	if s.away.Load() {
		return errAway
	}
	return s.inner.AddGrants(ctx, list, limit)
}

func (s *awayStore) Grant(ctx context.Context, id string) (g store.Grant, ok bool, err error) {
	if s.away.Load() {
		return g, false, errAway
	}
	return s.inner.Grant(ctx, id)
}

func (s *awayStore) Grants(ctx context.Context, f store.GrantFilter, offset, limit int) ([]store.Grant, int, error) {
	if s.away.Load() {
		return nil, 0, errAway
	}
	return s.inner.Grants(ctx, f, offset, limit)
}

func (s *awayStore) GrantChanges(ctx context.Context, after store.Cursor, limit int) ([]store.Grant, store.Cursor, error) {
	if s.away.Load() {
		return nil, after, errAway
	}
	return s.inner.GrantChanges(ctx, after, limit)
}
