package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var positionTests = []test{
	{"NoPosition", noPosition},
	{"ZeroIsAPosition", zeroIsAPosition},
	{"NeverFalls", neverFalls},
	{"Epochs", epochs},
	{"Rewind", rewind},
	{"KeysAreApart", keysAreApart},
	{"RepeatsInOneCall", repeatsInOneCall},
	{"EpochsInOneCall", epochsInOneCall},
	{"Ranges", ranges},
	{"OddTexts", oddTexts},
	{"RefusedTexts", refusedTexts},
	{"PositionsOf", positionsOf},
	{"PrefixIsLiteral", prefixIsLiteral},
	{"LargeBatch", largeBatch},
	{"ConcurrentCommits", concurrentCommits},
	{"CancelledContext", cancelledContext},
	{"Expire", expire},
	{"ExpireMany", expireMany},
	{"Reopen", reopen},
	{"Ping", ping},
}

func noPosition(t *testing.T, b *bench) {
	b.wantNone("us::u", "us::u")
	if all := b.of("us::u"); len(all) != 0 {
		t.Errorf("PositionsOf = %+v", all)
	}
	if all := b.under(""); len(all) != 0 {
		t.Errorf("PositionsUnder = %+v", all)
	}
	b.commit() // nothing
	b.commit([]store.Commit{}...)
}

// Delivery rule C1: "none" differs from 0.
func zeroIsAPosition(_ *testing.T, b *bench) {
	b.commit(at("us::u", "us::u", 0, 0))
	b.want("us::u", "us::u", 0, 0)
	b.wantNone("us::v", "us::v")
}

func neverFalls(_ *testing.T, b *bench) {
	b.commit(at("i", "a", 10, 5))
	b.want("i", "a", 10, 5)
	b.commit(at("i", "a", 9, 5))
	b.want("i", "a", 10, 5)
	b.commit(at("i", "a", 10, 5))
	b.want("i", "a", 10, 5)
	b.commit(at("i", "a", 11, 5))
	b.want("i", "a", 11, 5)
}

// An older epoch is fenced; a newer one is stored even if its position would
// fall, and the position stays.
func epochs(_ *testing.T, b *bench) {
	b.commit(at("i", "a", 10, 5))
	b.commit(at("i", "a", 20, 4))
	b.want("i", "a", 10, 5)
	b.commit(at("i", "a", 7, 6))
	b.want("i", "a", 10, 6)
	b.commit(at("i", "a", 20, 5))
	b.want("i", "a", 10, 6)
	b.commit(at("i", "a", 10, 7))
	b.want("i", "a", 10, 7)
	b.commit(at("i", "a", 30, 9))
	b.want("i", "a", 30, 9)
}

// Delivery rule C2: a position in a log that is gone is lowered, but not by one
// who has lost the address; from there on it rises again.
func rewind(t *testing.T, b *bench) {
	b.commit(at("i", "a", 10, 5), at("j", "a", 10, 5), at("k", "a", 10, 5))
	rewind := func(to ...store.Commit) {
		t.Helper()
		if err := b.s.RewindPositions(context.Background(), to); err != nil {
			t.Fatal(err)
		}
	}
	rewind(at("i", "a", 3, 5), at("j", "a", 3, 4), at("k", "a", 20, 5), at("nobody", "a", 3, 5))
	b.want("i", "a", 3, 5)
	b.want("j", "a", 10, 5)
	b.want("k", "a", 10, 5)
	b.wantNone("nobody", "a")
	rewind(at("i", "a", 3, 5))
	rewind()
	b.commit(at("i", "a", 4, 5))
	b.want("i", "a", 4, 5)
	rewind(at("i", "a", 0, 6))
	b.want("i", "a", 0, 5)
	if err := b.s.RewindPositions(context.Background(), []store.Commit{at("i", "a", math.MaxUint64, 1)}); !errors.Is(err, store.ErrRange) {
		t.Errorf("got %v, want ErrRange", err)
	}
}

func keysAreApart(_ *testing.T, b *bench) {
	b.commit(at("i", "a", 1, 1), at("i", "b", 2, 2), at("j", "a", 3, 3), at("ia", "", 4, 4), at("", "ia", 5, 5))
	b.want("i", "a", 1, 1)
	b.want("i", "b", 2, 2)
	b.want("j", "a", 3, 3)
	b.want("ia", "", 4, 4)
	b.want("", "ia", 5, 5)
	b.wantNone("j", "b")
	b.wantNone("I", "a")
}

