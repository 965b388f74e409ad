package kv

import (
	"math"
	"strconv"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A counter is a value that is a decimal number, so that PUT and GET work on
// it.

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// parseCounter reads a counter as it is written: no sign but "-", no zeros in
// front.
func parseCounter(value []byte) (int64, bool) {
	if len(value) > len("-9223372036854775808") {
		return 0, false
	}
	text := string(value)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && itoa(n) == text
}

// add returns a sum; ok is false if it is beyond all numbers.
func add(n, delta int64) (sum int64, ok bool) {
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		return 0, false
	}
	return n + delta, true
}

// count makes the four operations on counters. A key that does not exist counts
// from 0.
func (o *Operation) count(now time.Time, row *store.KVRow, answer *aetherv1.KVResponse) (store.KVChange, *wireerr.Error) {
	if err := wants(row, false); err != nil {
		return store.KVChange{}, err
	}
	n := int64(0)
	if row != nil {
		var ok bool
		if n, ok = parseCounter(row.Value); !ok {
			return store.KVChange{}, refusal(wireerr.InvalidArgument, "the key does not hold a number")
		}
	}
	delta := max(o.op.GetDeltaValue(), 1) // 0 means 1; negative ones were refused
	guard, guarded, down := o.op.GetGuardValue(), false, false
	switch o.op.GetOp() {
	case aetherv1.KVOperation_OP_TYPE_INCREMENT_IF:
		guarded = true
	case aetherv1.KVOperation_OP_TYPE_DECREMENT:
		down = true
	case aetherv1.KVOperation_OP_TYPE_DECREMENT_IF:
		guarded, down = true, true
	}
	if down {
		delta = -delta
	}
	sum, ok := add(n, delta)
	switch {
	case guarded && (!ok || down && sum < guard || !down && sum > guard):
		answer.CounterValue = n
		return store.KVChange{}, nil
	case !ok:
		return store.KVChange{}, refusal(wireerr.InvalidArgument, "the counter is at %d: the sum is beyond 64 bits", n)
	}
	answer.CounterValue, answer.Applied = sum, true
	return o.update(now, row, []byte(itoa(sum))), nil
}
