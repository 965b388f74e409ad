package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a run of this program found.
type report struct {
	Facts   facts
	Results []result
}

// row is one judged figure. Value and Against are medians of the rounds;
// Ratio is the median of the rounds' own ratios, so that a machine that gets
// slower for a while counts for both.
type row struct {
	Measure string
	Value   float64
	Unit    string
	Against string // the baseline
	Base    float64
	Ratio   float64
	// AtLeast and AtMost are what the ratio is held to; 0 is nothing.
	AtLeast, AtMost float64
	Spread          float64
	Samples         int

	known bool // although it may be 0
}

// verdict is "ok", "MISSED", or "" for what is only shown.
func (r *row) verdict() string {
	switch {
	case r.AtLeast == 0 && r.AtMost == 0, r.Base == 0: // held to nothing, or the baseline was left out
		return ""
	case r.Ratio == 0 || r.Ratio < r.AtLeast || r.AtMost > 0 && r.Ratio > r.AtMost:
		return "MISSED"
	}
	return "ok"
}

func (r *row) floor() string {
	switch {
	case r.AtLeast > 0:
		return fmt.Sprintf("≥ %.2f", r.AtLeast)
	case r.AtMost > 0:
		return fmt.Sprintf("≤ %.2f", r.AtMost)
	}
	return ""
}

// What the gateway is held to.
const (
	floorBound   = 0.6 // of the bound
	ceilingRelay = 1.5 // times the relay's latency
	ceilingRules = 2   // times a decision with few rules
)

// compare makes a row of a series and its baseline, one value of each for each
// round.
func compare(measure, unit string, values []float64, against string, base []float64) row {
	r := row{Measure: measure, Unit: unit, Value: median(values), Against: against, Base: median(base), Spread: spread(values)}
	var ratios []float64
	for i := range min(len(values), len(base)) {
		ratios = append(ratios, ratio(values[i], base[i]))
	}
	r.Ratio = median(ratios)
	return r
}

// rounds returns a figure of each round of a system in a cell.
func (r *report) rounds(cell, system string, of func(*outcome) float64) []float64 {
	var values []float64
	for _, result := range r.Results {
		if result.Cell.Name != cell {
			continue
		}
		for i := range result.Rounds[system] {
			values = append(values, of(&result.Rounds[system][i]))
		}
	}
	return values
}

func throughput(o *outcome) float64 { return o.perSecond() }

func oneWay(p float64) func(*outcome) float64 {
	return func(o *outcome) float64 { return float64(percentile(o.OneWay, p)) / 1e3 }
}

func receipt(p float64) func(*outcome) float64 {
	return func(o *outcome) float64 { return float64(percentile(o.Receipt, p)) / 1e3 }
}

// bounds is the bound of each round.
func bounds(relay, raw []float64) []float64 {
	var values []float64
	for i := range min(len(relay), len(raw)) {
		values = append(values, bound(relay[i], raw[i]))
	}
	return values
}

// rows are all figures, in the order of the report.
func (r *report) rows() []row {
	var rows []row
	add := func(w row) {
		if w.Value > 0 || w.known {
			rows = append(rows, w)
		}
	}
	relay, raw := r.rounds(cellOne, nameRelay, throughput), r.rounds(cellOne, nameRaw, throughput)
	limit := bounds(relay, raw)
	for _, base := range []struct {
		name   string
		values []float64
	}{{"relay, 1 → 1", relay}, {"raw, 1 → 1", raw}, {"bound, 1 → 1", limit}} {
		add(compare(base.name, "msg/s", base.values, "", nil))
	}
	one := compare("gateway, 1 → 1", "msg/s", r.rounds(cellOne, nameRabbitMQ, throughput), "bound", limit)
	one.AtLeast = floorBound
	add(one)
	add(compare("  with 256 unacknowledged", "msg/s", r.rounds(cellDefault, nameRabbitMQ, throughput), "bound", limit))
	add(compare("  with message ids", "msg/s", r.rounds(cellIDs, nameRabbitMQ, throughput), "bound", limit))
	add(compare("embedded, 1 → 1", "msg/s", r.rounds(cellOne, nameEmbedded, throughput), "relay", relay))
	add(compare("  with 256 unacknowledged", "msg/s", r.rounds(cellDefault, nameEmbedded, throughput), "relay", relay))
	add(compare("  with message ids", "msg/s", r.rounds(cellIDs, nameEmbedded, throughput), "relay", relay))
	many := r.rounds(cellMany, nameRelay, throughput)
	add(compare("relay, 8 → 8", "msg/s", many, "", nil))
	add(compare("gateway, 8 → 8", "msg/s", r.rounds(cellMany, nameRabbitMQ, throughput), "bound", bounds(many, raw)))
	add(compare("embedded, 8 → 8", "msg/s", r.rounds(cellMany, nameEmbedded, throughput), "relay", many))
	for _, group := range [][]row{r.delays(), r.costs(), r.across(), r.returns(), r.arrivals(), r.memories(), r.remains(), r.decisions(), r.snapshots(), r.reported(), r.onBehalf(), r.tasked(), r.begun()} {
		for _, w := range group {
			add(w)
		}
	}
	return rows
}

// samples is how many samples the last round of a system in a cell has.
func (r *report) samples(cell, system string, of func(*outcome) int) int {
	n := 0
	for _, result := range r.Results {
		if rounds := result.Rounds[system]; result.Cell.Name == cell && len(rounds) > 0 {
			n = of(&rounds[len(rounds)-1])
		}
	}
	return n
}

