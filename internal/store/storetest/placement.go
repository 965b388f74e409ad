package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
)

var placementTests = []test{
	{"PlacementIsSetOnce", placementIsSetOnce},
	{"PlacementIsReplaced", placementIsReplaced},
	{"PlacementRefusals", placementRefusals},
	{"RaceOfPlacements", raceOfPlacements},
	{"RaceOfReplacements", raceOfReplacements},
}

func (b *bench) settle(fingerprint, want string) {
	b.t.Helper()
	if got, err := b.s.SettlePlacement(context.Background(), fingerprint); err != nil || got != want {
		b.t.Errorf("SettlePlacement(%q) = %q, %v, want %q", fingerprint, got, err, want)
	}
}

func (b *bench) replace(from, to string, want bool) {
	b.t.Helper()
	if got, err := b.s.ReplacePlacement(context.Background(), from, to); err != nil || got != want {
		b.t.Errorf("ReplacePlacement(%q, %q) = %v, %v, want %v", from, to, got, err, want)
	}
}

// Delivery rule C9.
func placementIsSetOnce(t *testing.T, b *bench) {
	b.settle("p4-r0-aa", "p4-r0-aa")
	b.settle("p8-r0-bb", "p4-r0-aa")
	b.settle("p4-r0-aa", "p4-r0-aa")
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.settle("p8-r0-bb", "p4-r0-aa")
}

func placementIsReplaced(_ *testing.T, b *bench) {
	b.replace("", "p8", false) // there is none
	b.settle("p4", "p4")
	b.replace("p5", "p8", false)
	b.settle("p8", "p4")
	b.replace("p4", "p8", true)
	b.replace("p4", "p8", true) // repeated
	b.replace("p4", "p9", false)
	b.settle("p4", "p8")
}

func placementRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	_, settleErr := b.s.SettlePlacement(ctx, "a\x00")
	_, fromErr := b.s.ReplacePlacement(ctx, "\xff", "a")
	_, toErr := b.s.ReplacePlacement(ctx, "a", "\xff")
	for _, err := range []error{settleErr, fromErr, toErr} {
		if !errors.Is(err, store.ErrText) {
			t.Errorf("%v, want ErrText", err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, settleErr = b.s.SettlePlacement(cancelled, "a")
	replaced, replaceErr := b.s.ReplacePlacement(cancelled, "a", "b")
	if !errors.Is(settleErr, context.Canceled) || !errors.Is(replaceErr, context.Canceled) || replaced {
		t.Errorf("%v, %v, %v, want context.Canceled", settleErr, replaced, replaceErr)
	}
	b.settle("odd 日本語 '\"", "odd 日本語 '\"")
}

// Gateways of several placements that start together all get the same one.
func raceOfPlacements(t *testing.T, b *bench) {
	const gateways = 8
	got := make([]string, gateways)
	fns := make([]func(), gateways)
	for g := range fns {
		fns[g] = func() {
			var err error
			if got[g], err = b.s.SettlePlacement(context.Background(), fmt.Sprint("p", g)); err != nil {
				t.Error(err)
			}
		}
	}
	together(fns...)
	for g := range got {
		if got[g] == "" || got[g] != got[0] {
			t.Errorf("gateways got %q", got)
			break
		}
	}
	b.settle("another", got[0])
}

// Of two operators one wins.
func raceOfReplacements(t *testing.T, b *bench) {
	b.settle("p1", "p1")
	const operators = 6
	won := make([]bool, operators)
	fns := make([]func(), operators)
	for o := range fns {
		fns[o] = func() {
			var err error
			if won[o], err = b.s.ReplacePlacement(context.Background(), "p1", fmt.Sprint("to ", o)); err != nil {
				t.Error(err)
			}
		}
	}
	together(fns...)
	winners := 0
	for o, w := range won {
		if w {
			winners++
			b.settle("p1", fmt.Sprint("to ", o))
		}
	}
	if winners != 1 {
		t.Errorf("%d won", winners)
	}
}
