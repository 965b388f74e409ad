package subject

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func must(t testing.TB, g Grammar, text string) *Pattern {
	t.Helper()
	p, err := Compile(g, text)
	if err != nil {
		t.Fatalf("%s %q: %v", g, text, err)
	}
	return p
}

func mustAddress(t testing.TB, g Grammar, text string) *Pattern {
	t.Helper()
	p, err := CompileAddress(g, text)
	if err != nil {
		t.Fatalf("%s %q: %v", g, text, err)
	}
	return p
}

// naive is what the grammars say, written down a second time: all segments are
// cut out, then compared from the front.
func naive(g Grammar, pattern, name, separator string) bool {
	parts := strings.Split(name, separator)
	if g != Segmented {
		if len(name) > MaxBytes && separator == "." || len(name) > MaxAddressBytes || len(parts) > 20 {
			return false
		}
		for _, part := range parts {
			if part == "" {
				return false
			}
		}
	} else if pattern == "" {
		return true
	}
	want := strings.Split(pattern, separator)
	for i, w := range want {
		last := i == len(want)-1
		switch {
		case g == Segmented && w == "#":
			return len(parts) >= i
		case g == Subtree && last && i > 0 && w == "*":
			return len(parts) > i
		case i >= len(parts), w != "*" && w != parts[i]:
			return false
		}
	}
	return len(parts) == len(want)
}

func TestMatchAgainstNaive(t *testing.T) {
	t.Parallel()
	segment := rapid.SampledFrom([]string{"a", "b", "ab", "*", "*", "#", "", "a*", "é"})
	name := func(rt *rapid.T, label, separator string) string {
		return strings.Join(rapid.SliceOfN(segment, 0, 6).Draw(rt, label), separator)
	}
	rapid.Check(t, func(rt *rapid.T) {
		g := rapid.SampledFrom([]Grammar{Segmented, Subtree, Strict}).Draw(rt, "grammar")
		compileIt, separator := Compile, "."
		if rapid.Bool().Draw(rt, "address") {
			compileIt, separator = CompileAddress, "::"
		}
		pattern, s := name(rt, "pattern", separator), name(rt, "name", separator)
		p, err := compileIt(g, pattern)
		if err != nil {
			if p.Match(s) {
				rt.Fatalf("%q is refused and matches", pattern)
			}
			return
		}
		if got := p.Match(s); got != naive(g, pattern, s, separator) {
			rt.Fatalf("%s %q on %q: %v", g, pattern, s, got)
		}
	})
}

// What one pattern covers the other does not match more than, and what two
// match they overlap in.
func TestRelationsAgainstMatching(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "a.a", "a.b", "b.a", "b.c", "a.a.a", "a.b.c", "b.b.a", "c.b.a", "a.a.a.a", "a.b.a.b", "b.a.b.a.c"}
	segment := rapid.SampledFrom([]string{"a", "b", "*", "*"})
	pattern := func(rt *rapid.T, label string) *Pattern {
		g := rapid.SampledFrom([]Grammar{Segmented, Subtree, Strict}).Draw(rt, label+" grammar")
		parts := rapid.SliceOfN(segment, 1, 4).Draw(rt, label)
		if g == Segmented && rapid.Bool().Draw(rt, label+" tail") {
			parts = append(parts, "#")
		}
		return must(t, g, strings.Join(parts, "."))
	}
	rapid.Check(t, func(rt *rapid.T) {
		p, q := pattern(rt, "p"), pattern(rt, "q")
		covers, overlaps := p.Covers(q), p.Overlaps(q)
		if overlaps != q.Overlaps(p) {
			rt.Fatalf("%s and %s overlap in one direction", p, q)
		}
		if covers && !overlaps {
			rt.Fatalf("%s covers %s and does not overlap it", p, q)
		}
		for _, s := range names {
			inP, inQ := p.Match(s), q.Match(s)
			if covers && inQ && !inP {
				rt.Fatalf("%s covers %s, but not %q", p, q, s)
			}
			if inP && inQ && !overlaps {
				rt.Fatalf("%s and %s both match %q and do not overlap", p, q, s)
			}
		}
	})
}

