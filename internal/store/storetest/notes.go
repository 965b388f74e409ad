package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
)

var noteTests = []test{
	{"NoNote", noNote},
	{"NoteIsTheMinimum", noteIsTheMinimum},
	{"NoteRanges", noteRanges},
	{"NoteTexts", noteTexts},
	{"NoteRefusals", noteRefusals},
	{"RaiseOnlyUnchanged", raiseOnlyUnchanged},
	{"DeleteOnlyUnchanged", deleteOnlyUnchanged},
	{"ManyNotes", manyNotes},
	{"CountNotes", countNotes},
	{"ExpireNotes", expireNotes},
	{"NotesLast", notesLast},
	{"NotesCancelled", notesCancelled},
	{"RaceOfMinima", raceOfMinima},
	{"RaceOfNoteAndRaise", raceOfNoteAndRaise},
	{"RaceOfNoteAndDelete", raceOfNoteAndDelete},
	{"RaceOfRaiseAndDelete", raceOfRaiseAndDelete},
	{"RaceOfNoteAndExpiry", raceOfNoteAndExpiry},
}

func note(address string, position uint64) store.Note {
	return store.Note{Address: address, Position: position, Workspace: "ws"}
}

// note writes notes and returns what is stored then.
func (b *bench) note(notes ...store.Note) []uint64 {
	b.t.Helper()
	stored, err := b.s.NoteAbsence(context.Background(), notes)
	if err != nil {
		b.t.Fatal(err)
	}
	return stored
}

func (b *bench) wantNote(address string, want uint64) {
	b.t.Helper()
	if got, ok, err := b.s.Note(context.Background(), address); err != nil || !ok || got != want {
		b.t.Errorf("Note(%q) = %d, %v, %v, want %d", address, got, ok, err, want)
	}
}

func (b *bench) wantNoNote(address string) {
	b.t.Helper()
	if got, ok, err := b.s.Note(context.Background(), address); err != nil || ok {
		b.t.Errorf("Note(%q) = %d, %v, %v, want none", address, got, ok, err)
	}
}

