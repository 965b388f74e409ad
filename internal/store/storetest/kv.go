package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var kvTests = []test{
	{"KVPutGetDelete", kvPutGetDelete},
	{"KVSpacesAreApart", kvSpacesAreApart},
	{"KVExpires", kvExpires},
	{"KVListsInOrder", kvListsInOrder},
	{"KVListPages", kvListPages},
	{"KVSnapshot", kvSnapshot},
	{"KVAccounts", kvAccounts},
	{"KVRefusals", kvRefusals},
	{"KVPurge", kvPurge},
	{"KVOfDeletedWorkspaces", kvOfDeletedWorkspaces},
	{"RaceOfKVCounters", raceOfKVCounters},
	{"RaceOfKVMakers", raceOfKVMakers},
}

var (
	kvHere     = store.KVSpace{Workspace: "w", Scope: 2, Implementation: "i"}
	kvAnyCount = store.KVAccount{Name: "w"}
)

func (b *bench) putKV(space store.KVSpace, key, value string, expires time.Time) {
	b.t.Helper()
	err := b.s.ChangeKV(context.Background(), space, key, kvAnyCount, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVPut, Value: []byte(value), ExpiresAt: expires}, nil
	})
	if err != nil {
		b.t.Fatalf("put %q: %v", key, err)
	}
}

func (b *bench) deleteKV(space store.KVSpace, key string) {
	b.t.Helper()
	err := b.s.ChangeKV(context.Background(), space, key, kvAnyCount, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVDelete}, nil
	})
	if err != nil {
		b.t.Fatalf("delete %q: %v", key, err)
	}
}

// wantKV checks a key by reading it and by the look that a change gets; "" is
// none.
func (b *bench) wantKV(space store.KVSpace, key, value string) {
	b.t.Helper()
	row, ok, err := b.s.GetKV(context.Background(), space, key)
	if err != nil || ok != (value != "") || string(row.Value) != value {
		b.t.Errorf("GetKV(%q) = %.40q, %v, %v, want %.40q", key, row.Value, ok, err, value)
	}
	err = b.s.ChangeKV(context.Background(), space, key, kvAnyCount, func(_ time.Time, row *store.KVRow) (store.KVChange, error) {
		if (row != nil) != (value != "") || row != nil && string(row.Value) != value {
			b.t.Errorf("a change of %q is shown %v, want %.40q", key, row, value)
		}
		return store.KVChange{}, nil
	})
	if err != nil {
		b.t.Error(err)
	}
}

func (b *bench) wantKVCount(account string, keys, bytes int64) {
	b.t.Helper()
	gotKeys, gotBytes, err := b.s.CountKV(context.Background(), account)
	if err != nil || gotKeys != keys || gotBytes != bytes {
		b.t.Errorf("CountKV(%q) = %d keys, %d bytes, %v, want %d, %d", account, gotKeys, gotBytes, err, keys, bytes)
	}
}

func kvPutGetDelete(t *testing.T, b *bench) {
	b.wantKV(kvHere, "k", "")
	before := b.now().Add(-time.Second)
	b.putKV(kvHere, "k", "one", time.Time{})
	b.wantKV(kvHere, "k", "one")
	big := strings.Repeat("\x00\xff", 1<<19)
	b.putKV(kvHere, "k", big, time.Time{})
	b.putKV(kvHere, strings.Repeat("k", 512), "a long key", time.Time{})
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.wantKV(kvHere, "k", big)
	b.wantKV(kvHere, strings.Repeat("k", 512), "a long key")
	row, _, err := b.s.GetKV(context.Background(), kvHere, "k")
	if err != nil || row.Key != "k" || row.Form != 0 || !row.ExpiresAt.IsZero() || row.ChangedAt.Before(before) || row.ChangedAt.After(b.now().Add(time.Second)) {
		t.Errorf("%q, form %d, changed at %v, expires at %v, %v", row.Key, row.Form, row.ChangedAt, row.ExpiresAt, err)
	}
	b.deleteKV(kvHere, "k")
	b.deleteKV(kvHere, "k")
	b.wantKV(kvHere, "k", "")
	// An empty value is one; a form comes back.
	err = b.s.ChangeKV(context.Background(), kvHere, "e", kvAnyCount, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVPut, Value: []byte{}, Form: 7}, nil
	})
	if row, ok, err2 := b.s.GetKV(context.Background(), kvHere, "e"); err != nil || err2 != nil || !ok || len(row.Value) != 0 || row.Form != 7 {
		t.Errorf("an empty value: %v, %v, %v, %v", row, ok, err, err2)
	}
}

