package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var ruleTests = []test{
	{"NoRules", noRules},
	{"AddAndRemoveRules", addAndRemoveRules},
	{"SameRule", sameRule},
	{"RulesLimit", rulesLimit},
	{"RuleTexts", ruleTexts},
	{"RuleRefusals", ruleRefusals},
	{"RulesAreTold", rulesAreTold},
	{"RulesLast", rulesLast},
	{"RulesCancelled", rulesCancelled},
	{"RaceOfRules", raceOfRules},
}

const manyRules = 10_000

func denies(principal, address string) store.Rule {
	return store.Rule{Effect: "deny", Principal: principal, Action: "send", Address: address, Grammar: "strict", CreatedBy: "op", Note: "why"}
}

func (b *bench) addRule(r store.Rule) store.Rule {
	b.t.Helper()
	got, added, err := b.s.AddRule(context.Background(), r, manyRules)
	if err != nil || !added || got.ID <= 0 || time.Since(got.CreatedAt).Abs() > time.Hour {
		b.t.Fatalf("AddRule: %+v, %v, %v", got, added, err)
	}
	return got
}

// wantRules checks the rules and returns their version.
func (b *bench) wantRules(want ...store.Rule) int64 {
	b.t.Helper()
	got, version, err := b.s.Rules(context.Background())
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		b.t.Errorf("Rules: %v %s", err, diff)
	}
	if alone, err := b.s.RulesVersion(context.Background()); alone != version || err != nil {
		b.t.Errorf("RulesVersion: %d, %v, want %d", alone, err, version)
	}
	return version
}

func noRules(t *testing.T, b *bench) {
	if v := b.wantRules(); v != 0 {
		t.Errorf("version %d", v)
	}
	if r, removed, err := b.s.RemoveRule(context.Background(), 1); removed || err != nil || r != (store.Rule{}) {
		t.Errorf("%+v, %v, %v", r, removed, err)
	}
	b.wantRules()
}

func addAndRemoveRules(t *testing.T, b *bench) {
	ctx := context.Background()
	versions := []int64{b.wantRules()}
	one := b.addRule(denies("ag::w::i::s", "ga::w"))
	versions = append(versions, b.wantRules(one))
	allow := denies("ag::w::i::s", "ga::w")
	allow.Effect, allow.ID, allow.CreatedAt = "allow", 99, time.Unix(1, 0)
	two := b.addRule(allow)
	versions = append(versions, b.wantRules(one, two))
	if two.ID <= one.ID {
		t.Errorf("ids %d, %d", one.ID, two.ID)
	}
	got, removed, err := b.s.RemoveRule(ctx, one.ID)
	if diff := cmp.Diff(one, got); !removed || err != nil || diff != "" {
		t.Errorf("RemoveRule: %v, %v %s", removed, err, diff)
	}
	versions = append(versions, b.wantRules(two))
	if _, removed, err := b.s.RemoveRule(ctx, one.ID); removed || err != nil {
		t.Errorf("removed again: %v, %v", removed, err)
	}
	three := b.addRule(denies("ag::w::i::s", "ga::w"))
	versions = append(versions, b.wantRules(two, three))
	if three.ID <= two.ID {
		t.Errorf("id %d after %d", three.ID, two.ID)
	}
	if !slices.IsSorted(versions) || len(slices.Compact(versions)) != 5 {
		t.Errorf("versions %v", versions)
	}
}

// Who added a rule and why does not make it another one.
func sameRule(t *testing.T, b *bench) {
	one := b.addRule(denies("p", "a"))
	version := b.wantRules(one)
	again := denies("p", "a")
	again.CreatedBy, again.Note = "other", "otherwise"
	got, added, err := b.s.AddRule(context.Background(), again, 1)
	if diff := cmp.Diff(one, got); added || err != nil || diff != "" {
		t.Errorf("%v, %v %s", added, err, diff)
	}
	if v := b.wantRules(one); v != version {
		t.Errorf("nothing changed, and version %d became %d", version, v)
	}
	list := []store.Rule{one}
	for _, change := range []func(*store.Rule){
		func(r *store.Rule) { r.Effect = "allow" },
		func(r *store.Rule) { r.Principal = "P" },
		func(r *store.Rule) { r.Action = "observe" },
		func(r *store.Rule) { r.Address = "a " },
		func(r *store.Rule) { r.Grammar = "subtree" },
	} {
		other := denies("p", "a")
		change(&other)
		if other.Same(one) {
			t.Errorf("%+v is the same as %+v", other, one)
		}
		list = append(list, b.addRule(other))
	}
	b.wantRules(list...)
}