// delays are the figures of runs at a rate.
func (r *report) delays() []row {
	var rows []row
	samples := func(w row, system string, of func(*outcome) int) {
		w.Samples = r.samples(cellPaced, system, of)
		rows = append(rows, w)
	}
	ways := func(o *outcome) int { return len(o.OneWay) }
	receipts := func(o *outcome) int { return len(o.Receipt) }
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		relay := r.rounds(cellPaced, nameRelay, oneWay(p.p))
		samples(compare("relay, one way, "+p.name, "µs", relay, "", nil), nameRelay, ways)
		samples(compare("raw, one way, "+p.name, "µs", r.rounds(cellPaced, nameRaw, oneWay(p.p)), "", nil), nameRaw, ways)
		for _, name := range []string{nameRabbitMQ, nameEmbedded} {
			w := compare(name+", one way, "+p.name, "µs", r.rounds(cellPaced, name, oneWay(p.p)), "relay", relay)
			if name == nameRabbitMQ && p.name == "p50" {
				w.AtMost = ceilingRelay
			}
			samples(w, name, ways)
		}
	}
	confirm := r.rounds(cellPaced, nameRaw, receipt(0.5))
	samples(compare("raw, confirm, p50", "µs", confirm, "", nil), nameRaw, receipts)
	for _, name := range []string{nameRabbitMQ, nameEmbedded} {
		samples(compare(name+", receipt, p50", "µs", r.rounds(cellPaced, name, receipt(0.5)), "raw", confirm), name, receipts)
	}
	return rows
}

// perMessage is the CPU time in µs that a role used for each message.
func perMessage(role string) func(*outcome) float64 {
	return func(o *outcome) float64 { return ratio(float64(o.CPU[role])/1e3, float64(o.Messages)) }
}

// costs are CPU times and allocations per message, of the saturated pair.
func (r *report) costs() []row {
	var rows []row
	per := perMessage
	relay := r.rounds(cellOne, nameRelay, per("server"))
	rows = append(rows, compare("CPU per message: relay", "µs", relay, "", nil))
	for _, name := range []string{nameRabbitMQ, nameEmbedded} {
		rows = append(rows, compare("CPU per message: "+name, "µs", r.rounds(cellOne, name, per("server")), "relay", relay))
	}
	raw := r.rounds(cellOne, nameRaw, per("broker"))
	rows = append(rows,
		compare("CPU per message: broker with raw", "µs", raw, "", nil),
		compare("CPU per message: broker with gateway", "µs", r.rounds(cellOne, nameRabbitMQ, per("broker")), "raw", raw),
		compare("CPU per message: clients of relay", "µs", r.rounds(cellOne, nameRelay, per("clients")), "", nil),
		compare("CPU per message: clients of gateway", "µs", r.rounds(cellOne, nameRabbitMQ, per("clients")), "", nil))
	for _, result := range r.Results {
		for _, name := range []string{nameRabbitMQ, nameEmbedded} {
			rows = append(rows, compare("allocations per message: "+name+", "+result.Cell.Title, "", result.Allocs[name], "", nil))
		}
	}
	return rows
}

// faulty reports whether a system other than by being slow has failed.
func (r *report) faulty() bool {
	for _, result := range r.Results {
		for _, rounds := range result.Rounds {
			if slices.ContainsFunc(rounds, func(o outcome) bool { return o.Faults.any() }) {
				return true
			}
		}
	}
	return false
}

// text is the report as it is printed.
func (r *report) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\tvalue\tspread\tbaseline\tratio\tfloor\t")
	few := false
	for _, row := range r.rows() {
		name, base, quotient := row.Measure, "", ""
		if row.Base > 0 {
			base = row.Against + " " + number(row.Base)
			quotient = fmt.Sprintf("%.2f", row.Ratio)
		}
		if strings.Contains(name, "p99") && row.Samples < enough {
			few, name = true, name+" *"
		}
		fmt.Fprintf(w, "%s\t%s %s\t±%.0f %%\t%s\t%s\t%s\t%s\n", name, number(row.Value), row.Unit, row.Spread*50, base, quotient, row.floor(), row.verdict())
	}
	w.Flush()
	if few {
		fmt.Fprintf(&b, "* from fewer than %d samples: too few for a p99\n", enough)
	}
	b.WriteString("\n" + r.notes() + "\n" + r.Facts.String())
	return b.String()
}

// notes tell what was checked beside the figures.
func (r *report) notes() string {
	var b strings.Builder
	var messages, overslept, sends uint64
	for _, result := range r.Results {
		for _, name := range result.Cell.Systems {
			for _, o := range result.Rounds[name] {
				messages += o.Messages
				if result.Cell.Load.Rate > 0 {
					sends += o.Messages
					overslept += o.Overslept
				}
				if o.Faults.any() {
					fmt.Fprintf(&b, "FAULTS of %s in %q: %s\n", name, result.Cell.Title, o.Faults)
				}
			}
		}
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "%d messages checked: none lost, repeated, out of order or refused\n", messages)
	}
	if overslept > 0 {
		fmt.Fprintf(&b, "%d of %d timed sends went more than 5 ms too late: the machine is busy with something else\n", overslept, sends)
	}
	return b.String()
}

// number writes a figure with about three digits.
func number(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0f k", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// micros rounds to microseconds, for people.
func micros(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
