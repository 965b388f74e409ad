package wiring

import (
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/subject"
)

func parsed(t *testing.T, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The most particular declaration counts.
func TestTableOf(t *testing.T) {
	declared := func(ring int) Settings {
		s := Defaults()
		s.Ring = ring
		return s
	}
	table := NewTable([]Topic{
		{Workspace: "w", Settings: declared(1)},
		{Prefix: address.PrefixAllAgents, Settings: declared(2)},
		{Prefix: address.PrefixAllAgents, Workspace: "w", Settings: declared(3)},
		{Address: parsed(t, "ga::x"), Settings: declared(4)},
		{Prefix: address.PrefixMetric, Settings: declared(5)},
	})
	for name, want := range map[string]int{
		"ga::w": 3, "ga::v": 2, "ga::x": 4, "gu::w": 1, "gu::v": 0, "uw::u::w": 1, "metric::*": 5, "metric::w": 5, "us::w::1": 0,
	} {
		got := 0
		if s := table.Of(parsed(t, name)); s != nil {
			got = s.Ring
		}
		if got != want {
			t.Errorf("%s has %d, want %d", name, got, want)
		}
	}
	if (*Table)(nil).Of(parsed(t, "ga::w")) != nil || new(Table).Of(parsed(t, "ga::w")) != nil {
		t.Error("nothing is declared, and something is found")
	}
	if n := testing.AllocsPerRun(100, func() { table.Of(table.addresses["ga::x"].Address) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRouteTakes(t *testing.T) {
	t.Parallel()
	filter, err := subject.Compile(subject.Strict, "order.*")
	if err != nil {
		t.Fatal(err)
	}
	source := func(s string) Source {
		from, why := ParseSource(s)
		if why != "" {
			t.Fatal(why)
		}
		return from
	}
	for _, test := range []struct {
		r              Route
		topic, subject string
		want           bool
	}{
		{Route{From: source("ag::w")}, "ag::w::i::s", "", true},
		{Route{From: source("ag::w")}, "ag::ww::i::s", "", false},
		{Route{From: source("ag::w::i::s")}, "ag::w::i::s", "", true},
		{Route{From: source("metric::*")}, "metric::receiver0", "", true},
		{Route{From: source("ga::w"), Filter: filter}, "ga::w", "order.made", true},
		{Route{From: source("ga::w"), Filter: filter}, "ga::w", "", false},
		{Route{From: source("ga::w"), Filter: filter}, "ga::w", "order.made.x", false},
	} {
		if got := test.r.Takes([]byte(test.topic), []byte(test.subject)); got != test.want {
			t.Errorf("%s takes %s %q: %t", test.r.From, test.topic, test.subject, got)
		}
	}
	if got := (&Route{From: source("ag::v"), To: parsed(t, "ga::w")}).Covers().String(); got != "v,w" {
		t.Errorf("covers %s", got)
	}
}

// One cycle is reported for each set of routes that lie in circles together.
func TestFindCycles(t *testing.T) {
	t.Parallel()
	one := func(id, from, to string) Pipeline { return Pipeline{id, []string{from}, []string{to}} }
	got := FindCycles([]Pipeline{
		one("1", "a", "b"), one("2", "b", "c"), one("3", "c", "a"), one("4", "c", "d"), one("5", "d", "d"), one("6", "d", "e"),
	}, nil)
	want := [][]string{{"topic:a", "1", "topic:b", "2", "topic:c", "3", "topic:a"}, {"topic:d", "5", "topic:d"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v", got)
	}
}