func repeatsInOneCall(_ *testing.T, b *bench) {
	b.commit(at("i", "a", 5, 1), at("j", "a", 1, 1), at("i", "a", 9, 1), at("i", "a", 7, 1), at("i", "a", 9, 1))
	b.want("i", "a", 9, 1)
	b.want("j", "a", 1, 1)
}

// The same key under several epochs in one call is judged as if each had come
// alone, the oldest first.
func epochsInOneCall(_ *testing.T, b *bench) {
	b.commit(at("i", "a", 5, 5), at("j", "a", 5, 5))
	b.commit(at("i", "a", 8, 7), at("i", "a", 10, 6), at("j", "a", 8, 7), at("j", "a", 20, 4))
	b.want("i", "a", 10, 7)
	b.want("j", "a", 8, 7) // epoch 4 was fenced already
}

func ranges(t *testing.T, b *bench) {
	const top = math.MaxInt64
	b.commit(at("i", "a", top, top))
	b.want("i", "a", top, top)
	for _, bad := range []store.Commit{
		at("j", "a", top+1, 1), at("j", "a", math.MaxUint64, 1),
		at("j", "a", 1, top+1), at("j", "a", 1, math.MaxUint64),
	} {
		err := b.s.Commit(context.Background(), []store.Commit{at("k", "a", 1, 1), bad})
		if !errors.Is(err, store.ErrRange) {
			t.Errorf("%+v: %v, want ErrRange", bad, err)
		}
	}
	b.wantNone("j", "a")
	b.wantNone("k", "a") // nothing of a refused call is done
}

