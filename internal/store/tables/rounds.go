package tables

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/aether-gateway/gateway/internal/store"
)

// roundsOf returns the commits of one call as they are to be stored: round after
// round, a key at most once in each, sorted by key, so that two calls at the
// same time cannot lock each other out. There is one round, unless a key comes
// under several epochs; then they take their turns, the oldest first, and the
// guard in the database judges each.
//
// It returns [store.ErrRange] or [store.ErrText] if a commit cannot be stored.
func roundsOf(commits []store.Commit) ([][]store.Commit, error) {
	for i := range commits {
		c := &commits[i]
		if c.Position > math.MaxInt64 || c.Epoch > math.MaxInt64 {
			return nil, store.ErrRange
		}
		if err := checkTexts(c.Identity, c.Address); err != nil {
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
