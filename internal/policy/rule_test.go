package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/subject"
)

func rule(effect, principal, action, address, grammar string) store.Rule {
	return store.Rule{Effect: effect, Principal: principal, Action: action, Address: address, Grammar: grammar}
}

func compiled(t testing.TB, id int64, r store.Rule) *Rule {
	t.Helper()
	r.ID = id
	c, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	good := rule("deny", "ag::w::i::s", "send", "ga::w", "strict")
	if _, err := Compile(good); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("a::", 20) + "a"
	cases := []struct {
		field  string
		change func(*store.Rule)
	}{
		{"effect", func(r *store.Rule) { r.Effect = "" }},
		{"effect", func(r *store.Rule) { r.Effect = "Deny" }},
		{"action", func(r *store.Rule) { r.Action = "publish" }},
		{"action", func(r *store.Rule) { r.Action = "unknown" }},
		{"grammar", func(r *store.Rule) { r.Grammar = "" }},
		{"grammar", func(r *store.Rule) { r.Grammar = "segmented" }},
		{"principal", func(r *store.Rule) { r.Principal = "" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::::i::s" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::w::" }},
		{"principal", func(r *store.Rule) { r.Principal = "::w" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::w::i::s*" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::w::i::#" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::w::i::>" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::w::i::a b" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag:::w" }},
		{"principal", func(r *store.Rule) { r.Principal = "agent::w::i::s" }},
		{"principal", func(r *store.Rule) { r.Principal = "ga::w" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::\xff" }},
		{"principal", func(r *store.Rule) { r.Principal = "ag::" + strings.Repeat("x", 129) }},
		{"principal", func(r *store.Rule) { r.Principal = strings.Repeat("*::", 86) + "*" }},
		{"principal", func(r *store.Rule) { r.Principal = deep }},
		{"address", func(r *store.Rule) { r.Address = "" }},
		{"address", func(r *store.Rule) { r.Address = "GA::w" }},
		{"address", func(r *store.Rule) { r.Address = "orc::i::s" }},
		{"address", func(r *store.Rule) { r.Address = "/etc/passwd" }},
		{"address", func(r *store.Rule) { r.Address = "ga::w; drop table rules" }},
		{"address", func(r *store.Rule) { r.Address = "ga.w" }},
		{"note", func(r *store.Rule) { r.Note = strings.Repeat("x", MaxNote+1) }},
		{"note", func(r *store.Rule) { r.Note = "two\nlines" }},
		{"created_by", func(r *store.Rule) { r.CreatedBy = "\xff" }},
	}
	for _, c := range cases {
		r := good
		c.change(&r)
		_, err := Compile(r)
		var bad *InvalidError
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%+v: %v, want the %s refused", r, err, c.field)
			continue
		}
		if len(err.Error()) > 400 {
			t.Errorf("%d bytes of error: %v", len(err.Error()), err)
		}
	}
}

// Names that look like statements or paths are names.
func TestCompileTakesOddNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"';drop-table-rules;--", "../../etc/passwd", "$1", "%s", "ünï", "a:b", "-", "receiver"} {
		r := compiled(t, 1, rule("deny", "ag::w::i::"+name, "send", "ag::w::"+name+"::*", "strict"))
		if !r.Matches("ag::w::i::"+name, acl.ActionSend, "ag::w::"+name+"::s") {
			t.Errorf("%q is not matched", name)
		}
		for _, other := range []string{name + "x", "x" + name, strings.ToUpper(name) + "'"} {
			if r.Matches("ag::w::i::"+other, acl.ActionSend, "ag::w::"+name+"::s") {
				t.Errorf("%q is matched by %q", other, name)
			}
		}
	}
	// What other parts define the names of may be anything.
	compiled(t, 1, rule("deny", "*::*", "kv:read", "workspace::prod::secrets", "subtree"))
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	others := []*Rule{
		compiled(t, 1, rule("deny", "ag::w::i::*", "send", "ag::w::*", "subtree")),
		compiled(t, 2, rule("allow", "ag::w::i::1", "send", "br::*::*", "strict")),
		compiled(t, 3, rule("deny", "ag::*", "observe", "*::*", "subtree")),
		compiled(t, 4, rule("allow", "us::u::*", "send", "sv::*", "subtree")),
	}
	cases := []struct {
		r     store.Rule
		codes []string
		about []int64
	}{
		{rule("allow", "ag::w::i::2", "send", "sv::i::s", "strict"), nil, nil},
		{rule("deny", "ag::w::*::*", "send", "ga::*", "strict"), nil, nil},
		{rule("deny", "*::*", "send", "*::*", "subtree"), []string{Contradicts}, []int64{2, 4}},
		{rule("deny", "ag::w::*", "send", "ga::w", "strict"), []string{MeantAsSubtree, MatchesNothing}, nil},
		{rule("deny", "wfe::*", "send", "ag::w::*", "strict"), []string{MeantAsSubtree, MatchesNothing}, nil},
		{rule("deny", "wfe::*", "send", "*::w::*", "strict"), []string{MeantAsSubtree}, nil},
		{rule("deny", "*", "send", "ga::w", "strict"), []string{MatchesNothing}, nil},
		{rule("deny", "*", "send", "ga::w", "subtree"), []string{MatchesNothing}, nil},
		{rule("deny", "wfe::*", "send", "ga", "subtree"), []string{MatchesNothing}, nil},
		{rule("deny", "wfe::*", "send", "ga::w::x", "subtree"), []string{MatchesNothing}, nil},
		{rule("deny", "wfe::*", "kv:read", "w::*", "strict"), []string{MeantAsSubtree}, nil},
		{rule("allow", "ag::w::i::1", "send", "pg::w", "strict"), []string{OpensNothing}, nil},
		{rule("allow", "ag::w::j::1", "send", "metric::*", "subtree"), []string{OpensNothing}, nil},
		{rule("allow", "us::v::*", "send", "event::w", "strict"), []string{OpensNothing}, nil},
		{rule("allow", "*::v::*", "send", "event::w", "subtree"), nil, nil},
		{rule("allow", "wfe::1", "send", "event::w", "strict"), nil, nil},
		{rule("allow", "metrics::1", "send", "sv::i::s", "strict"), nil, nil},
		{rule("allow", "ag::w::i::1", "send", "ag::w::i::s", "strict"), []string{Contradicts}, []int64{1}},
		{rule("deny", "ag::w::i::1", "send", "br::slack::1", "strict"), []string{Contradicts}, []int64{2}},
		{rule("deny", "ag::w::i::1", "send", "ag::w::i::s", "strict"), []string{Covered}, []int64{1}},
		{rule("deny", "ag::w::i::1", "observe", "br::slack::1", "strict"), []string{Covered}, []int64{3}},
	}
	for _, c := range cases {
		var codes []string
		var about []int64
		for _, w := range Warnings(compiled(t, 99, c.r), others) {
			codes, about = append(codes, w.Code), append(about, w.Rules...)
			if w.Text == "" {
				t.Errorf("%s has no text", w.Code)
			}
		}
		if !slices.Equal(codes, c.codes) || !slices.Equal(about, c.about) {
			t.Errorf("%+v: %v about %v, want %v about %v", c.r, codes, about, c.codes, c.about)
		}
	}
	if w := Warnings(others[0], others); len(w) != 0 {
		t.Errorf("a rule beside itself: %v", w)
	}
	var many []*Rule
	for id := range int64(50) {
		many = append(many, compiled(t, id+1, rule("allow", "*::*", "send", "sv::*", "subtree")))
	}
	if w := Warnings(compiled(t, 99, rule("deny", "us::u::w", "send", "sv::i::s", "strict")), many); len(w) != 1 || len(w[0].Rules) != manyIDs ||
		!strings.Contains(w[0].Text, "50 other rules") {
		t.Errorf("many contradictions: %v", w)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("deny", "ag::w::i::*", "send", "ga::w", "strict")
	f.Add("allow", "*::*", "kv:read", "x::y", "subtree")
	f.Fuzz(func(t *testing.T, effect, principal, action, address, grammar string) {
		r, err := Compile(rule(effect, principal, action, address, grammar))
		if err != nil {
			var bad *InvalidError
			if !errors.As(err, &bad) || r != nil {
				t.Fatalf("%v, %v", r, err)
			}
			return
		}
		Warnings(r, []*Rule{r})
		s := NewSet([]*Rule{r})
		if got, want := s.EffectOn(principal, r.action, address) != acl.NoEffect, r.Matches(principal, r.action, address); got != want {
			t.Fatalf("the tree says %v, the patterns %v", got, want)
		}
		if g := r.principal.Grammar(); g != subject.Strict && g != subject.Subtree {
			t.Fatalf("grammar %s", g)
		}
	})
}