var odd = []string{
	"", " ", "'", `"`, `\`, "''; drop table positions; --", "$1", "%", "_", "ünï", "日本語", "\U0001F600",
	"e\u0301", "\u00e9", "\u200b", "a\nb\tc", "\x01", "\u007f", "{a,b}", "NULL", "null", "ag::ws::x", strings.Repeat("x", 2000),
	"\U0010FFFF", "\uFFFD", "🧵" + strings.Repeat("é", 300), "trailing ", "Trailing ",
}

func oddTexts(_ *testing.T, b *bench) {
	var commits []store.Commit
	for n, text := range odd {
		commits = append(commits, at(text, "a", uint64(n), 1), at("i", text, uint64(n), 1))
	}
	b.commit(commits...)
	for n, text := range odd {
		b.want(text, "a", uint64(n), 1)
		b.want("i", text, uint64(n), 1)
	}
}

func refusedTexts(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []string{"a\x00b", "\x00", "\xff", "a\xc3", "\xed\xa0\x80"} {
		for _, c := range []store.Commit{at(bad, "a", 1, 1), at("i", bad, 1, 1)} {
			err := b.s.Commit(ctx, []store.Commit{at("k", "a", 1, 1), c})
			if !errors.Is(err, store.ErrText) {
				t.Errorf("Commit with %q: %v, want ErrText", bad, err)
			}
		}
		if _, _, err := b.s.Position(ctx, bad, "a"); !errors.Is(err, store.ErrText) {
			t.Errorf("Position of %q: %v, want ErrText", bad, err)
		}
		if _, _, err := b.s.Position(ctx, "i", bad); !errors.Is(err, store.ErrText) {
			t.Errorf("Position in %q: %v, want ErrText", bad, err)
		}
		if _, err := b.s.PositionsOf(ctx, bad); !errors.Is(err, store.ErrText) {
			t.Errorf("PositionsOf %q: %v, want ErrText", bad, err)
		}
		if _, err := b.s.PositionsUnder(ctx, bad); !errors.Is(err, store.ErrText) {
			t.Errorf("PositionsUnder %q: %v, want ErrText", bad, err)
		}
	}
	b.wantNone("k", "a")
}

func positionsOf(t *testing.T, b *bench) {
	b.commit(at("i", "b", 2, 1), at("i", "a", 1, 1), at("i", "B", 4, 1), at("i", "é", 3, 1), at("ii", "a", 9, 1))
	want := []store.Position{
		{Identity: "i", Address: "B", Position: 4, Epoch: 1},
		{Identity: "i", Address: "a", Position: 1, Epoch: 1},
		{Identity: "i", Address: "b", Position: 2, Epoch: 1},
		{Identity: "i", Address: "é", Position: 3, Epoch: 1},
	}
	if diff := cmp.Diff(want, b.of("i")); diff != "" {
		t.Error(diff)
	}
}

func prefixIsLiteral(t *testing.T, b *bench) {
	addresses := slices.Concat(odd, []string{
		"event::", "event::a", "event::a::b", "event:", "event", "events::a", "Event::a", "event::%", "event::_",
		"event::\U0010FFFF", "event:;", "a%b", "a%", "axb", "a_b", "ayb", `a\b`, "a\uD7FFx", "a\uE000x",
	})
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	var commits []store.Commit
	for n, a := range addresses {
		commits = append(commits, at("j", a, uint64(n), 1), at("i", a, uint64(n), 2))
	}
	b.commit(commits...)
	for _, prefix := range slices.Concat(addresses, []string{"ev", "a", "\uE000", "z", "A", "a\uD7FF"}) {
		var want []store.Position
		for n, a := range addresses {
			if strings.HasPrefix(a, prefix) {
				want = append(want, store.Position{Identity: "i", Address: a, Position: uint64(n), Epoch: 2},
					store.Position{Identity: "j", Address: a, Position: uint64(n), Epoch: 1})
			}
		}
		if diff := cmp.Diff(want, b.under(prefix), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("prefix %q: %s", prefix, diff)
		}
	}
}

func largeBatch(t *testing.T, b *bench) {
	const n = 5000
	commits := make([]store.Commit, n)
	for i := range commits {
		commits[i] = at(fmt.Sprintf("ag::ws::impl::%d", i), fmt.Sprintf("ag::ws::impl::%d", i), uint64(i), 1)
	}
	b.commit(commits...)
	for i := range commits {
		commits[i].Position += 1000
	}
	b.commit(commits...)
	all := b.under("ag::ws::")
	if len(all) != n {
		t.Fatalf("%d stored", len(all))
	}
	var sum uint64
	for _, p := range all {
		sum += p.Position
	}
	if sum != n*(n-1)/2+n*1000 {
		t.Errorf("sum %d", sum)
	}
}

// Commits of the same keys, in different orders, at the same time: none fails,
// the highest is left.
func concurrentCommits(t *testing.T, b *bench) {
	const writers, rounds, keys = 8, 15, 40
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for r := range rounds {
				var commits []store.Commit
				for k := range keys {
					commits = append(commits, at(fmt.Sprint("i", k), "a", uint64(r*writers+w), 1))
				}
				if w%2 == 0 {
					slices.Reverse(commits)
				}
				if err := b.s.Commit(context.Background(), commits); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for k := range keys {
		b.want(fmt.Sprint("i", k), "a", rounds*writers-1, 1)
	}
}

func cancelledContext(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	check := func(what string, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	check("Commit", b.s.Commit(ctx, []store.Commit{at("i", "a", 1, 1)}))
	_, _, err := b.s.Position(ctx, "i", "a")
	check("Position", err)
	_, err = b.s.PositionsOf(ctx, "i")
	check("PositionsOf", err)
	_, err = b.s.PositionsUnder(ctx, "i")
	check("PositionsUnder", err)
	_, err = b.s.ExpirePositions(ctx, time.Now())
	check("ExpirePositions", err)
	check("Ping", b.s.Ping(ctx))
	b.wantNone("i", "a")
}

func expire(t *testing.T, b *bench) {
	ctx := context.Background()
	b.commit(at("i", "a", 1, 1), at("j", "a", 2, 1))
	if n, err := b.s.ExpirePositions(ctx, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.want("i", "a", 1, 1)
	if n, err := b.s.ExpirePositions(ctx, time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	b.wantNone("i", "a")
	b.commit(at("i", "a", 0, 0)) // a fresh one may be lower
	b.want("i", "a", 0, 0)
}

func expireMany(t *testing.T, b *bench) {
	const n = 5100
	commits := make([]store.Commit, n)
	for i := range commits {
		commits[i] = at(fmt.Sprint("i", i), "a", 1, 1)
	}
	b.commit(commits...)
	if removed, err := b.s.ExpirePositions(context.Background(), time.Now().Add(time.Hour)); removed != n || err != nil {
		t.Errorf("%d, %v", removed, err)
	}
}

func reopen(t *testing.T, b *bench) {
	b.commit(at("i", "a", 10, 5))
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.want("i", "a", 10, 5)
	b.commit(at("i", "a", 20, 4), at("i", "b", 1, 1))
	b.want("i", "a", 10, 5)
	b.want("i", "b", 1, 1)
}

func ping(t *testing.T, b *bench) {
	if err := b.s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}
