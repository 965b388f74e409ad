package router

import (
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/delivery/route"
)

// Stats are the router's counters since it started.
type Stats struct {
	// Sends counts sends that arrived, Refused those that were refused at
	// once, Stored and Failed the outcomes of the rest, Duplicates repeats.
	Sends, Refused, Stored, Failed, Duplicates atomic.Uint64
	// Reports counts reports of progress that arrived, Notices updates that the
	// gateway itself made. What becomes of reports is counted as of sends.
	Reports, Notices atomic.Uint64
	// Live counts messages handed over before they were stored, Shared
	// deliveries of shared addresses, Redelivered those made again, Expired
	// messages that came too late, GivenUp those that nobody would take after
	// the last attempt.
	Live, Shared, Redelivered, Expired, GivenUp atomic.Uint64
	// Forwarded counts messages that routes made and that are stored,
	// ForwardsRefused those that they may not make.
	Forwarded, ForwardsRefused atomic.Uint64
	// Copies counts messages that the log has a second time under one id.
	Copies atomic.Uint64
	// DeadLetters counts messages that were put into the dead-letter log.
	DeadLetters atomic.Uint64
	// CatchUps counts passes over the log for readers that were behind.
	CatchUps atomic.Uint64
	// Commits counts positions stored, CommitFailures statements that failed.
	Commits, CommitFailures atomic.Uint64
	// Notes counts notes of absence that were stored, NoteFailures statements
	// for them that failed.
	Notes, NoteFailures atomic.Uint64
	// DamagedEnvelopes and DamagedEntries count what could not be read.
	DamagedEnvelopes, DamagedEntries atomic.Uint64
}

// Fairness counts what routes have done: fair subscriptions, metrics.
func (r *Router) Fairness() *route.Counters { return &r.routes }

// Rings counts what the rings of shared addresses have done.
func (r *Router) Rings() *ring.Counters { return &r.rings }
