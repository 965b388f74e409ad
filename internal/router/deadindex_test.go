package router

import (
	"math/rand/v2"
	"testing"
)

// Spans say of each position what a table of all positions says, and lie in
// order without touching.
func TestSpansModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		const most = 40
		var g spans
		var why [most]string
		for range 12 {
			first := rnd.Uint64N(most)
			s := span{first, first + rnd.Uint64N(min(8, most-first)), rnd.IntN(2) == 0}
			g.add(s)
			for p := s.first; p <= s.last; p++ {
				if why[p] == "" {
					why[p] = map[bool]string{true: "replayed", false: "purged"}[s.replayed]
				}
			}
			for p := range uint64(most) {
				got := ""
				if x, ok := g.at(p); ok {
					got = map[bool]string{true: "replayed", false: "purged"}[x.replayed]
				}
				if got != why[p] || g.has(p) != (why[p] != "") {
					t.Fatalf("seed %d: %d is %q after %+v, want %q; %+v", seed, p, got, s, why[p], g)
				}
			}
			for i, x := range g {
				if x.first > x.last || i > 0 && g[i-1].last >= x.first {
					t.Fatalf("seed %d: out of order: %+v", seed, g)
				}
			}
		}
		below := rnd.Uint64N(most)
		g.forgetBelow(below)
		for p := range uint64(most) {
			if p >= below && g.has(p) != (why[p] != "") {
				t.Fatalf("seed %d: %d was forgotten below %d", seed, p, below)
			}
		}
		if len(g) > 0 && g[0].last < below {
			t.Fatalf("seed %d: %+v is still known below %d", seed, g[0], below)
		}
	}
}

// Records are read as they are written, and nothing else is taken for one.
func TestSpanRecord(t *testing.T) {
	t.Parallel()
	for _, s := range []span{{1, 1, true}, {0, 1 << 60, false}} {
		if got, ok := spanOf(marker(s.record())); !ok || got != s {
			t.Errorf("%+v is read as %+v, %v", s, got, ok)
		}
	}
	for _, m := range []map[string]string{nil, {purgeFrom: "1"}, {purgeFrom: "2", purgeTo: "1"}, {purgeFrom: "-1", purgeTo: "1"}} {
		if s, ok := spanOf(marker(m)); ok {
			t.Errorf("%v is read as %+v", m, s)
		}
	}
}