func rulesLimit(t *testing.T, b *bench) {
	ctx := context.Background()
	one, two := b.addRule(denies("p", "1")), b.addRule(denies("p", "2"))
	for _, limit := range []int{-1, 0, 1, 2} {
		if r, added, err := b.s.AddRule(ctx, denies("p", "3"), limit); !errors.Is(err, store.ErrFull) || added || r != (store.Rule{}) {
			t.Errorf("limit %d: %+v, %v, %v", limit, r, added, err)
		}
	}
	version := b.wantRules(one, two)
	if _, _, err := b.s.RemoveRule(ctx, one.ID); err != nil {
		t.Fatal(err)
	}
	three, _, err := b.s.AddRule(ctx, denies("p", "3"), 2)
	if err != nil {
		t.Fatal(err)
	}
	if v := b.wantRules(two, three); v <= version {
		t.Errorf("version %d after %d", v, version)
	}
}

// Names that look like statements or paths are texts.
func ruleTexts(_ *testing.T, b *bench) {
	var list []store.Rule
	for _, text := range append([]string{"'); drop table rules; --", "../../etc/passwd", "%s"}, odd...) {
		r := denies(text, text+"x")
		r.Action, r.Grammar, r.CreatedBy, r.Note = text, text, text, text
		list = append(list, b.addRule(r))
	}
	b.wantRules(list...)
}

func ruleRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []string{"a\x00b", "\xff"} {
		for _, change := range []func(*store.Rule){
			func(r *store.Rule) { r.Principal = bad },
			func(r *store.Rule) { r.Action = bad },
			func(r *store.Rule) { r.Address = bad },
			func(r *store.Rule) { r.Grammar = bad },
			func(r *store.Rule) { r.CreatedBy = bad },
			func(r *store.Rule) { r.Note = bad },
		} {
			r := denies("p", "a")
			change(&r)
			if _, added, err := b.s.AddRule(ctx, r, manyRules); !errors.Is(err, store.ErrText) || added {
				t.Errorf("%+v: %v, %v", r, added, err)
			}
		}
	}
	for _, effect := range []string{"", "DENY", "none"} {
		r := denies("p", "a")
		r.Effect = effect
		if _, added, err := b.s.AddRule(ctx, r, manyRules); !errors.Is(err, store.ErrEffect) || added {
			t.Errorf("effect %q: %v, %v", effect, added, err)
		}
	}
	b.wantRules()
}

// Who follows rules is told of each change, by any gateway.
func rulesAreTold(t *testing.T, b *bench) {
	changed, stop := b.s.Follow(store.SubjectRules)
	defer stop()
	await(t, changed)
	has := func(n int) func() bool {
		return func() bool {
			list, _, err := b.s.Rules(context.Background())
			return err == nil && len(list) == n
		}
	}
	one := b.addRule(denies("p", "a"))
	seen(t, changed, has(1))
	if _, _, err := b.s.RemoveRule(context.Background(), one.ID); err != nil {
		t.Fatal(err)
	}
	seen(t, changed, has(0))
}

func rulesLast(_ *testing.T, b *bench) {
	one := b.addRule(denies("p", "a"))
	if err := b.s.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.s = b.open()
	b.wantRules(one, b.addRule(denies("p", "b")))
}

func rulesCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, addErr := b.s.AddRule(ctx, denies("p", "a"), manyRules)
	_, _, removeErr := b.s.RemoveRule(ctx, 1)
	_, _, listErr := b.s.Rules(ctx)
	_, versionErr := b.s.RulesVersion(ctx)
	for what, err := range map[string]error{"AddRule": addErr, "RemoveRule": removeErr, "Rules": listErr, "RulesVersion": versionErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
}

// Of many that add at once no more than the limit get in, and who reads a
// version has all that it counts.
func raceOfRules(t *testing.T, b *bench) {
	ctx := context.Background()
	const each, limit = 8, 20
	var got, full atomic.Int64
	var fns []func()
	for g := range 4 {
		fns = append(fns, func() {
			for i := range each {
				_, added, err := b.s.AddRule(ctx, denies(fmt.Sprint("p", g), fmt.Sprint("a", i)), limit)
				switch {
				case errors.Is(err, store.ErrFull):
					full.Add(1)
				case err != nil || !added:
					t.Errorf("%v, %v", added, err)
				default:
					got.Add(1)
				}
			}
		})
	}
	fns = append(fns, func() {
		for range 20 {
			list, version, err := b.s.Rules(ctx)
			if err != nil || int64(len(list)) < min(version, limit) {
				t.Errorf("version %d shows %d rules, %v", version, len(list), err)
			}
		}
	})
	together(fns...)
	if got.Load() != limit || full.Load() != 4*each-limit {
		t.Errorf("%d were added, %d refused", got.Load(), full.Load())
	}
}