func kvSpacesAreApart(_ *testing.T, b *bench) {
	spaces := []store.KVSpace{
		kvHere,
		{Workspace: "w", Scope: 2, Implementation: "j"},
		{Workspace: "x", Scope: 2, Implementation: "i"},
		{Workspace: "w", Scope: 3, Implementation: "i"},
		{Workspace: "w", Scope: 2, Implementation: "i", Owner: "o"},
		{Scope: 1, Implementation: "i"},
		{Scope: 255, Owner: "o"},
	}
	for i, space := range spaces {
		b.putKV(space, "k", fmt.Sprint("of ", i), time.Time{})
	}
	for i, space := range spaces {
		b.wantKV(space, "k", fmt.Sprint("of ", i))
		if rows, more, err := b.s.ListKV(context.Background(), space, "", "", 10, 1000); err != nil || more || len(rows) != 1 {
			b.t.Errorf("space %d has %d keys, %v, %v", i, len(rows), more, err)
		}
	}
	b.deleteKV(spaces[3], "k")
	b.wantKV(spaces[0], "k", "of 0")
}

func kvExpires(t *testing.T, b *bench) {
	b.putKV(kvHere, "soon", "1", b.now().Add(time.Minute))
	b.putKV(kvHere, "later", "2", b.now().Add(time.Hour))
	b.putKV(kvHere, "never", "3", time.Time{})
	b.wantKV(kvHere, "soon", "1")
	if n, err := b.s.ExpireKV(context.Background()); n != 0 || err != nil {
		t.Errorf("expired %d, %v", n, err)
	}
	b.later.Add(int64(2 * time.Minute))
	b.wantKV(kvHere, "soon", "")
	b.wantKV(kvHere, "later", "2")
	rows, _, err := b.s.ListKV(context.Background(), kvHere, "", "", 10, 1000)
	if err != nil || len(rows) != 2 || rows[0].Key != "later" || rows[0].ExpiresAt.IsZero() {
		t.Errorf("listed %v, %v", rows, err)
	}
	snapshot, _, err := b.s.SnapshotKV(context.Background(), kvHere, store.KVSpace{}, 0, 10, 1000)
	if err != nil || len(snapshot[0]) != 2 {
		t.Errorf("a snapshot has %v, %v", snapshot, err)
	}
	// It is made anew in its place, and is not removed with the old one.
	b.putKV(kvHere, "soon", "new", b.now().Add(time.Hour))
	b.wantKV(kvHere, "soon", "new")
	b.wantKVCount("w", 3, 3*store.KVStep)
	b.later.Add(int64(2 * time.Hour))
	if n, err := b.s.ExpireKV(context.Background()); n != 2 || err != nil {
		t.Errorf("expired %d, %v", n, err)
	}
	b.wantKVCount("w", 1, store.KVStep)
	b.wantKV(kvHere, "never", "3")
	// More than one round.
	for i := range 40 {
		b.putKV(kvHere, fmt.Sprint("x", i), "x", b.now().Add(time.Second))
	}
	b.deleteKV(kvHere, "never")
	b.later.Add(int64(time.Minute))
	if n, err := b.s.ExpireKV(context.Background()); n != 40 || err != nil {
		t.Errorf("expired %d, %v", n, err)
	}
	b.wantKVCount("w", 0, 0)
}

// keysOf lists all keys with a prefix, in pages.
func (b *bench) keysOf(prefix string, limit int, size int64) (keys []string, pages int) {
	b.t.Helper()
	for after := ""; ; {
		rows, more, err := b.s.ListKV(context.Background(), kvHere, prefix, after, limit, size)
		if err != nil || len(rows) > limit || more && len(rows) == 0 {
			b.t.Fatalf("a page of %d keys, %v, %v", len(rows), more, err)
		}
		pages++
		for _, r := range rows {
			keys = append(keys, r.Key)
			after = r.Key
		}
		if !more {
			return keys, pages
		}
	}
}

