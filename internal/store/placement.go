package store

import "context"

// Placement keeps the fingerprint of the placement of addresses in streams
// (delivery rule C9). Implementations are safe for concurrent use, also by
// several gateways; a method that returned nil has made its change durable.
type Placement interface {
	// SettlePlacement stores the fingerprint if there is none, and returns the
	// stored one. Of gateways that start at once all get the same. A gateway
	// that gets another than its own would look for mail in the wrong streams,
	// and refuses to start.
	SettlePlacement(ctx context.Context, fingerprint string) (stored string, err error)
	// ReplacePlacement puts a fingerprint in the place of another, for an
	// operator who has moved the mail while no gateway ran. replaced is false
	// if the stored one is neither of the two, or there is none.
	ReplacePlacement(ctx context.Context, from, to string) (replaced bool, err error)
}