func TestRelations(t *testing.T) {
	t.Parallel()
	cases := []struct {
		g, h             Grammar
		p, q             string
		covers, overlaps bool
	}{
		{Subtree, Subtree, "a.*", "a.b.*", true, true},
		{Subtree, Subtree, "a.b.*", "a.*", false, true},
		{Subtree, Subtree, "a.*", "a.*", true, true},
		{Subtree, Subtree, "a.*", "a", false, false},
		{Subtree, Strict, "a.*", "a.*", true, true},
		{Strict, Subtree, "a.*", "a.*", false, true},
		{Strict, Strict, "a.*.c", "a.b.*", false, true},
		{Strict, Strict, "a.*", "*.a", false, true},
		{Strict, Strict, "a.b", "a.c", false, false},
		{Strict, Strict, "a.b", "a.b.c", false, false},
		{Segmented, Strict, "#", "a.b", true, true},
		{Strict, Segmented, "a", "", false, true},
		{Strict, Segmented, "*", "", false, true},
		{Strict, Segmented, "a.*", "a.", false, false},
		{Segmented, Segmented, "", "#", true, true},
		{Segmented, Segmented, "a.#", "a", true, true},
	}
	for _, c := range cases {
		p, q := must(t, c.g, c.p), must(t, c.h, c.q)
		if got := p.Covers(q); got != c.covers {
			t.Errorf("%s %q covers %s %q: %v", c.g, c.p, c.h, c.q, got)
		}
		if got := p.Overlaps(q); got != c.overlaps {
			t.Errorf("%s %q overlaps %s %q: %v", c.g, c.p, c.h, c.q, got)
		}
	}
	var nobody *Pattern
	if nobody.Covers(must(t, Strict, "a")) || must(t, Strict, "a").Overlaps(nobody) || nobody.Match("a") || nobody.String() != "" ||
		new(Pattern).Match("") || mustAddress(t, Strict, "a").Covers(must(t, Strict, "a")) {
		t.Error("no pattern covers something")
	}
}

// Row 18: a rule for an address is not one for what lies below it, and a
// wildcard in what is matched widens nothing.
func TestRow18AddressPatterns(t *testing.T) {
	t.Parallel()
	cases := []struct {
		g             Grammar
		pattern, name string
		want          bool
	}{
		{Strict, "ag::w", "ag::w::i::s", false},
		{Strict, "ag::w::*", "ag::w::i::s", false},
		{Subtree, "ag::w", "ag::w::i::s", false},
		{Subtree, "ag::w::*", "ag::w::i::s", true},
		{Subtree, "ag::w::*", "ag::w2::i::s", false},
		{Subtree, "ag::w::*", "ag::w", false},
		{Strict, "ag::*::i::s", "ag::w::i::s", true},
		{Strict, "ag::w::i::s", "ag::*::i::s", false},
		{Strict, "ag::w::i::s", "ag::w::i::*", false},
		{Strict, "ag::w::i::s1", "ag::w::i::s", false},
		{Strict, "ag::w::i::s", "ag::w::i::s1", false},
		{Strict, "ag::w::i::s", "ag::w::i::s::", false},
		{Strict, "metric::*", "metric::*", true},
	}
	for _, c := range cases {
		if got := mustAddress(t, c.g, c.pattern).Match(c.name); got != c.want {
			t.Errorf("%s %q on %q: %v", c.g, c.pattern, c.name, got)
		}
	}
}

func TestRefusedPatterns(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("a::", 20) + "a"
	cases := []struct {
		g       Grammar
		text    string
		code    Code
		segment int
	}{
		{Strict, "", Empty, 0},
		{Subtree, "ag::::i", EmptySegment, 2},
		{Subtree, "::ag", EmptySegment, 1},
		{Strict, "ag::", EmptySegment, 2},
		{Strict, deep, TooDeep, 21},
		{Strict, "ag:::w", ColonAtEdge, 2},
		{Strict, "ag::w:", ColonAtEdge, 2},
		{Strict, strings.Repeat("a", MaxAddressBytes+1), TooLong, 0},
		{0, "a", UnknownGrammar, 0},
		{9, "a", UnknownGrammar, 0},
	}
	for _, c := range cases {
		_, err := CompileAddress(c.g, c.text)
		var broken *Error
		if !errors.As(err, &broken) || broken.Code != c.code || broken.Segment != c.segment || broken.Error() == "" {
			t.Errorf("%s %.40q: %v, want %s at %d", c.g, c.text, err, c.code, c.segment)
		}
	}
}

