package storetest

import (
	"cmp"
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
)

var storedTests = []test{
	{"StoredIsReplaced", storedIsReplaced},
	{"StoredNeverFalls", storedNeverFalls},
	{"StoredOfAnotherWidth", storedOfAnotherWidth},
	{"StoredRefusals", storedRefusals},
	{"StoredByMany", storedByMany},
	{"RaceOfSavers", raceOfSavers},
}

// anybody is later than every save: whoever has saved, and whenever, this one
// may.
func anybody() time.Time { return time.Now().Add(time.Hour) }

func row(slot int64, workspace string, bytes int64) store.StoredBytes {
	return store.StoredBytes{Slot: slot, Workspace: workspace, Bytes: bytes, First: uint64(slot * 100), Last: uint64(slot*100 + 99)}
}

func (b *bench) saveStored(position uint64, oldest int64, want bool, rows ...store.StoredBytes) {
	b.t.Helper()
	got, err := b.s.SaveStored(context.Background(), 1, store.StoredUsage{Width: time.Minute, Position: position, Rows: rows}, oldest, anybody())
	if err != nil || got != want {
		b.t.Fatalf("SaveStored at %d = %v, %v, want %v", position, got, err, want)
	}
}

func (b *bench) wantStored(position uint64, rows ...store.StoredBytes) {
	b.t.Helper()
	u, ok, err := b.s.LoadStored(context.Background(), 1)
	if err != nil || !ok {
		b.t.Fatalf("LoadStored = %v, %v", ok, err)
	}
	slices.SortFunc(u.Rows, func(a, b store.StoredBytes) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), strings.Compare(a.Workspace, b.Workspace))
	})
	if u.Position != position || !slices.Equal(u.Rows, rows) {
		b.t.Errorf("at %d: %+v, want %d: %+v", u.Position, u.Rows, position, rows)
	}
}

func storedIsReplaced(t *testing.T, b *bench) {
	if _, ok, err := b.s.LoadStored(context.Background(), 1); ok || err != nil {
		t.Errorf("an empty store: %v, %v", ok, err)
	}
	b.saveStored(0, 0, true)
	b.wantStored(0)
	b.saveStored(10, 0, true, row(1, "a", 5), row(1, "b", 7), row(2, "a", 9))
	b.saveStored(20, 2, true, row(2, "a", 90), row(3, "b", 1), row(3, "", 2))
	b.wantStored(20, row(2, "a", 90), row(3, "", 2), row(3, "b", 1))
	if _, ok, _ := b.s.LoadStored(context.Background(), 0); ok {
		t.Error("another partition has rows")
	}
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.wantStored(20, row(2, "a", 90), row(3, "", 2), row(3, "b", 1))
	if err := b.s.ResetStored(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	b.saveStored(3, 0, true, row(9, "a", 1))
	b.wantStored(3, row(9, "a", 1))
}

func storedNeverFalls(_ *testing.T, b *bench) {
	b.saveStored(10, 0, true, row(1, "a", 5))
	b.saveStored(10, 0, false, row(1, "a", 6))
	b.saveStored(9, 0, false, row(1, "a", 4))
	saved, err := b.s.SaveStored(context.Background(), 1, store.StoredUsage{Width: time.Minute, Position: 11, Rows: []store.StoredBytes{row(1, "a", 7)}}, 0, time.Now().Add(-time.Hour))
	if saved || err != nil {
		b.t.Errorf("soon after another one: %v, %v", saved, err)
	}
	b.wantStored(10, row(1, "a", 5))
}

func storedOfAnotherWidth(t *testing.T, b *bench) {
	b.saveStored(10, 0, true, row(1, "a", 5), row(70, "a", 5))
	u := store.StoredUsage{Width: time.Hour, Position: 11, Rows: []store.StoredBytes{row(1, "a", 10)}}
	if saved, err := b.s.SaveStored(context.Background(), 1, u, 0, anybody()); !saved || err != nil {
		t.Fatal(saved, err)
	}
	b.wantStored(11, row(1, "a", 10))
	if u, _, _ := b.s.LoadStored(context.Background(), 1); u.Width != time.Hour {
		t.Errorf("the width is %v", u.Width)
	}
}

func storedRefusals(t *testing.T, b *bench) {
	for what, u := range map[string]store.StoredUsage{
		"position": {Position: math.MaxInt64 + 1},
		"offset":   {Position: 1, Rows: []store.StoredBytes{{Last: math.MaxInt64 + 1}}},
		"text":     {Position: 1, Rows: []store.StoredBytes{{Workspace: "a\x00"}}},
	} {
		_, err := b.s.SaveStored(context.Background(), 1, u, 0, anybody())
		if !errors.Is(err, store.ErrRange) && !errors.Is(err, store.ErrText) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, ok, err := b.s.LoadStored(context.Background(), 1); ok || err != nil {
		t.Errorf("something was done: %v", err)
	}
}

func storedByMany(_ *testing.T, b *bench) {
	var rows []store.StoredBytes
	for i := range 2000 {
		rows = append(rows, row(int64(i/1000), fmt.Sprintf("w%03d", i%1000), int64(i)))
	}
	b.saveStored(5, 0, true, rows...)
	b.wantStored(5, rows...)
}

func raceOfSavers(_ *testing.T, b *bench) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			u := store.StoredUsage{Width: time.Minute, Position: uint64(i + 1), Rows: []store.StoredBytes{row(1, "a", int64(i+1)), row(1, "b", int64(i+1))}}
			if _, err := b.s.SaveStored(context.Background(), 1, u, 0, anybody()); err != nil {
				b.t.Error(err)
			}
		})
	}
	wg.Wait()
	b.wantStored(16, row(1, "a", 16), row(1, "b", 16))
}
