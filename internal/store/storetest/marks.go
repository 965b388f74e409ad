package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
)

var markTests = []test{
	{"NoMark", noMark},
	{"CleanEnd", cleanEnd},
	{"UncleanEnd", uncleanEnd},
	{"BeginAnswersTheSame", beginAnswersTheSame},
	{"BeginInOneEpoch", beginInOneEpoch},
	{"BeginFences", beginFences},
	{"EndIsFenced", endIsFenced},
	{"CommitsWithoutBegin", commitsWithoutBegin},
	{"CommitCleanIsACommit", commitCleanIsACommit},
	{"CleanAtZero", cleanAtZero},
	{"MarkKeysAreApart", markKeysAreApart},
	{"MarkRefusals", markRefusals},
	{"ManyCleanEnds", manyCleanEnds},
	{"CountMarks", countMarks},
	{"ExpireMarks", expireMarks},
	{"MarksLast", marksLast},
	{"MarksCancelled", marksCancelled},
	{"RaceOfEndAndBegin", raceOfEndAndBegin},
	{"RaceOfBegins", raceOfBegins},
	{"RaceOfEnds", raceOfEnds},
}

func session(identity, address string, epoch uint64) store.Session {
	return store.Session{Identity: identity, Address: address, Workspace: "ws", Epoch: epoch}
}

