package address

import (
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "ag::w::i::s", "metric::*", "metric::receiver0", "metric::receiver1", "tb::w::i", "us::u::w", "ga:::a", "ga::::",
		"ag::a:::b::c", "ga::\u00a0", "ga::\u2028", "\ufeffga::w", "ga::\xff", "event::" + strings.Repeat("ü", 65), "uw::u::receiver3",
		strings.Repeat("ag::", 80),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if (err == nil) != reference(s) {
			t.Fatalf("Parse(%q): %v, reference says %v", s, err, reference(s))
		}
		if err != nil {
			checkError(t, s, err)
			if !a.IsZero() {
				t.Fatalf("an error and an address: %v", a)
			}
			return
		}
		if a.String() != s {
			t.Fatalf("%q became %q", s, a)
		}
		parts := []string{a.Prefix().String()}
		for i := range a.Segments() {
			parts = append(parts, a.Segment(i))
		}
		if joined := strings.Join(parts, "::"); joined != s {
			t.Fatalf("segments of %q join to %q", s, joined)
		}
		if !a.IsMetricAny() && !a.IsMetricReceiver() {
			if b, err := build(a.Prefix(), parts[1:]...); err != nil || b != a {
				t.Fatalf("building %q from its parts: %v, %v", s, b, err)
			}
		}
	})
}

func FuzzValidSegment(f *testing.F) {
	for _, s := range []string{"", "a", "a::b", ":", "\xc3", "\u0085", "a>b", strings.Repeat("€", 43)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := ValidSegment(s)
		if (err == nil) != referenceSegment(s) {
			t.Fatalf("ValidSegment(%q): %v", s, err)
		}
		checkError(t, s, err)
	})
}
