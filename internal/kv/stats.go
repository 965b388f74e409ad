package kv

import (
	"sync/atomic"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Stats are counters since the process began.
type Stats struct {
	// Reads, Lists, Changes and Purges are operations on keys that were done,
	// Checkpoints such ones on checkpoints.
	Reads, Lists, Changes, Purges, Checkpoints atomic.Uint64
	// Refused are operations that the caller must not or cannot have done, Failed
	// those that the store did not do.
	Refused, Failed atomic.Uint64
}

// Stats returns the counters.
func (s *Service) Stats() *Stats { return &s.stats }

// count counts an operation, by what became of it.
func (c *Stats) count(kind *atomic.Uint64, err *wireerr.Error) {
	switch {
	case err == nil:
		kind.Add(1)
	case err.Retryable || err.Code == wireerr.Unavailable || err.Code == wireerr.Internal:
		c.Failed.Add(1)
	default:
		c.Refused.Add(1)
	}
}

// of is the counter of a kind of operation.
func (c *Stats) of(op aetherv1.KVOperation_OpType) *atomic.Uint64 {
	switch op {
	case aetherv1.KVOperation_OP_TYPE_GET, aetherv1.KVOperation_OP_TYPE_SET_CARD:
		return &c.Reads
	case aetherv1.KVOperation_OP_TYPE_LIST:
		return &c.Lists
	case aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY:
		return &c.Purges
	}
	return &c.Changes
}
