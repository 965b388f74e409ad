package address

import (
	"strings"
	"testing"
)

func TestAccessors(t *testing.T) {
	t.Parallel()
	type parts struct {
		prefix                              Prefix
		mode                                Mode
		workspace, impl, spec, user, window string
		segments                            []string
	}
	cases := map[string]parts{
		"ag::w::i::s":       {PrefixAgent, Exclusive, "w", "i", "s", "", "", []string{"w", "i", "s"}},
		"tu::w::i::s":       {PrefixUniqueTask, Exclusive, "w", "i", "s", "", "", []string{"w", "i", "s"}},
		"ta::w::i::s":       {PrefixTask, Exclusive, "w", "i", "s", "", "", []string{"w", "i", "s"}},
		"tb::w::i":          {PrefixTaskBroadcast, Workers, "w", "i", "", "", "", []string{"w", "i"}},
		"us::u::win":        {PrefixUser, Exclusive, "", "", "", "u", "win", []string{"u", "win"}},
		"uw::u::w":          {PrefixUserWorkspace, Shared, "w", "", "", "u", "", []string{"u", "w"}},
		"ga::w":             {PrefixAllAgents, Shared, "w", "", "", "", "", []string{"w"}},
		"gu::w":             {PrefixAllUsers, Shared, "w", "", "", "", "", []string{"w"}},
		"pg::w":             {PrefixProgress, Shared, "w", "", "", "", "", []string{"w"}},
		"event::w":          {PrefixEvent, Exclusive, "w", "", "", "", "", []string{"w"}},
		"metric::w":         {PrefixMetric, Shared, "w", "", "", "", "", []string{"w"}},
		"metric::*":         {PrefixMetric, Shared, "", "", "", "", "", []string{"*"}},
		"metric::receiver0": {PrefixMetric, Shared, "", "", "", "", "", []string{"receiver0"}},
		"sv::i::s":          {PrefixService, Exclusive, "", "i", "s", "", "", []string{"i", "s"}},
		"br::i::s":          {PrefixBridge, Exclusive, "", "i", "s", "", "", []string{"i", "s"}},
	}
	for in, want := range cases {
		a, err := Parse(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got := parts{a.Prefix(), a.Mode(), a.Workspace(), a.Implementation(), a.Specifier(), a.UserID(), a.Window(), nil}
		if got.prefix != want.prefix || got.mode != want.mode || got.workspace != want.workspace || got.impl != want.impl ||
			got.spec != want.spec || got.user != want.user || got.window != want.window {
			t.Errorf("%s: %+v, want %+v", in, got, want)
		}
		if a.Segments() != len(want.segments) {
			t.Errorf("%s: %d segments", in, a.Segments())
		}
		for i := -1; i <= 3; i++ {
			wantSeg := ""
			if i >= 0 && i < len(want.segments) {
				wantSeg = want.segments[i]
			}
			if seg := a.Segment(i); seg != wantSeg {
				t.Errorf("%s: segment %d is %q, want %q", in, i, seg, wantSeg)
			}
		}
		if a.String() != in || a.IsZero() {
			t.Errorf("%s: String %q, IsZero %v", in, a, a.IsZero())
		}
	}

	var zero Address
	if !zero.IsZero() || zero.String() != "" || zero.Prefix() != 0 || zero.Mode() != 0 || zero.Workspace() != "" ||
		zero.Segment(0) != "" || zero.Implementation() != "" || zero.Specifier() != "" || zero.UserID() != "" || zero.Window() != "" {
		t.Error("the zero Address is not empty")
	}
	if Prefix(200).String() != "" || Prefix(200).Mode() != 0 {
		t.Error("an unknown prefix has a name or a mode")
	}
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	want := "ag tu ta tb us uw ga gu pg event metric sv br"
	var names []string
	for _, p := range Prefixes() {
		names = append(names, p.String())
		if parsePrefix(p.String()) != p {
			t.Errorf("prefix %s is not found by its name", p)
		}
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("prefixes %q, want %q", got, want)
	}
}

func TestComparable(t *testing.T) {
	t.Parallel()
	a, _ := Parse("ag::w::i::s")
	b, _ := Parse(string([]byte("ag::w::i::s")))
	c, _ := Agent("w", "i", "s")
	if a != b || a != c {
		t.Error("equal text, different values")
	}
	upper, _ := Parse("ag::W::i::s")
	composed, _ := Parse("ga::\u00e9")
	decomposed, _ := Parse("ga::e\u0301")
	if a == upper || composed == decomposed {
		t.Error("comparison is not byte for byte")
	}
	if m, _ := Parse("metric::*"); m != MetricAny() {
		t.Error("MetricAny differs from its text")
	}
	if m, _ := Parse("metric::receiver0"); m != MetricReceiver() {
		t.Error("MetricReceiver differs from its text")
	}
}
