package load

import (
	"math"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	last := -1
	for _, d := range []time.Duration{-5, 0, 1, 63, 64, 65, 66, 127, 128, 1000, time.Millisecond, time.Second, 300 * 24 * time.Hour, math.MaxInt64} {
		i := bucket(d)
		if i < last || i >= len(histogram{}.buckets) {
			t.Errorf("%d is in bucket %d, what is smaller in %d", d, i, last)
		}
		last = i
		if u := upper(i); u < d || float64(u) > float64(max(d, 0))*1.04+1 {
			t.Errorf("%d is at most %d", d, u)
		}
		if next := upper(i); next < math.MaxInt64 && bucket(next) != i {
			t.Errorf("%d is in bucket %d, not %d", next, bucket(next), i)
		}
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	var a, b histogram
	if d := a.delays(); d != (Delays{}) {
		t.Errorf("of none: %+v", d)
	}
	for i := range 1000 { // 1 to 1000 ms, in two halves
		h := &a
		if i%2 == 0 {
			h = &b
		}
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	a.merge(&b)
	d := a.delays()
	near := func(got, want time.Duration) bool { return got >= want && float64(got) <= 1.04*float64(want) }
	if d.Samples != 1000 || !near(d.P50, 500*time.Millisecond) || !near(d.P99, 990*time.Millisecond) || d.Max != time.Second {
		t.Errorf("%+v", d)
	}
	var one histogram
	one.add(time.Microsecond)
	if d := one.delays(); d.P50 != time.Microsecond || d.P99 != time.Microsecond {
		t.Errorf("of one: %+v", d)
	}
}
