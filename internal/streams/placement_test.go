package streams_test

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/streams"
)

func TestPlacementByHash(t *testing.T) {
	t.Parallel()
	p := streams.Placement{Partitions: 4}
	counts := make([]int, 4)
	for i := range 8000 {
		address := fmt.Sprintf("ag::default::worker::%d", i)
		h := fnv.New64a()
		_, _ = h.Write([]byte(address))
		n := p.Of(address)
		if want := int(h.Sum64() % 4); n != want {
			t.Fatalf("%s is in %d, want %d", address, n, want)
		}
		counts[n]++
	}
	for i, n := range counts {
		if n < 1500 || n > 2500 {
			t.Errorf("partition %d has %d of 8000 addresses", i, n)
		}
	}
}

func TestPlacementAllocatesNothing(t *testing.T) {
	p := streams.Placement{Partitions: 4, Rules: []streams.Rule{{HasPrefix: "ev::"}}}
	if n := testing.AllocsPerRun(100, func() { p.Of("ag::default::worker::1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPlacementByRule(t *testing.T) {
	t.Parallel()
	p := streams.Placement{Partitions: 2, Rules: []streams.Rule{
		{Equals: "ag::busy::one"},
		{HasPrefix: "ev::"},
		{HasPrefix: "ag::busy::"},
	}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if n := p.Count(); n != 5 {
		t.Errorf("there are %d partitions, want 5", n)
	}
	for address, want := range map[string]int{
		"ag::busy::one": 2, "ev::x": 3, "ev::": 3, "ag::busy::one::more": 4, "ag::busy::two": 4,
	} {
		if n := p.Of(address); n != want {
			t.Errorf("%s is in %d, want %d", address, n, want)
		}
	}
	for _, address := range []string{"ag::busy", "ev:", "", "ag::other::one"} {
		if n := p.Of(address); n > 1 {
			t.Errorf("%q is in %d, of a rule", address, n)
		}
	}
}

func TestPlacementStreamNames(t *testing.T) {
	t.Parallel()
	p := streams.Placement{Partitions: 3, Rules: []streams.Rule{{HasPrefix: strings.Repeat("long", 200)}}}
	seen := map[string]bool{}
	for i := range p.Count() {
		name := p.StreamName(i)
		if len(name) > 255 || seen[name] {
			t.Errorf("partition %d is called %q", i, name)
		}
		seen[name] = true
	}
	if got := p.StreamName(2) + " " + p.StreamName(3); got != "aether.p0002 aether.r0000" {
		t.Errorf("the streams are called %s", got)
	}
}

func TestPlacementFingerprint(t *testing.T) {
	t.Parallel()
	rule := func(equals, prefix string) streams.Rule { return streams.Rule{Equals: equals, HasPrefix: prefix} }
	seen := map[string]int{}
	for i, p := range []streams.Placement{
		{Partitions: 1},
		{Partitions: 4},
		{Partitions: 4, Rules: []streams.Rule{rule("a", "")}},
		{Partitions: 4, Rules: []streams.Rule{rule("", "a")}},
		{Partitions: 4, Rules: []streams.Rule{rule("", "a"), rule("", "b")}},
		{Partitions: 4, Rules: []streams.Rule{rule("", "b"), rule("", "a")}},
		{Partitions: 4, Rules: []streams.Rule{rule("", "a\" \"b")}},
	} {
		if j, ok := seen[p.Fingerprint()]; ok {
			t.Errorf("placements %d and %d have the same fingerprint", i, j)
		}
		seen[p.Fingerprint()] = i
	}
	// A deployment keeps it for life: it must not change with the code.
	if got, want := (streams.Placement{Partitions: 4}).Fingerprint(), "p4-r0-20811cbce54999e0"; got != want {
		t.Errorf("the fingerprint is %s, want %s", got, want)
	}
}

func TestPlacementValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    streams.Placement
		want []string
	}{
		{streams.Placement{Partitions: 1}, nil},
		{streams.Placement{}, []string{"at least 1"}},
		{streams.Placement{Partitions: -1}, []string{"at least 1"}},
		{streams.Placement{Partitions: 5000}, []string{"at most"}},
		{
			streams.Placement{Rules: []streams.Rule{{}, {Equals: "a", HasPrefix: "b"}, {HasPrefix: strings.Repeat("x", 2000)}}},
			[]string{"at least 1", "rule 0 must", "rule 1 must", "rule 2 is longer"},
		},
		{
			streams.Placement{Partitions: 1, Rules: []streams.Rule{{HasPrefix: "a"}, {Equals: "ab"}, {HasPrefix: "ac"}, {Equals: "b"}, {Equals: "b"}, {HasPrefix: "b"}}},
			[]string{"rule 1 (\"ab\") is never reached: rule 0", "rule 2 (\"ac\") is never reached: rule 0", "rule 4 (\"b\") is never reached: rule 3"},
		},
	} {
		err := c.p.Validate()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%+v: %v", c.p, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: lacks %q", err, want)
			}
		}
	}
}

func TestPlacementZero(t *testing.T) {
	t.Parallel()
	var p streams.Placement
	if p.Of("ag::x") != 0 || p.Count() != 1 {
		t.Errorf("the zero placement has %d partitions", p.Count())
	}
}