func TestMeantAsSubtree(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"a.*": true, "a.b.*": true, "*": false, "a.*.b": false, "a.b": false} {
		if got := must(t, Strict, text).MeantAsSubtree(); got != want {
			t.Errorf("strict %q: %v", text, got)
		}
		if must(t, Subtree, text).MeantAsSubtree() {
			t.Errorf("subtree %q is doubted", text)
		}
	}
}

func TestGrammarNames(t *testing.T) {
	t.Parallel()
	for g := Segmented; g < grammarEnd; g++ {
		if got, ok := ParseGrammar(g.String()); !ok || got != g {
			t.Errorf("%s: %v, %v", g, got, ok)
		}
		if p := must(t, g, "a.b"); p.Grammar() != g || p.String() != "a.b" {
			t.Errorf("%s: pattern %q of %s", g, p, p.Grammar())
		}
	}
	for _, name := range []string{"", "STRICT", "glob"} {
		if _, ok := ParseGrammar(name); ok {
			t.Errorf("%q is a grammar", name)
		}
	}
	if Grammar(99).String() != "" {
		t.Error("an unknown grammar has a name")
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(uint8(Strict), "a.*.c", "a.b.c", false)
	f.Add(uint8(Subtree), "ag::w::*", "ag::w::i::s", true)
	f.Add(uint8(Segmented), "px.#", "px", false)
	f.Fuzz(func(t *testing.T, grammar uint8, pattern, name string, address bool) {
		g := Grammar(grammar)
		compileIt, separator := Compile, "."
		if address {
			compileIt, separator = CompileAddress, "::"
		}
		p, err := compileIt(g, pattern)
		if err != nil {
			var broken *Error
			if !errors.As(err, &broken) || p != nil {
				t.Fatalf("%v, %v", p, err)
			}
			return
		}
		if p.String() != pattern {
			t.Fatalf("%q became %q", pattern, p)
		}
		if got := p.Match(name); got != naive(g, pattern, name, separator) {
			t.Fatalf("%s %q on %q: %v", g, pattern, name, got)
		}
		if !p.Covers(p) && p.Match(name) {
			t.Fatalf("%s %q does not cover itself", g, pattern)
		}
	})
}

func TestMatchAllocatesNothing(t *testing.T) {
	patterns := []*Pattern{
		must(t, Segmented, "a.*.c.#"), must(t, Subtree, "a.b.*"), must(t, Strict, "a.b.c.d.e.f"), mustAddress(t, Subtree, "ag::*::*"),
	}
	names := []string{"a.b.c.d.e.f", "ag::w::i::s", "", "a.b"}
	if n := testing.AllocsPerRun(100, func() {
		for _, p := range patterns {
			for _, s := range names {
				p.Match(s)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var sink bool

// Six segments, beside the prefix comparison that it is held against.
func BenchmarkMatch(b *testing.B) {
	const name = "llm.v1.response.chunk.anthropic.delta"
	for _, c := range []struct {
		g    Grammar
		text string
	}{
		{Segmented, "llm.v1.response.chunk.anthropic.delta"},
		{Segmented, "llm.*.response.#"},
		{Subtree, "llm.v1.response.*"},
		{Strict, "llm.v1.*.chunk.*.delta"},
	} {
		p := must(b, c.g, c.text)
		b.Run(c.g.String()+" "+c.text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = p.Match(name)
			}
		})
	}
	prefix := strings.Clone(name)
	b.Run("HasPrefix", func(b *testing.B) {
		for b.Loop() {
			sink = strings.HasPrefix(name, prefix)
		}
	})
}
