package presence

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Measures is how many things are counted under one key: what they are is the
// caller's, for example messages and bytes.
const Measures = 2

// Bounds of what is counted.
const (
	// MaxCounterKey is the most bytes that a key may have.
	MaxCounterKey = 64
	// CounterFresh is how long what a gateway said it wants counts; after that
	// it wants nothing, until it says so again.
	CounterFresh = 3 * time.Second
	// CounterKept is how long a gateway counts as one that has the key open
	// since it last said so.
	CounterKept = 30 * time.Second
)

// ErrCounters says that nothing could be exchanged now. What was told may have
// been counted or not; the next exchange of the same Usage makes it right.
var ErrCounters = errors.New("presence: counters are not available")

// Measure is one of the things that are counted under a key.
type Measure struct {
	// Rate is how much of it is allowed per second to all gateways together,
	// Burst how much may be saved up. A rate of 0 is not counted.
	Rate, Burst float64
	// Used is what this gateway has used since it began to count, Told what of
	// that an exchange has told that was answered. Both only rise.
	Used, Told float64
	// Wanted is how much of it per second this gateway would use now.
	Wanted float64

	// Left is the answer: what all gateways together have left, Burst at most.
	// It is negative if they have used more than was there; the debt is never
	// larger than Burst.
	Left float64
}

// Usage is what a gateway tells of one key, and the answer.
type Usage struct {
	// Key names what is limited, at most [MaxCounterKey] bytes.
	Key      string
	Measures [Measures]Measure
	// Holders is how many sessions of this gateway use the key.
	Holders int
	// Leaving says that this gateway uses the key no longer.
	Leaving bool

	// Others is the answer: the other gateways that have the key open.
	Others []OtherUsage
}

// OtherUsage is what another gateway has last told of a key.
type OtherUsage struct {
	Wanted  [Measures]float64
	Holders int
}

// Counters keep what gateways use of limits that hold for all of them: for
// each key a bucket that fills with time, and who uses it. Implementations are
// safe for concurrent use; the exchanges of one gateway about one key must
// follow each other.
type Counters interface {
	// Exchange tells and asks about several keys in few round trips, and fills
	// in the answers. With an error, which wraps [ErrCounters] or [ErrInvalid],
	// no answer counts.
	Exchange(ctx context.Context, usages []*Usage) error
}

// CheckUsage returns [ErrInvalid] if a usage cannot be exchanged.
func CheckUsage(u *Usage) error {
	if u.Key == "" || len(u.Key) > MaxCounterKey {
		return fmt.Errorf("%w: a counter's key of %d bytes", ErrInvalid, len(u.Key))
	}
	for _, m := range u.Measures {
		for _, v := range []float64{m.Rate, m.Burst, m.Used, m.Told, m.Wanted} {
			if !(v >= 0 && v < 1e18) {
				return fmt.Errorf("%w: a counter of %g", ErrInvalid, v)
			}
		}
	}
	return nil
}
