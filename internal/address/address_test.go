package address

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// vectorFile is the file that AETHER_VECTORS names, else the repository's own.
func vectorFile() string {
	if f := os.Getenv("AETHER_VECTORS"); f != "" {
		return f
	}
	return filepath.Join("..", "..", "testdata", "vectors.json")
}

func TestVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(vectorFile())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Matchers []struct {
			ID, System, Kind, Pattern, Why string
			Expect                         any
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, v := range file.Matchers {
		if v.System != "address" {
			continue
		}
		seen++
		if v.Kind != "validate" {
			t.Errorf("%s: unknown kind %q", v.ID, v.Kind)
			continue
		}
		got := "ok"
		if _, err := Parse(v.Pattern); err != nil {
			pe, ok := errors.AsType[*ParseError](err)
			if !ok {
				t.Errorf("%s: error of type %T", v.ID, err)
				continue
			}
			got = pe.Code()
		}
		if got != v.Expect {
			t.Errorf("%s (%s): Parse(%q) = %s, want %v", v.ID, v.Why, v.Pattern, got, v.Expect)
		}
	}
	if seen == 0 {
		t.Fatal("the vector file holds no vector of system address")
	}
}

func TestParseTable(t *testing.T) {
	t.Parallel()
	seg := func(n int) string { return strings.Repeat("s", n) }
	ok := reasonNone
	cases := []struct {
		in   string
		want Reason
	}{
		{"ag::w::i::s", ok},
		{"tu::w::i::s", ok},
		{"ta::w::i::s", ok},
		{"tb::w::i", ok},
		{"us::u::w", ok},
		{"uw::u::w", ok},
		{"ga::w", ok},
		{"gu::w", ok},
		{"pg::w", ok},
		{"event::w", ok},
		{"metric::w", ok},
		{"metric::*", ok},
		{"metric::receiver0", ok},
		{"sv::i::s", ok},
		{"br::i::s", ok},

		{"", ReasonEmpty},
		{"::", ReasonUnknownPrefix},
		{"ag", ReasonNoSeparator},
		{"ag:", ReasonNoSeparator},
		{"ag::", ReasonTooFewSegments},
		{"ga::", ReasonEmptySegment},
		{"ga:::", ReasonColonAtEdge},
		{"ga::::", ReasonTooManySegments},
		{"ga", ReasonNoSeparator},
		{"ga::w::", ReasonTooManySegments},
		{"ag::w::i::", ReasonEmptySegment},
		{"ag::::i::s", ReasonEmptySegment},
		{"ag::w::i::s::", ReasonTooManySegments},
		{"ag::w::i", ReasonTooFewSegments},
		{"ag::w::i::s::t", ReasonTooManySegments},
		{"xx::w", ReasonUnknownPrefix},
		{"Ga::w", ReasonUnknownPrefix},
		{" ga::w", ReasonUnknownPrefix},
		{"ga ::w", ReasonUnknownPrefix},
		{"\ufeffga::w", ReasonUnknownPrefix},
		{"orc::i::s", ReasonUnknownPrefix},
		{"wfe::1", ReasonUnknownPrefix},
		{"metrics::1", ReasonUnknownPrefix},

		// Colons: single ones are part of a segment, except at its edges.
		{"ga::a:b", ok},
		{"ag::a:b::c:d:e::f:g", ok},
		{"ga:::a", ReasonColonAtEdge},
		{"ga::a:", ReasonColonAtEdge},
		{"ga:::", ReasonColonAtEdge},
		{"ag::a:::b::c", ReasonColonAtEdge},
		{"tb::a::b:", ReasonColonAtEdge},
		{"us:::u::w", ReasonColonAtEdge},

		// Wildcards and reserved characters.
		{"ga::*", ReasonWildcard},
		{"ga::a*", ReasonWildcard},
		{"ga::#", ReasonWildcard},
		{"ga::a>b", ReasonWildcard},
		{"ga::a<b", ok},
		{"metric::**", ReasonWildcard},
		{"metric::*a", ReasonWildcard},
		{"metric::#", ReasonWildcard},
		{"event::*", ReasonWildcard},
		{"pg::*", ReasonWildcard},
		{"metric::*::*", ReasonTooManySegments},

		// White space and control characters.
		{"ga::a b", ReasonSpace},
		{"ga::a\tb", ReasonSpace},
		{"ga::a\n", ReasonSpace},
		{"ga::\u0085", ReasonSpace},
		{"ga::a\u00a0b", ReasonSpace},
		{"ga::a\u1680b", ReasonSpace},
		{"ga::a\u2003b", ReasonSpace},
		{"ga::a\u2028b", ReasonSpace},
		{"ga::a\u2029b", ReasonSpace},
		{"ga::a\u202fb", ReasonSpace},
		{"ga::a\u3000b", ReasonSpace},
		{"ga::a\x00", ReasonControl},
		{"ga::a\x1b", ReasonControl},
		{"ga::a\x7f", ReasonControl},
		{"ga::a\u009b", ReasonControl},
		// Format characters are neither white space nor control characters.
		{"ga::\ufeff", ok},
		{"ga::a\u200db", ok},
		{"ga::a\u200b", ok},

		// UTF-8.
		{"ga::würzburg", ok},
		{"ga::\U0001f600", ok},
		{"ga::\ufffd", ok}, // the character itself, properly encoded
		{"ga::\xff", ReasonNotUTF8},
		{"ga::a\xc3", ReasonNotUTF8},
		{"ga::\xc0\xaf", ReasonNotUTF8},
		{"ga::\xed\xa0\x80", ReasonNotUTF8},     // a surrogate
		{"ga::\xf4\x90\x80\x80", ReasonNotUTF8}, // past U+10FFFF
		{"ga::e\u0301", ok},                     // not normalised

		// Segment length, in bytes.
		{"ga::" + seg(127), ok},
		{"ga::" + seg(128), ok},
		{"ga::" + seg(129), ReasonSegmentTooLong},
		{"ga::" + strings.Repeat("ü", 64), ok},
		{"ga::" + strings.Repeat("ü", 64) + "s", ReasonSegmentTooLong},
		{"ag::" + seg(129) + "::i::s", ReasonSegmentTooLong},
		{"ag::w::i::" + seg(129), ReasonSegmentTooLong},

		// Total length, in code points: 4 + 2 + 2 colons and three segments.
		{"ag::" + seg(122) + "::" + seg(121) + "::s", ok},                                                                               // 252
		{"ag::" + seg(124) + "::" + seg(123) + "::s", ok},                                                                               // 256
		{"ag::" + seg(124) + "::" + seg(124) + "::s", ReasonTooLong},                                                                    // 257
		{"ag::" + strings.Repeat("ü", 64) + "::" + strings.Repeat("ü", 64) + "::" + strings.Repeat("ü", 64), ok},                        // 200 characters, 392 bytes
		{"ag::" + strings.Repeat("ü", 64) + "::" + strings.Repeat("ü", 64) + "::" + seg(120), ok},                                       // 256 characters
		{"ag::" + strings.Repeat("ü", 64) + "::" + strings.Repeat("ü", 64) + "::" + seg(121), ReasonTooLong},                            // 257 characters
		{"ag::" + strings.Repeat("\U0001f600", 32) + "::" + strings.Repeat("\U0001f600", 32) + "::" + strings.Repeat("\u20ac", 42), ok}, // 4- and 3-byte text

		// Reserved workspaces.
		{"ga::receiver", ok},
		{"ga::receiver0", ReasonReservedWorkspace},
		{"ga::receiver12345", ReasonReservedWorkspace},
		{"ga::receiver0a", ok},
		{"ga::Receiver0", ok},
		{"ga::receiver٣", ok}, // a digit, but not one of 0-9
		{"ga::xreceiver0", ok},
		{"ag::receiver1::i::s", ReasonReservedWorkspace},
		{"ag::w::receiver1::receiver2", ok},
		{"tb::receiver1::i", ReasonReservedWorkspace},
		{"us::receiver1::receiver1", ok},
		{"uw::receiver1::w", ok},
		{"uw::u::receiver1", ReasonReservedWorkspace},
		{"sv::receiver1::s", ok},
		{"pg::receiver0", ReasonReservedWorkspace},
		{"event::receiver0", ReasonReservedWorkspace},
		{"metric::receiver1", ReasonReservedWorkspace},
		{"metric::receiver00", ReasonReservedWorkspace},
		{"metric::receiver", ok},
	}
	for _, c := range cases {
		_, got, _ := parse(c.in)
		if got != c.want {
			t.Errorf("Parse(%q): reason %d (%s), want %d (%s)", c.in, got, got, c.want, c.want)
		}
		if (c.want == reasonNone) != reference(c.in) {
			t.Errorf("the reference parser disagrees on %q", c.in)
		}
	}
}

