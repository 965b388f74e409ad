package tables

import (
	"errors"
	"math"
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
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
		got, err := roundsOf(test.commits)
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
		_, err := roundsOf([]store.Commit{{Identity: "ok"}, test.commit})
		if !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test.commit, err)
		}
	}
}
