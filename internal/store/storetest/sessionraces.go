package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
)

// The end of one session and the beginning of the next, at the same time: what
// the next is told is what was stored before it, and afterwards nothing is
// clean.
func raceOfEndAndBegin(t *testing.T, b *bench) {
	ctx := context.Background()
	for r := range rounds * 4 {
		identity := fmt.Sprint("i", r)
		b.begin(identity, "a", 1)
		b.commit(at(identity, "a", 4, 1))
		var next store.Mark
		together(
			func() {
				if err := b.s.CommitClean(ctx, []store.Commit{at(identity, "a", 9, 1)}); err != nil {
					t.Error(err)
				}
			},
			func() {
				var err error
				if next, err = b.s.BeginSession(ctx, session(identity, "a", 2)); err != nil {
					t.Error(err)
				}
			},
			func() {
				if err := b.s.TouchSessions(ctx, []store.Session{session(identity, "a", 1)}); err != nil {
					t.Error(err)
				}
			},
		)
		b.wantUnclean("the next runs", b.mark(identity, "a"))
		if next.Clean {
			b.wantClean("told", next, 9)
			b.want(identity, "a", 9, 2)
		} else {
			b.want(identity, "a", 4, 2)
		}
	}
}

// Sessions that begin at the same time: the one with the newest epoch is the
// last, and one alone is told of the clean end before.
func raceOfBegins(t *testing.T, b *bench) {
	const epochs = 6
	for r := range rounds {
		identity := fmt.Sprint("i", r)
		b.begin(identity, "a", 1)
		b.commitClean(at(identity, "a", 9, 1))
		var mu sync.Mutex
		clean, begun := 0, map[uint64]bool{}
		fns := make([]func(), epochs)
		for k := range fns {
			epoch := uint64(k) + 2
			fns[k] = func() {
				m, err := b.s.BeginSession(context.Background(), session(identity, "a", epoch))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					begun[epoch] = true
					if m.Clean {
						clean++
					}
				case !errors.Is(err, store.ErrFenced):
					t.Error(err)
				}
			}
		}
		together(fns...)
		if clean != 1 || !begun[epochs+1] {
			t.Errorf("%d were told of the clean end, begun %v", clean, begun)
		}
		b.want(identity, "a", 9, epochs+1)
	}
}

// Ends, commits and touches of the same sessions, in different orders, at the
// same time: none fails.
func raceOfEnds(t *testing.T, b *bench) {
	const n = 40
	ctx := context.Background()
	var fns []func()
	for w := range 6 {
		commits, sessions := make([]store.Commit, n), make([]store.Session, n)
		for i := range n {
			name := fmt.Sprint("i", (i*(2*w+1))%n)
			commits[i], sessions[i] = at(name, "a", uint64(w), 1), session(name, "a", 1)
		}
		fns = append(fns, func() {
			for range 5 {
				var err error
				switch w % 3 {
				case 0:
					err = b.s.CommitClean(ctx, commits)
				case 1:
					err = b.s.Commit(ctx, commits)
				default:
					err = b.s.TouchSessions(ctx, sessions)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	together(fns...)
	for i := range n {
		b.want(fmt.Sprint("i", i), "a", 4, 1)
		if m := b.mark(fmt.Sprint("i", i), "a"); !m.Clean || m.Position != 0 && m.Position != 3 {
			t.Errorf("%+v", m)
		}
	}
}
