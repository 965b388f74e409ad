package gateway

import (
	"context"

	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
)

// mail says whose mail waits, from the log and the store.
type mail struct {
	router    *router.Router
	mailboxes store.Mailboxes
}

func (m mail) Unread(ctx context.Context, addresses []string) (unread, unknown map[string]bool, err error) {
	return m.router.Unread(ctx, addresses)
}

func (m mail) Waiting(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return m.mailboxes.WaitingAddresses(ctx, prefix, after, limit)
}
