package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// cell is one measurement: a load that is put on some systems in turn, several
// times over.
type cell struct {
	Name    string
	Title   string
	Load    load
	Systems []string
	// open prepares what the cell needs beside its systems, and how it
	// measures them; nil: the load on each system is all. Setup and takes are
	// about how long that takes, and a round of one system.
	open         func(ctx context.Context, s *site, c cell, rounds int) (stage, error)
	setup, takes time.Duration
}

// stage is a cell's own way of measuring its systems.
type stage interface {
	// run measures a system once. The rounds count from 0.
	run(ctx context.Context, system string, round int) (outcome, error)
	close() error
}

// result is what the rounds of a cell showed, by system.
type result struct {
	Cell   cell
	Rounds map[string][]outcome
	// Allocs is how many allocations the gateway made per message, in rounds
	// that were profiled.
	Allocs map[string][]float64
}

// Names of the cells.
const (
	cellOne     = "one"
	cellDefault = "default"
	cellIDs     = "ids"
	cellMany    = "many"
	cellPaced   = "paced"
	cellRules   = "rules"
	// Those below run only when they are named, or with -full.
	cellTwo       = "two"
	cellForeign   = "foreign"
	cellReconnect = "reconnect"
	cellStrangers = "strangers"
	cellMute      = "mute"
	cellChurn     = "churn"
	cellKeys      = "keys"
	cellProgress  = "progress"
	cellGrants    = "grants"
	cellTasks     = "tasks"
	cellStarts    = "starts"
)

// usual are the cells of a run that names none.
var usual = []string{cellOne, cellDefault, cellIDs, cellMany, cellPaced, cellRules}

// every is all of them.
var every = append(slices.Clone(usual), cellTwo, cellForeign, cellReconnect, cellStrangers, cellMute, cellChurn, cellKeys, cellProgress, cellGrants, cellTasks, cellStarts)

