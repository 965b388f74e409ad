package tables

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestBehind(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"ag::":              "ag:;",
		"a\U0010FFFF":       "b",
		"x\uD7FF":           "x\uE000",
		"é":                 "ê",
		"a\x7f":             "a\u0080",
		"%_":                "%`",
		"q\U0010FFFF\u07ff": "q\U0010FFFF\u0800",
	} {
		if got, ok := behind(prefix); !ok || got != want {
			t.Errorf("Behind(%q) = %q, %v, want %q", prefix, got, ok, want)
		}
	}
	for _, prefix := range []string{"", "\U0010FFFF", "\U0010FFFF\U0010FFFF"} {
		if got, ok := behind(prefix); ok {
			t.Errorf("Behind(%q) = %q", prefix, got)
		}
	}
}

// Between a prefix and what is behind it lie exactly the texts that begin
// with it.
func TestBehindIsABound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.SampledFrom([]rune{'a', ':', '%', 0x7f, 0x80, 0x7ff, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, utf8.MaxRune})
		prefix := rapid.StringOfN(runes, 0, 3, -1).Draw(t, "prefix")
		text := rapid.StringOfN(runes, 0, 5, -1).Draw(t, "text")
		behind, ok := behind(prefix)
		if ok && !utf8.ValidString(behind) {
			t.Fatalf("%q is not valid", behind)
		}
		if within := text >= prefix && (!ok || text < behind); within != strings.HasPrefix(text, prefix) {
			t.Fatalf("%q, prefix %q, behind %q: within = %v", text, prefix, behind, within)
		}
	})
}