func (b *bench) raise(raises ...store.Raise) int64 {
	b.t.Helper()
	n, err := b.s.RaiseNotes(context.Background(), raises)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) deleteNotes(notes ...store.Note) int64 {
	b.t.Helper()
	n, err := b.s.DeleteNotes(context.Background(), notes)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// same checks a result that is a number.
func (b *bench) same(what string, got, want int64) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func noNote(t *testing.T, b *bench) {
	b.wantNoNote("us::u::w")
	if stored := b.note(); len(stored) != 0 {
		t.Errorf("got %v for nothing", stored)
	}
	b.same("raised nothing", b.raise(), 0)
	b.same("raised none", b.raise(store.Raise{Address: "a", From: 0, To: 1}), 0)
	b.same("deleted nothing", b.deleteNotes(), 0)
	b.same("deleted none", b.deleteNotes(note("a", 0)), 0)
	b.wantNoNote("a")
	if counts, err := b.s.CountNotes(context.Background()); err != nil || len(counts) != 0 {
		t.Errorf("counts %v, %v", counts, err)
	}
}

// Delivery rule C3: a note is min(existing, position), and its writer learns
// what it is.
func noteIsTheMinimum(t *testing.T, b *bench) {
	for _, step := range []struct{ position, want uint64 }{{10, 10}, {12, 10}, {10, 10}, {7, 7}, {9, 7}, {0, 0}, {5, 0}} {
		if stored := b.note(note("a", step.position)); !slices.Equal(stored, []uint64{step.want}) {
			t.Errorf("noted %d: %v, want %d", step.position, stored, step.want)
		}
		b.wantNote("a", step.want)
	}
	// In one call the lower wins, and the answers keep the order.
	stored := b.note(note("x", 8), note("b", 1), note("x", 5), note("a", 3), note("x", 6))
	if want := []uint64{5, 1, 5, 0, 5}; !slices.Equal(stored, want) {
		t.Errorf("got %v, want %v", stored, want)
	}
	b.wantNote("x", 5)
	b.wantNote("b", 1)
}

func noteRanges(t *testing.T, b *bench) {
	ctx := context.Background()
	const top = math.MaxInt64
	b.note(note("top", top), note("zero", 0))
	b.wantNote("top", top)
	b.wantNote("zero", 0)
	b.same("raise to the top", b.raise(store.Raise{Address: "zero", From: 0, To: top}), 1)
	b.wantNote("zero", top)
	for _, beyond := range []uint64{top + 1, math.MaxUint64} {
		if _, err := b.s.NoteAbsence(ctx, []store.Note{note("ok", 1), note("a", beyond)}); !errors.Is(err, store.ErrRange) {
			t.Errorf("NoteAbsence: %v, want ErrRange", err)
		}
		for _, r := range []store.Raise{{Address: "a", From: 1, To: beyond}, {Address: "a", From: beyond, To: beyond}} {
			if _, err := b.s.RaiseNotes(ctx, []store.Raise{r}); !errors.Is(err, store.ErrRange) {
				t.Errorf("RaiseNotes: %v, want ErrRange", err)
			}
		}
		if _, err := b.s.DeleteNotes(ctx, []store.Note{note("top", top), note("a", beyond)}); !errors.Is(err, store.ErrRange) {
			t.Errorf("DeleteNotes: %v, want ErrRange", err)
		}
	}
	b.wantNoNote("ok") // nothing of a refused call is done
	b.wantNote("top", top)
}

func noteTexts(_ *testing.T, b *bench) {
	var notes []store.Note
	for n, text := range odd {
		notes = append(notes, store.Note{Address: text, Position: uint64(n), Workspace: text})
	}
	b.note(notes...)
	for n, text := range odd {
		b.wantNote(text, uint64(n))
	}
	b.same("raised", b.raise(store.Raise{Address: "%", From: uint64(slices.Index(odd, "%")), To: 1000}), 1)
	b.wantNote("%", 1000)
	b.wantNote("_", uint64(slices.Index(odd, "_")))
	b.same("deleted", b.deleteNotes(notes...), int64(len(notes)-1))
	b.wantNote("%", 1000)
	b.wantNoNote("")
}

func noteRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []string{"a\x00b", "\xff", "\xed\xa0\x80"} {
		_, noteErr := b.s.NoteAbsence(ctx, []store.Note{note("ok", 1), note(bad, 1)})
		_, workspaceErr := b.s.NoteAbsence(ctx, []store.Note{{Address: "a", Workspace: bad}})
		_, _, readErr := b.s.Note(ctx, bad)
		_, raiseErr := b.s.RaiseNotes(ctx, []store.Raise{{Address: bad, From: 1, To: 2}})
		_, deleteErr := b.s.DeleteNotes(ctx, []store.Note{note(bad, 1)})
		for what, err := range map[string]error{
			"NoteAbsence": noteErr, "workspace": workspaceErr, "Note": readErr, "RaiseNotes": raiseErr, "DeleteNotes": deleteErr,
		} {
			if !errors.Is(err, store.ErrText) {
				t.Errorf("%s with %q: %v, want ErrText", what, bad, err)
			}
		}
	}
	b.wantNoNote("ok")
}

func raiseOnlyUnchanged(_ *testing.T, b *bench) {
	b.note(note("a", 10), note("b", 10), note("c", 0))
	b.same("other value", b.raise(store.Raise{Address: "a", From: 9, To: 20}, store.Raise{Address: "a", From: 11, To: 20}), 0)
	b.same("not up", b.raise(store.Raise{Address: "a", From: 10, To: 10}, store.Raise{Address: "a", From: 10, To: 3}), 0)
	b.wantNote("a", 10)
	b.same("two", b.raise(store.Raise{Address: "a", From: 10, To: 20}, store.Raise{Address: "c", From: 0, To: 1}), 2)
	b.wantNote("a", 20)
	b.wantNote("b", 10)
	b.wantNote("c", 1)
	b.same("again", b.raise(store.Raise{Address: "a", From: 10, To: 20}), 0)
	// Twice in one call: the lower target, and no note is moved twice.
	b.same("twice", b.raise(store.Raise{Address: "b", From: 10, To: 30}, store.Raise{Address: "b", From: 30, To: 40},
		store.Raise{Address: "b", From: 10, To: 25}, store.Raise{Address: "b", From: 25, To: 40}), 1)
	b.wantNote("b", 25)
	b.note(note("b", 24))
	b.wantNote("b", 24)
}