func kvListsInOrder(t *testing.T, b *bench) {
	keys := []string{
		"a", "a b", "a%b", "a_b", "aXb", "a\\b", "a/1", "a/2", "a/10", "A/1", "é", "e\u0301", "Z", "z", "~", "\U0010FFFF", "a\U0010FFFF", "a\U0010FFFFx",
		"\ud7ff", "\ue000", " ", "\n",
	}
	for _, k := range keys {
		b.putKV(kvHere, k, "v", time.Time{})
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a%", "a_", "a\\", "a/", "a/1", "é", "e", "\U0010FFFF", "a\U0010FFFF", "\ud7ff", "none", "aX", "'"} {
		var want []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		names, more, err := b.s.ListKVKeys(context.Background(), kvHere, prefix, "", 100)
		if err != nil || more || !slices.Equal(names, want) {
			t.Errorf("keys with prefix %q: %q, %v, %v, want %q", prefix, names, more, err, want)
		}
		if n := len(want); n > 2 {
			names, more, err = b.s.ListKVKeys(context.Background(), kvHere, prefix, want[0], n-2)
			if err != nil || !more || !slices.Equal(names, want[1:n-1]) {
				t.Errorf("keys with prefix %q after %q: %q, %v, %v", prefix, want[0], names, more, err)
			}
		}
		for _, limit := range []int{3, 100} {
			if got, _ := b.keysOf(prefix, limit, 1<<20); !slices.Equal(got, want) {
				t.Errorf("with prefix %q, %d at a time: %q, want %q", prefix, limit, got, want)
			}
		}
	}
}

func kvListPages(t *testing.T, b *bench) {
	for i := range 10 {
		b.putKV(kvHere, fmt.Sprint("k", i), strings.Repeat("v", 100*i), time.Time{})
	}
	for _, c := range []struct {
		limit int
		size  int64
		pages int
	}{{10, 1 << 20, 1}, {5, 1 << 20, 2}, {9, 1 << 20, 2}, {100, 1, 10}, {100, 1000, 6}, {100, 4520, 1}, {100, 4519, 2}} {
		keys, pages := b.keysOf("", c.limit, c.size)
		if len(keys) != 10 || pages != c.pages {
			t.Errorf("limit %d, %d bytes: %d keys on %d pages, want %d", c.limit, c.size, len(keys), pages, c.pages)
		}
	}
}

func kvSnapshot(t *testing.T, b *bench) {
	global := store.KVSpace{Scope: 1, Implementation: "i"}
	for i := range 3 {
		b.putKV(kvHere, fmt.Sprint("w", i), strings.Repeat("v", 98), time.Time{})
		b.putKV(global, fmt.Sprint("g", i), strings.Repeat("v", 98), time.Time{})
	}
	b.putKV(store.KVSpace{Workspace: "w", Scope: 2, Implementation: "other"}, "k", "v", time.Time{})
	err := b.s.ChangeKV(context.Background(), kvHere, "w00", kvAnyCount, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVPut, Value: []byte("of another form"), Form: 1}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.putKV(kvHere, "big", strings.Repeat("b", 100_000), time.Time{})
	rows, cut, err := b.s.SnapshotKV(context.Background(), kvHere, global, 0, 10, 1<<20)
	if err != nil || cut || len(rows[0]) != 4 || string(rows[0][0].Value) != strings.Repeat("b", 100_000) || rows[0][0].Key != "big" {
		t.Errorf("with a large value: %d keys, cut %v, %v", len(rows[0]), cut, err)
	}
	b.deleteKV(kvHere, "big")
	for _, c := range []struct {
		limit         int
		size          int64
		first, second int
		cut           bool
	}{
		{10, 1 << 20, 3, 3, false},
		{10, 600, 3, 3, false},
		{10, 599, 3, 2, true},
		{10, 300, 3, 0, true},
		{10, 299, 2, 0, true},
		{10, 0, 0, 0, true},
		{2, 1 << 20, 2, 2, true},
		{3, 1 << 20, 3, 3, false},
	} {
		rows, cut, err := b.s.SnapshotKV(context.Background(), kvHere, global, 0, c.limit, c.size)
		if err != nil || len(rows[0]) != c.first || len(rows[1]) != c.second || cut != c.cut {
			t.Errorf("%d keys, %d bytes: %d and %d, cut %v, %v, want %+v", c.limit, c.size, len(rows[0]), len(rows[1]), cut, err, c)
		}
		for part, prefix := range []string{"w", "g"} {
			for i, r := range rows[part] {
				if r.Key != fmt.Sprint(prefix, i) || len(r.Value) != 98 || r.ChangedAt.IsZero() {
					t.Errorf("key %d of part %d is %v", i, part, r)
				}
			}
		}
	}
}

