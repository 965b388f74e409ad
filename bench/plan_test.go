package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

func names(cells []cell) []string {
	var list []string
	for _, c := range cells {
		list = append(list, c.Name)
	}
	return list
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, usual},
		{[]string{"-full"}, every},
		{[]string{"-full", "-cells", "one"}, []string{cellOne}},
		{[]string{"-cells", "mute,one"}, []string{cellOne, cellMute}},
		{[]string{"-systems", "raw"}, []string{cellOne, cellPaced}},
	} {
		o, err := parseFlags(c.args)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(plan(o)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.args, got, c.want)
		}
	}
}

// scripted is a stage that counts.
type scripted struct {
	ran    []string
	closed int
	fails  error
}

func (s *scripted) run(_ context.Context, system string, round int) (outcome, error) {
	s.ran = append(s.ran, system)
	return outcome{First: []time.Duration{time.Duration(round + 1)}}, s.fails
}

func (s *scripted) close() error {
	s.closed++
	return nil
}

func TestStage(t *testing.T) {
	t.Parallel()
	st := &scripted{}
	c := cell{Name: "x", Title: "x", Systems: []string{"a", "b"}, setup: time.Second, takes: 2 * time.Second}
	c.open = func(_ context.Context, _ *site, of cell, rounds int) (stage, error) {
		if of.Name != "x" || rounds < 1 {
			t.Errorf("%s, %d rounds", of.Name, rounds)
		}
		return st, nil
	}
	if d := duration([]cell{c}, 2); d != 9*time.Second {
		t.Errorf("it takes %s", d)
	}
	r, err := (&site{}).measure(t.Context(), c, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(st.ran, []string{"a", "b", "a", "b"}) || st.closed != 1 || r.Rounds["b"][1].First[0] != 2 {
		t.Errorf("%v, closed %d times, %v", st.ran, st.closed, r.Rounds)
	}

	st.fails = errors.New("out of order")
	if _, err := (&site{}).measure(t.Context(), c, 1, io.Discard); !errors.Is(err, st.fails) || st.closed != 2 {
		t.Errorf("%v, closed %d times", err, st.closed)
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	o, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	full, err := parseFlags([]string{"-full"})
	if err != nil {
		t.Fatal(err)
	}
	if usual, most := retention(o), retention(full); usual < 500<<20 || most < 3_600_000*256 || most > 10<<30 {
		t.Errorf("%d, and %d with -full", usual, most)
	}
}
