package main

import (
	"math"
	"testing"
	"time"
)

func TestBound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ relay, raw, want float64 }{
		{100, 100, 50}, {150_000, 200_000, 85_714.2857}, {0, 100, 0}, {100, 0, 0},
	} {
		if got := bound(c.relay, c.raw); math.Abs(got-c.want) > 0.001 {
			t.Errorf("bound(%v, %v) = %v, want %v", c.relay, c.raw, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	unsorted := []float64{3, 1, 2}
	median(unsorted)
	if unsorted[0] != 3 {
		t.Error("median changed its argument")
	}
	if got := spread([]float64{90, 100, 120}); got != 0.3 {
		t.Errorf("spread = %v, want 0.3", got)
	}
	if got := spread(nil); got != 0 {
		t.Errorf("spread of nothing = %v", got)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	samples := make([]time.Duration, 0, 200)
	for i := range 200 {
		samples = append(samples, time.Duration(200-i))
	}
	for _, c := range []struct {
		p    float64
		want time.Duration
	}{{0, 1}, {0.5, 100}, {0.99, 198}, {0.995, 199}, {1, 200}} {
		if got := percentile(samples, c.p); got != c.want {
			t.Errorf("p%v = %d, want %d", c.p*100, got, c.want)
		}
	}
	if got := percentile([]time.Duration{7}, 0.99); got != 7 {
		t.Errorf("p99 of one sample = %d", got)
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("p50 of none = %d", got)
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	if ratio(1, 0) != 0 || ratio(1, 4) != 0.25 {
		t.Error("ratio is wrong")
	}
}
