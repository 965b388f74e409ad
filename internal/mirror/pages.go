package mirror

import (
	"context"

	"github.com/aether-gateway/gateway/internal/store"
)

// PageSize is how many changes are asked for at once.
const PageSize = 1000

// Pages reads all changes after a cursor by a function that gives up to so many
// at once.
func Pages[T any](ctx context.Context, after store.Cursor, read func(context.Context, store.Cursor, int) ([]T, store.Cursor, error)) (all []T, next store.Cursor, err error) {
	for next = after; ; {
		var page []T
		if page, next, err = read(ctx, next, PageSize); err != nil {
			return nil, after, err
		}
		all = append(all, page...)
		if len(page) < PageSize {
			return all, next, nil
		}
	}
}