// plan lists the cells.
func plan(o options) []cell {
	saturated := load{Pairs: 1, Payload: o.payload, Window: o.window, Unacked: max(o.window, 1000), Warmup: o.warmup, Duration: o.throughput}
	standard := saturated
	standard.Unacked = 256
	ids := saturated
	ids.IDs = true
	many := saturated
	many.Pairs = 8
	paced := saturated
	paced.Rate, paced.Duration = o.rate, o.latency
	gateways := []string{nameRabbitMQ, nameEmbedded}
	all := []cell{
		{Name: cellOne, Title: "1 → 1, saturated", Load: saturated, Systems: []string{nameRelay, nameRabbitMQ, nameRaw, nameEmbedded}},
		{Name: cellDefault, Title: "1 → 1, saturated, 256 unacknowledged", Load: standard, Systems: gateways},
		{Name: cellIDs, Title: "1 → 1, saturated, with message ids", Load: ids, Systems: gateways},
		{Name: cellMany, Title: "8 → 8, saturated", Load: many, Systems: []string{nameRelay, nameRabbitMQ, nameEmbedded}},
		{Name: cellPaced, Title: fmt.Sprintf("1 → 1, %d msg/s", o.rate), Load: paced, Systems: []string{nameRelay, nameRabbitMQ, nameRaw, nameEmbedded}},
		rulesCell(), twoCell(o, saturated), foreignCell(saturated),
		reconnectCell(o, saturated), strangersCell(o, saturated), muteCell(o, saturated), churnCell(o, saturated), keysCell(), progressCell(), grantsCell(), tasksCell(), startsCell(),
	}
	names := o.cells
	if len(names) == 0 && !o.full {
		names = usual
	}
	var chosen []cell
	for _, c := range all {
		if !o.wants(names, c.Name) {
			continue
		}
		var systems []string
		for _, name := range c.Systems {
			if o.wants(o.systems, name) {
				systems = append(systems, name)
			}
		}
		if c.Systems = systems; len(systems) > 0 {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// betweenRuns is for connecting and leaving.
const betweenRuns = 200 * time.Millisecond

// duration is how long the plan takes, about.
func duration(cells []cell, rounds int) time.Duration {
	var d time.Duration
	for _, c := range cells {
		if c.open != nil {
			d += c.setup + time.Duration(len(c.Systems)*rounds)*c.takes
			continue
		}
		d += time.Duration(len(c.Systems)*rounds) * (c.Load.Warmup + c.Load.Duration + betweenRuns)
	}
	return d
}

// measure runs the rounds of a cell, the systems taking turns.
func (s *site) measure(ctx context.Context, c cell, rounds int, log io.Writer) (r result, err error) {
	r = result{Cell: c, Rounds: map[string][]outcome{}, Allocs: map[string][]float64{}}
	once := func(name string, round int) (outcome, float64, error) { return s.once(ctx, c, name, round == rounds-1) }
	if c.open != nil {
		st, err := c.open(ctx, s, c, rounds)
		if err != nil {
			return r, fmt.Errorf("%s: %w", c.Title, err)
		}
		defer func() { err = errors.Join(err, st.close()) }()
		once = func(name string, round int) (outcome, float64, error) {
			o, err := st.run(ctx, name, round)
			return o, 0, err
		}
	}
	for round := range rounds {
		for _, name := range c.Systems {
			o, allocs, err := once(name, round)
			if err != nil {
				return r, fmt.Errorf("%s: %w", c.Title, err)
			}
			r.Rounds[name] = append(r.Rounds[name], o)
			if allocs > 0 {
				r.Allocs[name] = append(r.Allocs[name], allocs)
			}
			fmt.Fprintf(log, "%-40s round %d/%d  %-9s %s\n", c.Title, round+1, rounds, name, o.brief())
		}
	}
	return r, nil
}

// brief is an outcome in a line.
func (o *outcome) brief() string {
	text := fmt.Sprintf("%8.0f msg/s", o.perSecond())
	switch {
	case o.ManyRules > 0:
		return fmt.Sprintf("%.0f ns with %d rules, %.0f ns with %d", o.FewRules, fewRules, o.ManyRules, manyRules)
	case o.Tasks > 0:
		return fmt.Sprintf("%.0f tasks/s", o.Tasks)
	case o.Reports > 0:
		return fmt.Sprintf("%.0f reports/s, %.0f broadcasts/s", o.Reports, o.Broadcasts)
	case o.Granted > 0:
		return fmt.Sprintf("%.0f msg/s under a grant, %.0f without", o.Granted, o.Ungranted)
	case o.Starts > 0:
		return fmt.Sprintf("%.0f starts/s", o.Starts)
	case len(o.Keyed) > 0:
		return fmt.Sprintf("p50 %v with %d keys, %v without any", micros(percentile(o.Keyed, 0.5)), manyKeys, micros(percentile(o.Keyless, 0.5)))
	case o.Before.Memory > 0:
		return fmt.Sprintf("%s before, %s after; %.0f a second", kibibytes(float64(o.Before.Memory)), kibibytes(float64(o.After.Memory)), o.perSecond())
	case o.Idle > 0:
		text = fmt.Sprintf("%s a session, %s more with messages that it does not read", kibibytes(o.Idle), kibibytes(o.Full))
	case len(o.First) > 0:
		text = fmt.Sprintf("first after p50 %v, at most %v", micros(percentile(o.First, 0.5)), micros(percentile(o.First, 1)))
		if o.Elapsed > 0 {
			text += fmt.Sprintf("; %.0f msg/s", o.perSecond())
		}
	case len(o.OneWay) > 0:
		text = fmt.Sprintf("one way p50 %v, receipt p50 %v, %d samples", micros(percentile(o.OneWay, 0.5)), micros(percentile(o.Receipt, 0.5)), len(o.OneWay))
	}
	if o.Faults.any() {
		text += "  FAULTS: " + o.Faults.String()
	}
	return text
}

// once runs a load once. The last run of a gateway that can be profiled is.
func (s *site) once(ctx context.Context, c cell, name string, last bool) (o outcome, allocs float64, err error) {
	system := s.systems[name]
	profiled := s.profiles[name]
	if profiled == nil {
		o, err = system.run(ctx, c.Load)
		return o, 0, err
	}
	file, err := filepath.Abs(filepath.Join(s.options.profile, name+"-"+c.Name))
	if err != nil {
		return o, 0, err
	}
	var before, after uint64
	gateway := *system.(*server)
	gateway.measured = func(begin bool) error {
		counter := &after
		if begin {
			counter = &before
		}
		var errs []error
		if last && !begin {
			_, err := profiled.ask("end " + file)
			errs = append(errs, err)
		}
		text, err := profiled.ask("mallocs")
		errs = append(errs, err)
		if err == nil {
			*counter, err = strconv.ParseUint(text, 10, 64)
			errs = append(errs, err)
		}
		if last && begin {
			_, err := profiled.ask("profile " + file)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	o, err = gateway.run(ctx, c.Load)
	return o, ratio(float64(after-before), float64(o.Messages)), err
}
