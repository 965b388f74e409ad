package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives the pauses between attempts: random between 0 and a limit that
// doubles from least to most, so that clients that lost the same gateway do not
// come back together. Not safe for concurrent use.
type backoff struct {
	least, most time.Duration
	limit       time.Duration
}

func (b *backoff) reset() { b.limit = 0 }

// next returns the next pause, at least as long as the gateway asked for.
func (b *backoff) next(hint time.Duration) time.Duration {
	if b.limit == 0 {
		b.limit = b.least
	} else {
		b.limit = min(b.limit*2, b.most)
	}
	return max(rand.N(b.limit+1), hint)
}

// pause sleeps for d, or until ctx ends; it reports whether it slept to the end.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