func kvAccounts(t *testing.T, b *bench) {
	put := func(space store.KVSpace, key string, size int, account store.KVAccount, want error) {
		t.Helper()
		err := b.s.ChangeKV(context.Background(), space, key, account, func(time.Time, *store.KVRow) (store.KVChange, error) {
			return store.KVChange{Verb: store.KVPut, Value: bytes.Repeat([]byte("v"), size)}, nil
		})
		if !errors.Is(err, want) {
			t.Errorf("%q of %d bytes: %v, want %v", key, size, err, want)
		}
	}
	few := store.KVAccount{Name: "a", Keys: 2, Bytes: 4 * store.KVStep}
	put(kvHere, "1", 10, few, nil)
	put(kvHere, "2", 10, few, nil)
	put(kvHere, "3", 10, few, store.ErrFull)
	b.wantKV(kvHere, "3", "")
	b.wantKVCount("a", 2, 2*store.KVStep)
	put(kvHere, "1", 2*store.KVStep+1, few, nil)
	put(kvHere, "2", store.KVStep+1, few, store.ErrFull)
	put(kvHere, "2", store.KVStep-1, few, nil) // it grows, and counts the same
	b.wantKVCount("a", 2, 4*store.KVStep)
	// What is there stays with its account, whoever changes it, and may become
	// less beyond the limit.
	put(kvHere, "1", 3*store.KVStep, store.KVAccount{Name: "b"}, nil)
	b.wantKVCount("a", 2, 5*store.KVStep)
	b.wantKVCount("b", 0, 0)
	put(kvHere, "1", 3*store.KVStep-1, few, nil)
	b.wantKVCount("a", 2, 4*store.KVStep)
	b.deleteKV(kvHere, "1")
	b.deleteKV(kvHere, "1")
	put(store.KVSpace{Scope: 9}, "elsewhere", 10, few, nil)
	b.wantKVCount("a", 2, 2*store.KVStep)
	if _, err := b.s.ExpireKV(context.Background()); err != nil {
		t.Error(err)
	}
	b.wantKVCount("a", 2, 2*store.KVStep)
}

func kvRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	put := func(time.Time, *store.KVRow) (store.KVChange, error) { return store.KVChange{Verb: store.KVPut}, nil }
	for _, bad := range []string{"a\x00b", "\xff"} {
		_, _, err1 := b.s.GetKV(ctx, kvHere, bad)
		err2 := b.s.ChangeKV(ctx, kvHere, bad, kvAnyCount, put)
		err3 := b.s.ChangeKV(ctx, store.KVSpace{Owner: bad}, "k", kvAnyCount, put)
		_, _, err4 := b.s.ListKV(ctx, kvHere, bad, "", 1, 1)
		_, _, err5 := b.s.ListKV(ctx, kvHere, "", bad, 1, 1)
		_, _, err6 := b.s.SnapshotKV(ctx, kvHere, store.KVSpace{Implementation: bad}, 0, 1, 1)
		_, err7 := b.s.PurgeKV(ctx, bad)
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
			if !errors.Is(err, store.ErrText) {
				t.Errorf("call %d with %q: %v", i+1, bad, err)
			}
		}
	}
	// An error of the change comes back as it is and undoes all.
	b.putKV(kvHere, "k", "v", time.Time{})
	no := errors.New("no")
	err := b.s.ChangeKV(ctx, kvHere, "k", kvAnyCount, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVDelete}, no
	})
	if !errors.Is(err, no) || errors.Is(err, store.ErrUncertain) {
		t.Errorf("got %v", err)
	}
	b.wantKV(kvHere, "k", "v")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.s.ChangeKV(canceled, kvHere, "k", kvAnyCount, put); err == nil || errors.Is(err, store.ErrUncertain) {
		t.Errorf("a change that was given up before it began: %v", err)
	}
	b.wantKV(kvHere, "k", "v")
}