func (b *bench) begin(identity, address string, epoch uint64) store.Mark {
	b.t.Helper()
	m, err := b.s.BeginSession(context.Background(), session(identity, address, epoch))
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *bench) commitClean(commits ...store.Commit) {
	b.t.Helper()
	if err := b.s.CommitClean(context.Background(), commits); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) touch(sessions ...store.Session) {
	b.t.Helper()
	if err := b.s.TouchSessions(context.Background(), sessions); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) mark(identity, address string) store.Mark {
	b.t.Helper()
	m, err := b.s.Mark(context.Background(), identity, address)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// wantClean checks a mark of an end a short time ago.
func (b *bench) wantClean(what string, m store.Mark, position uint64) {
	b.t.Helper()
	if !m.Clean || m.Position != position || time.Since(m.At).Abs() > time.Hour {
		b.t.Errorf("%s: %+v, want clean up to %d, just now", what, m, position)
	}
}

func (b *bench) wantUnclean(what string, m store.Mark) {
	b.t.Helper()
	if m != (store.Mark{}) {
		b.t.Errorf("%s: %+v, want unclean", what, m)
	}
}

func noMark(_ *testing.T, b *bench) {
	b.wantUnclean("nobody", b.mark("i", "a"))
	b.commitClean() // nothing
	b.touch()
	b.touch(session("i", "a", 1))
	b.wantUnclean("touched", b.mark("i", "a"))
	b.wantUnclean("the first session", b.begin("i", "a", 1))
	b.wantUnclean("running", b.mark("i", "a"))
	b.wantNone("i", "a")
}

// Delivery rule C5.
func cleanEnd(_ *testing.T, b *bench) {
	b.begin("i", "a", 1)
	b.commit(at("i", "a", 5, 1))
	b.wantUnclean("running", b.mark("i", "a"))
	b.commitClean(at("i", "a", 9, 1))
	b.wantClean("ended", b.mark("i", "a"), 9)
	b.want("i", "a", 9, 1)
	b.wantClean("the next session", b.begin("i", "a", 3), 9)
	b.wantUnclean("the next runs", b.mark("i", "a"))
	b.want("i", "a", 9, 3)
	b.commitClean(at("i", "a", 9, 3)) // it read nothing
	b.wantClean("ended", b.mark("i", "a"), 9)
	b.wantClean("the third", b.begin("i", "a", 4), 9)
}

func uncleanEnd(_ *testing.T, b *bench) {
	b.begin("i", "a", 1)
	b.commitClean(at("i", "a", 9, 1))
	b.begin("i", "a", 2)
	b.commit(at("i", "a", 12, 2)) // and the gateway dies
	b.wantUnclean("dead", b.mark("i", "a"))
	b.wantUnclean("the next session", b.begin("i", "a", 3))
	b.wantUnclean("the one after it", b.begin("i", "a", 4))
	b.commitClean(at("i", "a", 12, 4))
	b.wantClean("ended", b.mark("i", "a"), 12)
}

// A session whose answer was lost asks again and is told the same.
func beginAnswersTheSame(_ *testing.T, b *bench) {
	b.begin("i", "a", 1)
	b.commitClean(at("i", "a", 9, 1))
	for range 3 {
		b.wantClean("repeated", b.begin("i", "a", 2), 9)
		b.wantUnclean("running", b.mark("i", "a"))
		b.commit(at("i", "a", 10, 2))
		b.touch(session("i", "a", 2))
	}
	b.wantUnclean("the next session", b.begin("i", "a", 3))
	b.wantUnclean("repeated", b.begin("i", "a", 3))
}

// Who ends clean and begins anew under the same lease is not clean until it has
// ended again.
func beginInOneEpoch(_ *testing.T, b *bench) {
	b.begin("i", "a", 1)
	b.commitClean(at("i", "a", 9, 1))
	b.wantClean("again", b.begin("i", "a", 1), 9)
	b.wantUnclean("running", b.mark("i", "a"))
	b.wantUnclean("the next session", b.begin("i", "a", 2))
}

// From the beginning of a session on nothing of an older one is stored.
func beginFences(t *testing.T, b *bench) {
	fenced := func(epoch uint64) {
		t.Helper()
		if m, err := b.s.BeginSession(context.Background(), session("i", "a", epoch)); !errors.Is(err, store.ErrFenced) {
			t.Errorf("%+v, %v, want ErrFenced", m, err)
		}
	}
	b.begin("i", "a", 5)
	fenced(4) // by the mark alone
	b.commit(at("i", "a", 3, 5))
	b.begin("i", "a", 8)
	b.commit(at("i", "a", 20, 5), at("i", "a", 20, 7))
	b.want("i", "a", 3, 8)
	fenced(7)
	b.commit(at("i", "a", 4, 8))
	b.want("i", "a", 4, 8)
	// A position alone fences, too: its mark may have expired.
	b.commit(at("i", "a", 5, 9))
	fenced(8)
	if _, err := b.s.ExpireMarks(context.Background(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	fenced(8)
	b.wantUnclean("no mark", b.mark("i", "a"))
	b.want("i", "a", 5, 9)
	b.begin("i", "a", 9)
}

// The end of a session that comes late says nothing about the next one.
func endIsFenced(_ *testing.T, b *bench) {
	b.begin("i", "a", 5)
	b.begin("i", "a", 6) // no position yet: the mark alone fences the mark
	b.commitClean(at("i", "a", 9, 5))
	b.wantUnclean("late", b.mark("i", "a"))
	b.wantUnclean("late, begun again", b.begin("i", "a", 6))
	b.commitClean(at("i", "a", 10, 6))
	b.wantClean("ended", b.mark("i", "a"), 10)
	b.commitClean(at("i", "a", 12, 5))
	b.wantClean("later still", b.mark("i", "a"), 10)
	b.want("i", "a", 10, 6)
	b.touch(session("i", "a", 5), session("i", "a", 7))
	b.wantClean("touched by others", b.mark("i", "a"), 10)
}

// An older gateway, which begins no sessions, leaves no mark that could be
// trusted.
func commitsWithoutBegin(_ *testing.T, b *bench) {
	b.begin("i", "a", 5)
	b.commitClean(at("i", "a", 9, 5))
	b.commit(at("i", "a", 12, 6))
	b.wantUnclean("another has been here", b.mark("i", "a"))
	b.wantUnclean("the next session", b.begin("i", "a", 7))
	b.wantUnclean("repeated", b.begin("i", "a", 7))
	// One that only ends is believed.
	b.commitClean(at("i", "a", 15, 8), at("j", "a", 2, 1))
	b.wantClean("ended", b.mark("i", "a"), 15)
	b.wantClean("ended, never begun", b.mark("j", "a"), 2)
	b.wantClean("the next session", b.begin("i", "a", 9), 15)
}

func commitCleanIsACommit(t *testing.T, b *bench) {
	b.commitClean(at("i", "a", 10, 5))
	b.commitClean(at("i", "a", 20, 4))
	b.want("i", "a", 10, 5)
	b.commitClean(at("i", "a", 7, 6)) // would fall
	b.want("i", "a", 10, 6)
	b.commitClean(at("i", "a", 12, 6), at("i", "a", 11, 6), at("i", "a", 30, 3), at("j", "a", 0, 0))
	b.want("i", "a", 12, 6)
	b.want("j", "a", 0, 0)
	b.commitClean(at("k", "a", 8, 7), at("k", "a", 10, 6)) // by epoch
	b.want("k", "a", 10, 7)
	if m := b.mark("k", "a"); !m.Clean || m.Position > 10 {
		t.Errorf("%+v, want clean, not above 10", m)
	}
}

func cleanAtZero(_ *testing.T, b *bench) {
	b.begin("i", "a", 0)
	b.commitClean(at("i", "a", 0, 0))
	b.wantClean("ended", b.mark("i", "a"), 0)
	b.wantClean("the next session", b.begin("i", "a", 1), 0)
	b.commitClean(at("i", "a", math.MaxInt64, math.MaxInt64))
	b.wantClean("at the top", b.mark("i", "a"), math.MaxInt64)
}

func markKeysAreApart(_ *testing.T, b *bench) {
	var commits []store.Commit
	for n, text := range odd {
		commits = append(commits, at(text, "a", uint64(n), 1), at("i", text, uint64(n), 1))
		if n%2 == 0 {
			b.begin(text, "a", 1)
		}
	}
	b.commitClean(commits...)
	for n, text := range odd {
		b.wantClean(text, b.mark(text, "a"), uint64(n))
		b.wantClean(text, b.begin("i", text, 2), uint64(n))
	}
}

func markRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	refused := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	for _, bad := range []string{"a\x00b", "\xff"} {
		for _, s := range []store.Session{session(bad, "a", 1), session("i", bad, 1), {Identity: "i", Address: "a", Workspace: bad}} {
			_, err := b.s.BeginSession(ctx, s)
			refused("BeginSession", err, store.ErrText)
		}
		refused("CommitClean", b.s.CommitClean(ctx, []store.Commit{at("k", "a", 1, 1), at(bad, "a", 1, 1)}), store.ErrText)
		refused("TouchSessions", b.s.TouchSessions(ctx, []store.Session{session(bad, "a", 1)}), store.ErrText)
		_, err := b.s.Mark(ctx, bad, "a")
		refused("Mark", err, store.ErrText)
		_, err = b.s.Mark(ctx, "i", bad)
		refused("Mark", err, store.ErrText)
	}
	_, err := b.s.BeginSession(ctx, session("i", "a", math.MaxInt64+1))
	refused("BeginSession", err, store.ErrRange)
	refused("TouchSessions", b.s.TouchSessions(ctx, []store.Session{session("i", "a", math.MaxUint64)}), store.ErrRange)
	for _, c := range []store.Commit{at("i", "a", math.MaxInt64+1, 1), at("i", "a", 1, math.MaxUint64)} {
		refused("CommitClean", b.s.CommitClean(ctx, []store.Commit{at("k", "a", 1, 1), c}), store.ErrRange)
	}
	b.wantUnclean("refused", b.mark("k", "a"))
	b.wantNone("k", "a")
}

// A gateway that drains ends many sessions at once.
func manyCleanEnds(t *testing.T, b *bench) {
	const n = 1700
	commits, sessions := make([]store.Commit, n), make([]store.Session, n)
	for i := range commits {
		name := fmt.Sprintf("ag::ws::impl::%d", (i*7919)%n)
		commits[i], sessions[i] = at(name, name, uint64(i), 1), session(name, name, 1)
	}
	b.commitClean(commits...)
	b.touch(sessions...)
	for _, i := range []int{0, 1, 499, 500, 501, n - 1} {
		b.wantClean(commits[i].Identity, b.mark(commits[i].Identity, commits[i].Address), uint64(i))
	}
	removed, err := b.s.ExpireMarks(context.Background(), time.Now().Add(time.Hour))
	if removed != n || err != nil {
		t.Errorf("%d, %v", removed, err)
	}
}

func countMarks(t *testing.T, b *bench) {
	ctx := context.Background()
	if counts, err := b.s.CountMarks(ctx); err != nil || len(counts) != 0 {
		t.Errorf("%v, %v", counts, err)
	}
	for i, ws := range []string{"w", "w", "v", ""} {
		if _, err := b.s.BeginSession(ctx, store.Session{Identity: fmt.Sprint("i", i), Address: "a", Workspace: ws}); err != nil {
			t.Fatal(err)
		}
	}
	b.commitClean(at("i0", "a", 1, 1), at("i2", "a", 1, 1)) // the workspaces stay
	counts, err := b.s.CountMarks(ctx)
	if diff := cmp.Diff(map[string]int64{"w": 2, "v": 1, "": 1}, counts); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func expireMarks(t *testing.T, b *bench) {
	ctx := context.Background()
	b.begin("i", "a", 5)
	b.commitClean(at("i", "a", 9, 5), at("j", "a", 1, 1))
	if n, err := b.s.ExpireMarks(ctx, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.wantClean("not expired", b.mark("i", "a"), 9)
	if n, err := b.s.ExpireMarks(ctx, time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.wantUnclean("expired", b.mark("i", "a"))
	b.want("i", "a", 9, 5)
	b.wantUnclean("the next session", b.begin("i", "a", 6))
}

func marksLast(t *testing.T, b *bench) {
	b.commitClean(at("i", "a", 9, 5))
	b.begin("j", "a", 5)
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.wantClean("reopened", b.mark("i", "a"), 9)
	b.commitClean(at("j", "a", 9, 4))
	b.wantUnclean("fenced still", b.mark("j", "a"))
}

func marksCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, beginErr := b.s.BeginSession(ctx, session("i", "a", 1))
	_, markErr := b.s.Mark(ctx, "i", "a")
	_, expireErr := b.s.ExpireMarks(ctx, time.Now())
	_, countErr := b.s.CountMarks(ctx)
	for what, err := range map[string]error{
		"BeginSession":  beginErr,
		"CommitClean":   b.s.CommitClean(ctx, []store.Commit{at("i", "a", 1, 1)}),
		"TouchSessions": b.s.TouchSessions(ctx, []store.Session{session("i", "a", 1)}),
		"Mark":          markErr, "ExpireMarks": expireErr, "CountMarks": countErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	b.wantNone("i", "a")
}
