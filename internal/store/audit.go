package store

import (
	"context"
	"time"
)

// AuditRecord is something that happened, once or several times.
type AuditRecord struct {
	AuditKey
	// Gateway is the configured name of the gateway that saw it.
	Gateway string
	// Kind sorts records; Actor did Action to Target, with Outcome. Reason is
	// the code of a refusal, Detail a sentence for people.
	Kind, Actor, Action, Target, Outcome, Reason, Detail string
	// Count is how often it happened; at least 1.
	Count int64
}

// AuditKey orders records by time, and tells them apart.
type AuditKey struct {
	// At is when it happened first, in milliseconds.
	At time.Time
	// Origin is the process that recorded it, Seq its number there.
	Origin string
	Seq    uint64
}

// AuditFilter chooses records. Empty fields choose all.
type AuditFilter struct {
	Kind, Actor string
	// Since leaves out what is older.
	Since time.Time
	// Before leaves out this record and what is newer.
	Before *AuditKey
}

// Audit keeps what happened. Implementations are safe for concurrent use, also
// by several gateways.
type Audit interface {
	// RecordAudit makes records durable. It may be repeated: one that is there
	// already, by origin and number, stays as it is. [ErrText] and [ErrRange]
	// refuse the whole call; after another error any part of it may have been
	// done.
	RecordAudit(ctx context.Context, records []AuditRecord) error
	// AuditRecords returns up to limit records, newest first.
	AuditRecords(ctx context.Context, f AuditFilter, limit int) ([]AuditRecord, error)
	// ExpireAudit removes records of before a time, and returns how many.
	ExpireAudit(ctx context.Context, before time.Time) (int64, error)
}
