package main

import "testing"

func TestSequence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		seen []uint64
		sent uint64
		want faults
	}{
		{"all", []uint64{1, 2, 3}, 3, faults{}},
		{"nothing sent", nil, 0, faults{}},
		{"the end is lost", []uint64{1, 2}, 5, faults{Lost: 3}},
		{"a hole", []uint64{1, 4, 5}, 5, faults{Lost: 2}},
		{"twice", []uint64{1, 2, 2, 1, 3}, 3, faults{Duplicates: 2}},
		{"overtaken", []uint64{1, 3, 2, 4}, 4, faults{Late: 1}},
		{"overtaken, then twice", []uint64{2, 1, 1}, 2, faults{Late: 1, Duplicates: 1}},
		{"all at once", []uint64{1, 5, 3, 3, 6}, 7, faults{Lost: 3, Late: 1, Duplicates: 1}},
	} {
		var s sequence
		for _, n := range c.seen {
			s.see(n)
		}
		got := s.until(c.sent)
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got.any() != (c.want != faults{}) {
			t.Errorf("%s: any = %v", c.name, got.any())
		}
	}
}

func TestSequenceIsBounded(t *testing.T) {
	t.Parallel()
	var s sequence
	const hole = 3 * maxMissing
	s.see(hole + 1)
	if len(s.missing) > maxMissing {
		t.Fatalf("%d numbers are remembered", len(s.missing))
	}
	if got := s.until(hole + 1).Lost; got != hole {
		t.Errorf("lost %d, want %d", got, hole)
	}
}

func TestFaultsAdd(t *testing.T) {
	t.Parallel()
	var f faults
	f.add(faults{Lost: 1, Refused: 1, Refusal: "first"})
	f.add(faults{Duplicates: 2, Late: 3, Stale: 4, Refusal: "second"})
	if f != (faults{1, 2, 3, 4, 1, "first"}) {
		t.Errorf("got %+v", f)
	}
}