// Delivery rule C6.
func deleteOnlyUnchanged(_ *testing.T, b *bench) {
	b.note(note("a", 10), note("b", 10), note("c", 0))
	b.same("other value", b.deleteNotes(note("a", 9), note("a", 11), note("a", 0)), 0)
	b.wantNote("a", 10)
	b.same("two", b.deleteNotes(note("c", 0), note("a", 10), note("a", 10), note("b", 11)), 2)
	b.wantNoNote("a")
	b.wantNoNote("c")
	b.wantNote("b", 10)
	b.note(note("a", 50)) // a fresh one may be higher
	b.wantNote("a", 50)
	b.note(note("b", 5))
	b.same("lowered meanwhile", b.deleteNotes(note("b", 10)), 0)
	b.wantNote("b", 5)
}

func manyNotes(t *testing.T, b *bench) {
	const n = 3000
	notes, raises := make([]store.Note, n), make([]store.Raise, n)
	for i := range notes {
		address := fmt.Sprintf("us::user%d::window", (i*7919)%n)
		notes[i] = note(address, uint64(i)+100)
		raises[i] = store.Raise{Address: address, From: uint64(i) + 100, To: uint64(i) + 1000}
	}
	for i, got := range b.note(notes...) {
		if got != notes[i].Position {
			t.Fatalf("%q: %d, want %d", notes[i].Address, got, notes[i].Position)
		}
	}
	b.same("raised", b.raise(raises...), n)
	b.wantNote(raises[n-1].Address, n-1+1000)
	b.same("deleted by their old positions", b.deleteNotes(notes...), 0)
	for i := range notes {
		notes[i].Position = raises[i].To
	}
	b.same("deleted", b.deleteNotes(notes...), n)
}

// The first writer's workspace pays.
func countNotes(t *testing.T, b *bench) {
	in := func(address, workspace string) store.Note { return store.Note{Address: address, Workspace: workspace} }
	b.note(in("a", "w"), in("b", "w"), in("c", "v"), in("d", ""))
	b.note(in("a", "v"), in("c", "w"))
	counts, err := b.s.CountNotes(context.Background())
	if diff := cmp.Diff(map[string]int64{"w": 2, "v": 1, "": 1}, counts); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func expireNotes(t *testing.T, b *bench) {
	ctx := context.Background()
	const n = 2100
	notes := make([]store.Note, n)
	for i := range notes {
		notes[i] = note(fmt.Sprint("a", i), 5)
	}
	b.note(notes...)
	removed, err := b.s.ExpireNotes(ctx, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	b.same("expired early", removed, 0)
	if removed, err = b.s.ExpireNotes(ctx, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.same("expired", removed, n)
	b.wantNoNote("a0")
	b.note(note("a0", 9))
	b.wantNote("a0", 9)
}

func notesLast(t *testing.T, b *bench) {
	b.note(note("a", 10), note("b", 0))
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.wantNote("a", 10)
	b.wantNote("b", 0)
	b.note(note("a", 4))
	b.wantNote("a", 4)
}

func notesCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, noteErr := b.s.NoteAbsence(ctx, []store.Note{note("a", 1)})
	_, _, readErr := b.s.Note(ctx, "a")
	_, raiseErr := b.s.RaiseNotes(ctx, []store.Raise{{Address: "a", From: 1, To: 2}})
	_, deleteErr := b.s.DeleteNotes(ctx, []store.Note{note("a", 1)})
	_, expireErr := b.s.ExpireNotes(ctx, time.Now())
	_, countErr := b.s.CountNotes(ctx)
	for what, err := range map[string]error{
		"NoteAbsence": noteErr, "Note": readErr, "RaiseNotes": raiseErr, "DeleteNotes": deleteErr,
		"ExpireNotes": expireErr, "CountNotes": countErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	b.wantNoNote("a")
}
