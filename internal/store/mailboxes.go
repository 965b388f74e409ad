package store

import "context"

// Mailboxes lists whose mail is kept.
type Mailboxes interface {
	// MailAddresses returns up to limit addresses that have a committed position
	// or a note of absence, begin with prefix, taken literally, and lie behind
	// after, in the order of their bytes.
	MailAddresses(ctx context.Context, prefix, after string, limit int) ([]string, error)
	// WaitingAddresses returns, in the same way, addresses of which there is a
	// note of absence, or whose last session did not end clean, or runs: those
	// under which mail may wait.
	WaitingAddresses(ctx context.Context, prefix, after string, limit int) ([]string, error)
}
