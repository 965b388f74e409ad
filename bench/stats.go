package main

import (
	"slices"
	"time"
)

// bound is what two works give when they share the cores: each message costs
// what it costs in the one and in the other.
func bound(relay, raw float64) float64 {
	if relay <= 0 || raw <= 0 {
		return 0
	}
	return 1 / (1/relay + 1/raw)
}

// ratio is a/b, 0 where there is no b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// median returns the middle value, the mean of the middle two, 0 for none. It
// does not change its argument.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// spread is (highest − lowest) / median: how far the rounds are apart.
func spread(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return ratio(slices.Max(values)-slices.Min(values), median(values))
}

// percentile returns the smallest sample that is not below a share p of them
// (nearest rank), 0 for none. It sorts its argument.
func percentile(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	rank := int(p*float64(len(samples)) + 0.999999) // up, but not by what a float is off
	return samples[min(max(rank, 1), len(samples))-1]
}

// enough is how many samples a p99 needs to mean something.
const enough = 5000