// TestEveryLength parses addresses of every length up to and well past the
// limit, with one-byte and with multi-byte characters.
func TestEveryLength(t *testing.T) {
	t.Parallel()
	for _, char := range []string{"x", "ü", "€", "\U0001f600"} {
		perSegment := MaxSegmentBytes / len(char)
		for n := 0; n <= 600; n++ {
			// n characters after "ag", spread over three segments.
			text := strings.Repeat(char, n)
			cut := func() string {
				k := min(perSegment*len(char), len(text))
				head := text[:k]
				text = text[k:]
				return head
			}
			s := "ag::" + cut() + "::" + cut() + "::" + text
			_, err := Parse(s)
			if want := reference(s); (err == nil) != want {
				t.Errorf("%d times %q: error %v, valid %v", n, char, err, want)
			}
			checkError(t, s, err)

			flat := strings.Repeat(char, n)
			_, err = Parse(flat)
			if err == nil {
				t.Errorf("%d times %q without a prefix is accepted", n, char)
			}
			checkError(t, flat, err)
		}
	}
	huge := strings.Repeat("ag::", 1<<20)
	_, err := Parse(huge)
	checkError(t, huge, err)
}

func checkError(t *testing.T, in string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	pe, ok := errors.AsType[*ParseError](err)
	if !ok {
		t.Fatalf("%.40q: error of type %T", in, err)
	}
	// 64 bytes of input quote to at most four times as many.
	if text := pe.Error(); len(text) > 4*maxEcho+150 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("unfit error text of %d bytes: %q", len(text), text)
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	inputs := []string{"ag::prod::coder::1", "metric::*", "us::würzburg::w1", "event::prod", "ag::" + strings.Repeat("ü", 64) + "::" + strings.Repeat("ü", 64) + "::x"}
	var sink Address
	if n := testing.AllocsPerRun(200, func() {
		for _, in := range inputs {
			a, err := Parse(in)
			if err != nil {
				t.Fatal(err)
			}
			sink = a
			_, _, _ = a.Workspace(), a.Specifier(), a.UserID()
		}
	}); n != 0 {
		t.Errorf("%v allocations for %d addresses, last %s", n, len(inputs), sink)
	}
}

func BenchmarkParse(b *testing.B) {
	for i, in := range []string{"ag::prod::coder::1", "us::benutzer-wü::w1"} {
		b.Run(strconv.Itoa(i), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
