package main

import (
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	quick, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := duration(plan(quick), quick.rounds); d > 100*time.Second {
		t.Errorf("the quick measurement takes %s", d)
	}
	full, err := parseFlags([]string{"-full"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range plan(full) {
		if c.Load.Rate > 0 && c.Load.Rate*int(c.Load.Duration/time.Second) < enough {
			t.Errorf("%s: a round is too short for a p99", c.Title)
		}
	}
	few, err := parseFlags([]string{"-systems", "relay,gateway", "-cells", "one,default", "-rounds", "3", "-throughput", "1s"})
	if err != nil {
		t.Fatal(err)
	}
	cells := plan(few)
	if len(cells) != 2 || len(cells[0].Systems) != 2 || len(cells[1].Systems) != 1 || few.rounds != 3 || cells[0].Load.Duration != time.Second {
		t.Errorf("got %+v", cells)
	}
	for _, bad := range [][]string{{"-systems", "x"}, {"-cells", "one,"}, {"-rounds", "-1"}, {"-payload", "0"}, {"-waiting", "0"}, {"-foreign", "-1"}, {"-strangers", "0"}, {"-mute", "-1"}, {"left over"}} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
