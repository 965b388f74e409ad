package main

import (
	"strings"
	"testing"
	"time"
)

// rated returns an outcome of so many messages per second.
func rated(perSecond uint64, cpu time.Duration) outcome {
	return outcome{Messages: 2 * perSecond, Elapsed: 2 * time.Second, CPU: map[string]time.Duration{"server": cpu}}
}

func delayed(oneWay, receipt time.Duration) outcome {
	return outcome{Messages: 3, Elapsed: time.Second, OneWay: []time.Duration{oneWay, oneWay, 10 * oneWay}, Receipt: []time.Duration{receipt}}
}

func sample() report {
	paced := load{Pairs: 1, Rate: 200}
	return report{Results: []result{
		{
			Cell: cell{Name: cellOne, Title: "one", Systems: []string{nameRelay, nameRabbitMQ, nameRaw}},
			Rounds: map[string][]outcome{
				nameRelay:    {rated(100_000, time.Second), rated(50_000, time.Second), rated(100_000, time.Second)},
				nameRaw:      {rated(100_000, 0), rated(50_000, 0), rated(100_000, 0)},
				nameRabbitMQ: {rated(40_000, time.Second), rated(20_000, time.Second), rated(10_000, time.Second)},
			},
		},
		{
			Cell: cell{Name: cellPaced, Title: "paced", Systems: []string{nameRelay, nameRabbitMQ, nameRaw}, Load: paced},
			Rounds: map[string][]outcome{
				nameRelay:    {delayed(100*time.Microsecond, 0)},
				nameRaw:      {delayed(time.Millisecond, 400*time.Microsecond)},
				nameRabbitMQ: {delayed(160*time.Microsecond, 600*time.Microsecond)},
			},
		},
	}}
}

// waited is an outcome of clients that waited for what was there.
func waited(perSecond uint64, first ...time.Duration) outcome {
	return outcome{Messages: perSecond, Elapsed: time.Second, First: first, Last: []time.Duration{2 * first[len(first)-1]}}
}

func TestRowsOfWhatWaits(t *testing.T) {
	t.Parallel()
	counted := waited(10, 100*time.Millisecond, 600*time.Millisecond, 1200*time.Millisecond)
	counted.Counted = true // and none
	r := report{Results: []result{
		{Cell: cell{Name: cellReconnect}, Rounds: map[string][]outcome{
			nameRaw:      {waited(200_000, 10*time.Millisecond)},
			nameRabbitMQ: {waited(100_000, 20*time.Millisecond)},
		}},
		{Cell: cell{Name: cellStrangers}, Rounds: map[string][]outcome{
			nameRelay:    {waited(0, 50*time.Millisecond, 60*time.Millisecond, 100*time.Millisecond)},
			nameRabbitMQ: {counted},
		}},
		{Cell: cell{Name: cellMute}, Rounds: map[string][]outcome{
			nameRelay:    {{Idle: 40 << 10}},
			nameRabbitMQ: {{Idle: 50 << 10, Full: 5 << 20}},
		}},
		{Cell: cell{Name: cellChurn}, Rounds: map[string][]outcome{
			nameRabbitMQ: {{Before: footprint{100 << 20, 80, 240}, After: footprint{130 << 20, 81, 240}, Messages: 100, Elapsed: time.Second}},
		}},
	}}
	expectRows(t, &r, []wantedRow{
		{"gateway, reads what waits", 100_000, 200_000, 0.5, "MISSED"},
		{"gateway, first of what waits", 20, 10, 2, ""},
		{"relay, streams opened at once, p50", 60, 0, 0, ""},
		{"gateway, first message of new identities, p50", 600, 60, 10, ""},
		{"gateway, first message of new identities, max", 1200, 100, 12, ""},
		{"  the slowest", 1200, 1000, 1.2, "MISSED"},
		{"  all 10 of the slowest", 2400, 0, 0, ""},
		{"  passes over the log for them", 0, 0, 0, ""},
		{"gateway, memory of an idle session", 50, 40, 1.25, "ok"},
		{"  of one that does not read, in addition", 5120, 1024, 5, "MISSED"},
		{"gateway, memory after identities came and went", 130, 100, 1.3, "MISSED"},
		{"  goroutines", 81, 80, 1.0125, "ok"},
		{"  series of metrics", 240, 240, 1, "ok"},
	})
	r = sample() // without them
	for _, w := range r.rows() {
		if w.Value == 0 {
			t.Errorf("%q was not measured", w.Measure)
		}
	}
}

