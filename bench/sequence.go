package main

import "fmt"

// sequence checks that numbers come from 1 upwards, each once and in order. It
// is used by one goroutine.
type sequence struct {
	last       uint64 // the highest number seen
	missing    map[uint64]struct{}
	overlooked uint64 // missing numbers that are not in the map, which is bounded
	duplicates uint64
	late       uint64 // came after a higher one
}

// maxMissing bounds what is remembered of a stream that loses much.
const maxMissing = 1 << 16

// see takes the next number.
func (s *sequence) see(n uint64) {
	switch {
	case n == s.last+1:
		s.last = n
	case n > s.last:
		for m := s.last + 1; m < n; m++ {
			if len(s.missing) >= maxMissing {
				s.overlooked += n - m
				break
			}
			if s.missing == nil {
				s.missing = map[uint64]struct{}{}
			}
			s.missing[m] = struct{}{}
		}
		s.last = n
	default:
		if _, was := s.missing[n]; was {
			delete(s.missing, n)
			s.late++
		} else {
			s.duplicates++
		}
	}
}

// faults is what went wrong with a number of messages.
type faults struct {
	Lost, Duplicates, Late uint64
	// Stale are messages of an earlier run, which had acknowledged them.
	Stale uint64
	// Refused are sends that were answered by an error; Refusal is one of them.
	Refused uint64
	Refusal string
}

// until returns what is wrong with the numbers 1 to n.
func (s *sequence) until(n uint64) faults {
	f := faults{Lost: uint64(len(s.missing)) + s.overlooked, Duplicates: s.duplicates, Late: s.late}
	if n > s.last {
		f.Lost += n - s.last
	}
	return f
}

func (f *faults) add(o faults) {
	f.Lost += o.Lost
	f.Duplicates += o.Duplicates
	f.Late += o.Late
	f.Stale += o.Stale
	f.Refused += o.Refused
	if f.Refusal == "" {
		f.Refusal = o.Refusal
	}
}

func (f faults) any() bool { return f.Lost+f.Duplicates+f.Late+f.Stale+f.Refused > 0 }

func (f faults) String() string {
	if !f.any() {
		return "none"
	}
	text := fmt.Sprintf("lost %d, duplicated %d, out of order %d, of an earlier run %d, refused %d", f.Lost, f.Duplicates, f.Late, f.Stale, f.Refused)
	if f.Refusal != "" {
		text += " (" + f.Refusal + ")"
	}
	return text
}
