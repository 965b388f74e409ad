package positions_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/positions"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRounds(t *testing.T) {
	t.Parallel()
	c := func(key string, position, epoch uint64) store.Commit {
		return store.Commit{Identity: key, Address: "a", Position: position, Epoch: epoch}
	}
	for _, test := range []struct {
		name    string
		commits []store.Commit
		want    [][]store.Commit
	}{
		{"none", nil, nil},
		{"sorted by key", []store.Commit{c("y", 1, 1), c("x", 2, 1)}, [][]store.Commit{{c("x", 2, 1), c("y", 1, 1)}}},
		{"the higher wins", []store.Commit{c("x", 2, 1), c("x", 9, 1), c("x", 3, 1)}, [][]store.Commit{{c("x", 9, 1)}}},
		{
			"epochs take turns",
			[]store.Commit{c("x", 5, 3), c("y", 1, 1), c("x", 7, 2), c("x", 8, 2)},
			[][]store.Commit{{c("x", 8, 2), c("y", 1, 1)}, {c("x", 5, 3)}},
		},
	} {
		got, err := positions.Rounds(test.commits)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", test.name, err, diff)
		}
	}
}

func TestRoundsRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		commit store.Commit
		want   error
	}{
		{store.Commit{Position: math.MaxInt64 + 1}, store.ErrRange},
		{store.Commit{Epoch: math.MaxUint64}, store.ErrRange},
		{store.Commit{Identity: "a\x00b"}, store.ErrText},
		{store.Commit{Address: "\xff"}, store.ErrText},
	} {
		_, err := positions.Rounds([]store.Commit{{Identity: "ok"}, test.commit})
		if !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test.commit, err)
		}
	}
}

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
		if got, ok := positions.Behind(prefix); !ok || got != want {
			t.Errorf("Behind(%q) = %q, %v, want %q", prefix, got, ok, want)
		}
	}
	for _, prefix := range []string{"", "\U0010FFFF", "\U0010FFFF\U0010FFFF"} {
		if got, ok := positions.Behind(prefix); ok {
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
		behind, ok := positions.Behind(prefix)
		if ok && !utf8.ValidString(behind) {
			t.Fatalf("%q is not valid", behind)
		}
		if within := text >= prefix && (!ok || text < behind); within != strings.HasPrefix(text, prefix) {
			t.Fatalf("%q, prefix %q, behind %q: within = %v", text, prefix, behind, within)
		}
	})
}