func kvPurge(t *testing.T, b *bench) {
	mine := []store.KVSpace{{Scope: 5, Owner: "o"}, {Workspace: "w", Scope: 6, Implementation: "i", Owner: "o"}, {Workspace: "x", Scope: 9, Owner: "o"}}
	for _, space := range mine {
		b.putKV(space, "k", "v", time.Time{})
	}
	b.putKV(mine[0], "old", "v", b.now().Add(time.Second))
	b.later.Add(int64(time.Minute))
	b.putKV(kvHere, "k", "v", time.Time{})
	b.putKV(store.KVSpace{Scope: 5, Owner: "p"}, "k", "v", time.Time{})
	if n, err := b.s.PurgeKV(context.Background(), ""); n != 0 || err != nil {
		t.Errorf("nobody had %d, %v", n, err)
	}
	if n, err := b.s.PurgeKV(context.Background(), "o"); n != 3 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	for _, space := range mine {
		b.wantKV(space, "k", "")
	}
	b.wantKV(kvHere, "k", "v")
	b.wantKVCount("w", 2, 2*store.KVStep)
}

func kvOfDeletedWorkspaces(t *testing.T, b *bench) {
	ctx := context.Background()
	other := store.KVSpace{Workspace: "wx", Scope: 2, Implementation: "i"}
	global := store.KVSpace{Scope: 1, Implementation: "i"}
	for _, name := range []string{"w", "wx"} {
		if _, _, err := b.s.CreateWorkspace(ctx, name, "o"); err != nil {
			t.Fatal(err)
		}
	}
	for _, space := range []store.KVSpace{kvHere, other, global} {
		b.putKV(space, "k", "v", time.Time{})
	}
	if _, err := b.s.PurgeWorkspaces(ctx); err != nil {
		t.Fatal(err)
	}
	b.wantKV(kvHere, "k", "v")
	if deleted, err := b.s.DeleteWorkspace(ctx, "w"); !deleted || err != nil {
		t.Fatal(deleted, err)
	}
	if _, err := b.s.PurgeWorkspaces(ctx); err != nil {
		t.Fatal(err)
	}
	b.wantKV(kvHere, "k", "")
	b.wantKV(other, "k", "v")
	b.wantKV(global, "k", "v")
	b.wantKVCount("w", 2, 2*store.KVStep)
}

// Fifty at once, of whom some make the key and some find it, and none counts
// too few.
func raceOfKVCounters(t *testing.T, b *bench) {
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := b.s.ChangeKV(context.Background(), kvHere, "n", kvAnyCount, func(_ time.Time, row *store.KVRow) (store.KVChange, error) {
				n := 0
				if row != nil {
					n, _ = strconv.Atoi(string(row.Value))
				}
				return store.KVChange{Verb: store.KVPut, Value: []byte(strconv.Itoa(n + 1))}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.wantKV(kvHere, "n", "50")
	b.wantKVCount("w", 1, store.KVStep)
}

// Those who make, remove and expire keys of one account at the same time leave
// its count right, and do not lock each other out.
func raceOfKVMakers(t *testing.T, b *bench) {
	var wg sync.WaitGroup
	made := make([]int, 8)
	for i := range made {
		wg.Go(func() {
			for n := range 12 {
				key := fmt.Sprint("k", (i*3+n)%5)
				err := b.s.ChangeKV(context.Background(), kvHere, key, kvAnyCount, func(now time.Time, row *store.KVRow) (store.KVChange, error) {
					if row != nil {
						return store.KVChange{Verb: store.KVDelete}, nil
					}
					return store.KVChange{Verb: store.KVPut, Value: []byte(key), ExpiresAt: now.Add(time.Duration(n%3-1) * time.Hour)}, nil
				})
				if err != nil {
					t.Error(err)
				}
				if n%4 == 0 {
					if _, err := b.s.ExpireKV(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if _, err := b.s.ExpireKV(context.Background()); err != nil {
		t.Fatal(err)
	}
	keys, _ := b.keysOf("", 100, 1<<20)
	b.wantKVCount("w", int64(len(keys)), int64(len(keys))*store.KVStep)
}
