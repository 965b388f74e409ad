package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// TestSameAsLocal: whatever is asked for in whatever order, leases in Redis,
// over two gateways, are those that one process would have.
func TestSameAsLocal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w, m := settled(t, 2)
			model := local.New(w.Now)
			h := &presencetest.Handler{}
			if err := model.Start(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			same(t, rand.New(rand.NewPCG(seed, 7)), m, model, h)
		})
	}
}

var modelNames = []string{"agent::x", "agent::y", "event::*", "event::a", "event::a::*", "event::a::b", "wf::1"}

func same(t *testing.T, r *rand.Rand, m []*member, model *local.Leases, h *presencetest.Handler) {
	type pair struct {
		real, model presence.Lease
		at          *member
	}
	var pairs []pair
	var ids []string
	any := func() string {
		if len(ids) == 0 || r.IntN(10) == 0 {
			return "nobody"
		}
		return ids[max(0, len(ids)-8)+r.IntN(min(len(ids), 8))]
	}
	beats := func() {
		for _, g := range m {
			g.beats(t)
		}
	}
	for step := range 150 {
		g := m[r.IntN(len(m))]
		switch op := r.IntN(10); {
		case op < 6:
			c := presence.Claim{SessionID: fmt.Sprint("s", step)}
			for range 1 + r.IntN(3) {
				c.Names = append(c.Names, modelNames[r.IntN(len(modelNames))])
			}
			if op < 3 {
				c.Resume = any()
			}
			if r.IntN(2) == 0 {
				answer := func(context.Context) ([]byte, bool) { return []byte("exact " + c.SessionID), true }
				h.OnYield(c.SessionID, answer)
				g.OnYield(c.SessionID, answer)
			}
			want, wantErr := model.Claim(t.Context(), c)
			got, err := g.Claim(t.Context(), c)
			var heldWant, held *presence.HeldError
			if errors.Is(err, presence.ErrHeld) != errors.Is(wantErr, presence.ErrHeld) || (err == nil) != (wantErr == nil) ||
				errors.As(err, &held) && errors.As(wantErr, &heldWant) && slices.Equal(c.Names, []string{"agent::x"}) && held.SessionID != heldWant.SessionID {
				t.Fatalf("step %d: claim %+v: got %v, want %v", step, c, err, wantErr)
			}
			if got.Resumed != want.Resumed || got.Exact != want.Exact || !bytes.Equal(got.Watermark, want.Watermark) || got.Lease.Epoch != want.Lease.Epoch {
				t.Fatalf("step %d: claim %+v:\ngot  %+v %q\nwant %+v %q", step, c, got, got.Watermark, want, want.Watermark)
			}
			if err == nil {
				ids = append(ids, c.SessionID)
				pairs = append(pairs, pair{got.Lease, want.Lease, g})
			}
		case op == 6 && len(pairs) > 0:
			p := pairs[r.IntN(len(pairs))]
			if err := errors.Join(model.Release(t.Context(), p.model), p.at.Release(t.Context(), p.real)); err != nil {
				t.Fatal(err)
			}
			if !p.real.Lost() {
				beats()
			}
		case op == 7 && len(pairs) > 0:
			p := pairs[r.IntN(len(pairs))]
			model.Confirm(p.model)
			p.at.Confirm(p.real)
			beats()
		case op == 8 && len(pairs) > 0:
			p := pairs[r.IntN(len(pairs))]
			mark := fmt.Append(nil, "mark ", step)
			if err := errors.Join(model.Mark(p.model, mark), p.at.Mark(p.real, mark)); err != nil {
				t.Fatal(err)
			}
			beats()
		default:
			id := any()
			want, wantErr := model.Find(t.Context(), id)
			got, err := g.Find(t.Context(), id)
			if (err == nil) != (wantErr == nil) || got.SessionID != want.SessionID || got.Epoch != want.Epoch || got.Ended != want.Ended || !slices.Equal(got.Names, want.Names) {
				t.Fatalf("step %d: find %s: got %+v, %v, want %+v, %v", step, id, got, err, want, wantErr)
			}
		}
		for _, p := range pairs {
			if p.real.Lost() && !p.model.Lost() {
				t.Fatalf("step %d: %s is lost", step, p.real.SessionID)
			}
		}
	}
	for _, p := range pairs {
		if p.model.Lost() {
			presencetest.Eventually(t, p.real.SessionID+" is lost", func() bool {
				beats()
				return p.real.Lost()
			})
		}
	}
	for _, name := range modelNames {
		want, held := model.Lookup(name)
		for _, g := range m {
			presencetest.Eventually(t, "the directory knows "+name, func() bool {
				beats()
				got, ok := g.Lookup(name)
				return ok == held && got.SessionID == want.SessionID && got.Epoch == want.Epoch
			})
		}
	}
}
