package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// together runs the functions at the same time, as several gateways do, and
// waits for them.
func together(fns ...func()) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for _, fn := range fns {
		all.Go(func() {
			<-start
			fn()
		})
	}
	close(start)
	all.Wait()
}

// contested is how many notes a race is about at once, rounds how often it is
// run.
const contested, rounds = 60, 8

// race sets all contested notes to position 10, lets each function work on each
// of them, one call per address, in an order of its own, and checks what is
// left.
func race(b *bench, check func(address string), fns ...func(address string)) {
	b.t.Helper()
	for r := range rounds {
		addresses, notes := make([]string, contested), make([]store.Note, contested)
		for i := range addresses {
			addresses[i] = fmt.Sprintf("a%d of round %d", i, r)
			notes[i] = note(addresses[i], 10)
		}
		b.note(notes...)
		each := make([]func(), len(fns))
		for k, fn := range fns {
			each[k] = func() {
				for i := range addresses {
					fn(addresses[(i+r)%contested])
				}
			}
		}
		together(each...)
		for _, a := range addresses {
			check(a)
		}
	}
}

// Calls about the same addresses, in different orders, at the same time: none
// fails, the lowest is left, and nobody is told less than that.
func raceOfMinima(t *testing.T, b *bench) {
	const writers, addresses = 6, 40
	var mu sync.Mutex
	lowest := map[string]uint64{}
	fns := make([]func(), writers)
	for w := range fns {
		fns[w] = func() {
			for r := range 10 {
				notes := make([]store.Note, addresses)
				for i := range notes {
					notes[i] = note(fmt.Sprint("a", (i*(w+1))%addresses), uint64(1000-r*writers-w))
				}
				stored, err := b.s.NoteAbsence(context.Background(), notes)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, n := range notes {
					if stored[i] > n.Position {
						t.Errorf("noted %d, told %d", n.Position, stored[i])
					}
					if low, ok := lowest[n.Address]; !ok || n.Position < low {
						lowest[n.Address] = n.Position
					}
				}
				mu.Unlock()
			}
		}
	}
	together(fns...)
	for address, low := range lowest {
		b.wantNote(address, low)
	}
}

// A note that is lower than the raise's origin always stays; one that changes
// nothing is raised, or is the minimum of what was raised, and its writer knows
// which.
func raceOfNoteAndRaise(t *testing.T, b *bench) {
	told := map[string]uint64{}
	race(
		b, func(a string) {
			if told[a] != 10 && told[a] != 15 {
				t.Errorf("%q: told %d", a, told[a])
			}
			b.wantNote(a, map[uint64]uint64{10: 20, 15: 15}[told[a]])
		},
		func(a string) { told[a] = b.mustNote(note(a, 15)) },
		func(a string) { b.mustRaise(store.Raise{Address: a, From: 10, To: 20}) },
	)
	race(
		b, func(a string) { b.wantNote(a, 7) },
		func(a string) { b.mustNote(note(a, 7)) },
		func(a string) { b.mustRaise(store.Raise{Address: a, From: 10, To: 20}) },
	)
}

// Whoever comes first, a note that was lowered or written anew is there in the
// end: a message may lie behind it.
func raceOfNoteAndDelete(_ *testing.T, b *bench) {
	race(
		b, func(a string) { b.wantNote(a, 5) },
		func(a string) { b.mustNote(note(a, 5)) },
		func(a string) { b.mustDelete(note(a, 10)) },
	)
}

// One of the two finds the note unchanged, never both.
func raceOfRaiseAndDelete(t *testing.T, b *bench) {
	raised, deleted := map[string]int64{}, map[string]int64{}
	race(
		b, func(a string) {
			if raised[a]+deleted[a] != 1 {
				t.Errorf("%q: raised %d, deleted %d", a, raised[a], deleted[a])
			}
			if raised[a] == 1 {
				b.wantNote(a, 20)
			} else {
				b.wantNoNote(a)
			}
		},
		func(a string) { raised[a] = b.mustRaise(store.Raise{Address: a, From: 10, To: 20}) },
		func(a string) { deleted[a] = b.mustDelete(note(a, 10)) },
	)
}

// A note that was confirmed after all others had expired is there.
func raceOfNoteAndExpiry(t *testing.T, b *bench) {
	ctx := context.Background()
	for range rounds {
		b.note(note("old", 3))
		between := time.Now().Add(time.Millisecond)
		for time.Now().Before(between) {
			b.wantNote("old", 3)
		}
		together(
			func() { b.mustNote(note("old", 8)) },
			func() {
				if _, err := b.s.ExpireNotes(ctx, between); err != nil {
					t.Error(err)
				}
			},
		)
		got, ok, err := b.s.Note(ctx, "old")
		if err != nil || !ok || got != 3 && got != 8 {
			t.Errorf("Note = %d, %v, %v", got, ok, err)
		}
		b.deleteNotes(note("old", got))
	}
}

// The must functions are for goroutines of a test, which may not end it.

func (b *bench) mustNote(n store.Note) uint64 {
	stored, err := b.s.NoteAbsence(context.Background(), []store.Note{n})
	if err != nil || len(stored) != 1 {
		b.t.Error(stored, err)
		return 0
	}
	return stored[0]
}

func (b *bench) mustRaise(r store.Raise) int64 {
	n, err := b.s.RaiseNotes(context.Background(), []store.Raise{r})
	if err != nil {
		b.t.Error(err)
	}
	return n
}

func (b *bench) mustDelete(n store.Note) int64 {
	removed, err := b.s.DeleteNotes(context.Background(), []store.Note{n})
	if err != nil {
		b.t.Error(err)
	}
	return removed
}
