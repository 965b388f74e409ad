package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// twoCell measures the delay from a sender on one gateway to a receiver on
// another: a message goes through gRPC as in the relay, and through the log as
// in raw.
func twoCell(o options, l load) cell {
	l.Rate, l.Duration = o.rate, o.latency
	return cell{
		Name: cellTwo, Title: fmt.Sprintf("1 → 1 across two gateways, %d msg/s", o.rate), Load: l,
		Systems: []string{nameRelay, nameRabbitMQ, nameRaw}, setup: secondStart, takes: l.Warmup + l.Duration + betweenRuns,
		open: func(ctx context.Context, s *site, c cell, _ int) (stage, error) { return openTwo(ctx, s, c.Load, true) },
	}
}

// foreignCell measures what a gateway pays for messages that concern none of
// its sessions: it has none, while a pair on another gateway is saturated.
func foreignCell(l load) cell {
	l.Duration *= 2 // the kernel counts CPU time in ticks
	return cell{
		Name: cellForeign, Title: "1 → 1, saturated, beside a second gateway", Load: l,
		Systems: []string{nameRelay, nameRabbitMQ}, setup: secondStart, takes: l.Warmup + l.Duration + betweenRuns,
		open: func(ctx context.Context, s *site, c cell, _ int) (stage, error) {
			return openTwo(ctx, s, c.Load, false)
		},
	}
}

const secondStart = 3 * time.Second

// two is a second gateway beside the one that all cells measure.
type two struct {
	site   *site
	load   load
	second *child
	across bool // receivers connect to the second
}

func openTwo(ctx context.Context, s *site, l load, across bool) (stage, error) {
	how := s.commands[nameRabbitMQ]
	c, err := s.child(ctx, "second", append(slices.Clone(how.environ), instance("b")), how.command[0], how.command[1:]...)
	if err != nil {
		return nil, err
	}
	return &two{s, l, c, across}, nil
}

// instance is the setting that tells the gateways of a site apart.
func instance(name string) string { return "AETHER_INSTANCE_ID=bench-" + name }

func (t *two) close() error {
	t.site.end(t.second)
	return nil
}

func (t *two) run(ctx context.Context, system string, _ int) (outcome, error) {
	if system != nameRabbitMQ {
		return t.site.systems[system].run(ctx, t.load)
	}
	pair := t.pair(*t.site.systems[system].(*server))
	return pair.run(ctx, t.load)
}

// pair is the first gateway, with the second beside or behind it.
func (t *two) pair(first server) *server {
	both := first
	both.cpu = append(slices.Clone(first.cpu), process{roleSecond, func() int { return t.second.pid }})
	if t.across {
		both.senders = &first.target
		both.addr = t.second.addr
	}
	return &both
}

const roleSecond = "second"

// What two gateways are held to.
const (
	ceilingTwo = 1.2 // times what relay and raw take, one after the other
	// budgetForeign is the CPU time of a foreign message, in µs: with it
	// 100,000 messages per second take 0.15 of a core on every other gateway.
	budgetForeign = 1.5
)

// sums adds two series, round by round.
func sums(a, b []float64) []float64 {
	var values []float64
	for i := range min(len(a), len(b)) {
		values = append(values, a[i]+b[i])
	}
	return values
}

// across are the figures of two gateways.
func (r *report) across() []row {
	var rows []row
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		of := oneWay(p.p)
		base := sums(r.rounds(cellTwo, nameRelay, of), r.rounds(cellTwo, nameRaw, of))
		w := compare("gateway, one way across two, "+p.name, "µs", r.rounds(cellTwo, nameRabbitMQ, of), "relay + raw", base)
		w.Samples = r.samples(cellTwo, nameRabbitMQ, func(o *outcome) int { return len(o.OneWay) })
		if p.p == 0.5 {
			w.AtMost = ceilingTwo
		}
		rows = append(rows, w)
	}
	foreign := r.rounds(cellForeign, nameRabbitMQ, perMessage(roleSecond))
	w := compare("CPU per foreign message: second gateway", "µs", foreign, "budget", repeated(budgetForeign, len(foreign)))
	w.AtMost = 1
	return append(rows, w, compare("  the same", "µs", foreign, "relay", r.rounds(cellForeign, nameRelay, perMessage("server"))))
}
