package load

import (
	"math/bits"
	"time"
)

// Delays are how long something took.
type Delays struct {
	Samples uint64
	// P50 and P99 are at most 3 % too large.
	P50, P99, Max time.Duration
}

// histogram counts durations in buckets that are a 32nd of their value wide, so
// that its size does not depend on how many there are. The zero value is empty.
type histogram struct {
	buckets [59*32 + 32]uint64
	n       uint64
	max     time.Duration
}

// bucket is where a duration is counted: below 64 ns each has its own, above
// them 32 have each power of two.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-6, 0)
	return shift*32 + int(v>>shift)
}

// upper is the largest duration of a bucket.
func upper(i int) time.Duration {
	shift := max(i/32-1, 0)
	return time.Duration(uint64(i-shift*32+1)<<shift - 1)
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile is the smallest duration that is not below a share of all, 0 of none.
func (h *histogram) quantile(share float64) time.Duration {
	rank := min(uint64(share*float64(h.n)+0.999999), h.n) // up, but not by what a float is off
	seen := uint64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen >= rank {
			return min(upper(i), h.max)
		}
	}
	return 0
}

func (h *histogram) delays() Delays {
	return Delays{Samples: h.n, P50: h.quantile(0.5), P99: h.quantile(0.99), Max: h.max}
}
