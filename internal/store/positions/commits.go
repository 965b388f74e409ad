package positions

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/store"
)

// Rounds returns the commits of one call as they are to be stored: round after
// round, a key at most once in each, sorted by key, so that two calls at the
// same time cannot lock each other out. There is one round, unless a key comes
// under several epochs; then they take their turns, the oldest first, and the
// guard in the database judges each.
//
// It returns [store.ErrRange] or [store.ErrText] if a commit cannot be stored.
func Rounds(commits []store.Commit) ([][]store.Commit, error) {
	for i := range commits {
		c := &commits[i]
		if c.Position > math.MaxInt64 || c.Epoch > math.MaxInt64 {
			return nil, store.ErrRange
		}
		if err := CheckTexts(c.Identity, c.Address); err != nil {
			return nil, err
		}
	}
	sorted := slices.Clone(commits)
	slices.SortFunc(sorted, func(a, b store.Commit) int {
		return cmp.Or(compareKeys(a, b), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Position, b.Position))
	})
	var rounds [][]store.Commit
	turn := 0 // of the key at hand
	for i, c := range sorted {
		switch {
		case i == 0 || compareKeys(sorted[i-1], c) != 0:
			turn = 0
		case sorted[i-1].Epoch != c.Epoch:
			turn++
		default: // higher than the one before
			last := rounds[turn]
			last[len(last)-1] = c
			continue
		}
		if turn == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[turn] = append(rounds[turn], c)
	}
	return rounds, nil
}

func compareKeys(a, b store.Commit) int {
	return cmp.Or(strings.Compare(a.Identity, b.Identity), strings.Compare(a.Address, b.Address))
}

// CheckTexts returns [store.ErrText] if one of the texts cannot be stored.
func CheckTexts(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return store.ErrText
		}
	}
	return nil
}

// Behind returns the lowest text that is above all that begin with prefix; ok
// is false if there is none. Texts compare by their bytes, which for UTF-8 is
// also the order of their characters.
func Behind(prefix string) (text string, ok bool) {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case r == utf8.MaxRune:
			continue // the one before it decides
		case r+1 == 0xD800:
			r = 0xE000 // what lies between is no character
		default:
			r++
		}
		return prefix + string(r), true
	}
	return "", false
}
