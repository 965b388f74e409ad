package tables

import (
	"context"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Mailboxes = (*Tables)(nil)

// selectMailAddresses goes down the indexes of addresses.
const selectMailAddresses = `select address from positions
		where address > $1 and address >= $2 and (cast($3 as text) = '' or address < $3)
	union select address from notes
		where address > $1 and address >= $2 and (cast($3 as text) = '' or address < $3)
	order by address limit $4`

// selectWaitingAddresses goes down the same way over notes and marks.
const selectWaitingAddresses = `select address from notes
		where address > $1 and address >= $2 and (cast($3 as text) = '' or address < $3)
	union select identity from marks
		where identity > $1 and identity >= $2 and (cast($3 as text) = '' or identity < $3) and address = identity and clean is null
	order by address limit $4`

// MailAddresses implements [store.Mailboxes].
func (t *Tables) MailAddresses(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return t.addresses(ctx, selectMailAddresses, prefix, after, limit)
}

// WaitingAddresses implements [store.Mailboxes].
func (t *Tables) WaitingAddresses(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	return t.addresses(ctx, selectWaitingAddresses, prefix, after, limit)
}

func (t *Tables) addresses(ctx context.Context, query, prefix, after string, limit int) ([]string, error) {
	if err := checkTexts(prefix, after); err != nil {
		return nil, err
	}
	end, _ := behind(prefix)
	var all []string
	err := t.db.Read(ctx, "list mailboxes", func(r Reader) error {
		all = nil
		return r.Query(query, []any{after, prefix, end, max(limit, 1)}, func(scan Scan) error {
			var address string
			err := scan(&address)
			all = append(all, address)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
