package store

import "context"

// Mailboxes lists whose mail is kept.
type Mailboxes interface {
	// MailAddresses returns up to limit addresses that have a committed position
	// or a note of absence, begin with prefix, taken literally, and lie behind
	// after, in the order of their bytes.
	MailAddresses(ctx context.Context, prefix, after string, limit int) ([]string, error)
}