type wantedRow struct {
	measure            string
	value, base, ratio float64
	verdict            string
}

func expectRows(t *testing.T, r *report, want []wantedRow) {
	t.Helper()
	for _, c := range want {
		w := find(t, r, c.measure)
		if !near(w.Value, c.value) || !near(w.Base, c.base) || !near(w.Ratio, c.ratio) || w.verdict() != c.verdict {
			t.Errorf("%s: %+v, verdict %q", c.measure, w, w.verdict())
		}
	}
}

func find(t *testing.T, r *report, measure string) row {
	t.Helper()
	for _, w := range r.rows() {
		if w.Measure == measure {
			return w
		}
	}
	t.Fatalf("there is no row %q", measure)
	return row{}
}

func TestRows(t *testing.T) {
	t.Parallel()
	r := sample()
	expectRows(t, &r, []wantedRow{
		{"relay, 1 → 1", 100_000, 0, 0, ""},
		{"bound, 1 → 1", 50_000, 0, 0, ""},
		// The rounds' own ratios are 0.8, 0.8 and 0.2: a slow round of all is
		// no slow gateway.
		{"gateway, 1 → 1", 20_000, 50_000, 0.8, "ok"},
		{"gateway, one way, p50", 160, 100, 1.6, "MISSED"},
		{"gateway, one way, p99", 1600, 1000, 1.6, ""},
		{"gateway, receipt, p50", 600, 400, 1.5, ""},
		{"CPU per message: relay", 5, 0, 0, ""},
		{"CPU per message: gateway", 25, 5, 2.5, ""},
	})
	if w := find(t, &r, "gateway, one way, p99"); w.Samples != 3 {
		t.Errorf("%d samples", w.Samples)
	}
}

func near(a, b float64) bool { return a-b < 1e-6*(1+b) && b-a < 1e-6*(1+b) }

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row  row
		want string
	}{
		{row{Base: 1, Ratio: 5}, ""},
		{row{Base: 1, Ratio: 0.6, AtLeast: 0.6}, "ok"},
		{row{Base: 1, Ratio: 0.59, AtLeast: 0.6}, "MISSED"},
		{row{Base: 1, Ratio: 1.5, AtMost: 1.5}, "ok"},
		{row{Base: 1, Ratio: 1.51, AtMost: 1.5}, "MISSED"},
		{row{Base: 1, AtMost: 1.5}, "MISSED"}, // it moved nothing
		{row{AtMost: 1.5}, ""},
	} {
		if got := c.row.verdict(); got != c.want {
			t.Errorf("%+v: %q", c.row, got)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	r := sample()
	text := r.text()
	for _, want := range []string{"gateway, 1 → 1", "≥ 0.60  ok", "bound 50 k", "≤ 1.50  MISSED", "p99 *", "too few for a p99", "none lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	if r.faulty() {
		t.Error("nothing has failed")
	}

	// A fault of one round shows and fails the run, however fast it was.
	r.Results[0].Rounds[nameRabbitMQ][1].Faults.Lost = 3
	if !r.faulty() || !strings.Contains(r.text(), `FAULTS of gateway in "one": lost 3`) || strings.Contains(r.text(), "none lost") {
		t.Errorf("the fault does not show:\n%s", r.text())
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{123_456: "123 k", 1234: "1234", 12.34: "12.3", 1.234: "1.23", 0: "0.00"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s", v, got)
		}
	}
}
