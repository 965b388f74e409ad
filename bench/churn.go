package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// churnCell measures what identities leave in a gateway that come once, send a
// message to all agents and go: it must be nothing, in memory, in goroutines
// and in series of metrics.
func churnCell(o options, l load) cell {
	const perSecond = 300 // visitors, at least
	seconds := func(n int) time.Duration { return time.Duration(n/perSecond+5) * time.Second }
	return cell{
		Name: cellChurn, Title: fmt.Sprintf("%d identities come and go", o.churn), Load: l,
		Systems: []string{nameRabbitMQ}, setup: seconds(warmVisitors), takes: seconds(o.churn),
		open: func(_ context.Context, s *site, c cell, _ int) (stage, error) {
			ch := &churn{site: s, load: c.Load, visitors: o.churn, run1: runs.Add(1)}
			return ch, nil
		},
	}
}

const (
	// warmVisitors come before anything is measured: what a gateway keeps of a
	// bounded number is full by then.
	warmVisitors = 5000
	// crowd is how many visitors there are at a time.
	crowd = 16
	// pauseOfVisitor is before it tries again to connect.
	pauseOfVisitor = 500 * time.Millisecond
)

type churn struct {
	site     *site
	load     load
	visitors int // in a round
	run1     uint64
	came     atomic.Int64 // in all rounds
	repeated atomic.Int64 // connects that a busy gateway did not take at once
	opened   bool
}

// close starts the gateway that the other cells measure.
func (ch *churn) close() error {
	if !ch.opened {
		return nil
	}
	return ch.site.restart(context.Background(), nameRabbitMQ)
}

// footprint is what a process has.
type footprint struct {
	Memory             uint64 // bytes
	Goroutines, Series float64
}

func (ch *churn) run(ctx context.Context, system string, round int) (o outcome, err error) {
	if round == 0 {
		ch.opened = true
		if err := ch.site.restart(ctx, system, "AETHER_STREAMS_RECENT_BYTES=1MiB"); err != nil {
			return o, err
		}
		if err := ch.visit(ctx, system, warmVisitors, &outcome{}); err != nil {
			return o, err
		}
	}
	if o.Before, err = ch.footprint(ctx, system); err != nil {
		return o, err
	}
	begin, repeated := time.Now(), ch.repeated.Load()
	if err := ch.visit(ctx, system, ch.visitors, &o); err != nil {
		return o, err
	}
	o.Elapsed, o.Messages, o.Repeated = time.Since(begin), uint64(ch.visitors), float64(ch.repeated.Load()-repeated)
	o.After, err = ch.footprint(ctx, system)
	return o, err
}

// footprint measures when the process has come to rest.
func (ch *churn) footprint(ctx context.Context, system string) (f footprint, err error) {
	if f.Memory, err = settledMemory(ctx, ch.site.gateways[system].pid); err != nil {
		return f, err
	}
	text, ok := ch.site.scrape(ctx, system)
	if !ok {
		return f, nil // one in a child of this program has no operators' port
	}
	f.Series = float64(series(text))
	f.Goroutines, err = metric(text, "go_goroutines")
	return f, err
}

// series counts the samples in the text that Prometheus reads.
func series(text []byte) (n int) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			n++
		}
	}
	return n
}

// visit lets so many identities come that never came before.
func (ch *churn) visit(ctx context.Context, system string, n int, o *outcome) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := ch.site.systems[system].(*server).target
	wrong := make([]faults, crowd)
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			message, err := newTemplate("ga::"+workspace, ch.load.Payload, ch.run1, false)
			for err == nil && left.Add(-1) >= 0 {
				var f faults
				f, err = ch.visitor(ctx, t, message)
				wrong[i].add(f)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	for _, f := range wrong {
		o.Faults.add(f)
	}
	return context.Cause(ctx)
}

// visitor connects, sends a message, waits for its receipt and leaves.
func (ch *churn) visitor(ctx context.Context, t target, message *template) (faults, error) {
	name := fmt.Sprintf("visitor-%d-%d", ch.run1, ch.came.Add(1))
	f, err := t.feeder(ctx, name, 1)
	for begin := time.Now(); grpcstatus.Code(err) == codes.Unavailable && time.Since(begin) < patience; {
		ch.repeated.Add(1)
		pause := time.NewTimer(pauseOfVisitor)
		select {
		case <-pause.C:
			f, err = t.feeder(ctx, name, 1)
		case <-ctx.Done():
			pause.Stop()
			return faults{}, context.Cause(ctx)
		}
	}
	if err != nil {
		return faults{}, err
	}
	err = f.send(ctx, message, 1)
	sends, leaveErr := f.leave(ctx)
	return sends, errors.Join(err, leaveErr)
}

// ceilingChurn is times what was there before. Memory at rest still holds what
// the collector has not collected, which may be as much as is alive.
const ceilingChurn = 1.25

// remains are the figures of what identities leave.
func (r *report) remains() []row {
	var rows []row
	for _, x := range []struct {
		measure, unit string
		of            func(footprint) float64
	}{
		{"gateway, memory after identities came and went", "MiB", func(f footprint) float64 { return float64(f.Memory) / (1 << 20) }},
		{"  goroutines", "", func(f footprint) float64 { return f.Goroutines }},
		{"  series of metrics", "", func(f footprint) float64 { return f.Series }},
	} {
		w := compare(x.measure, x.unit, r.rounds(cellChurn, nameRabbitMQ, func(o *outcome) float64 { return x.of(o.After) }),
			"before", r.rounds(cellChurn, nameRabbitMQ, func(o *outcome) float64 { return x.of(o.Before) }))
		w.AtMost = ceilingChurn
		rows = append(rows, w)
	}
	again := r.rounds(cellChurn, nameRabbitMQ, func(o *outcome) float64 { return o.Repeated })
	repeats := compare("  connects that were told to come again", "", again, "", nil)
	repeats.known = len(again) > 0
	return append(rows, compare("  identities that came and went", "a second", r.rounds(cellChurn, nameRabbitMQ, throughput), "", nil), repeats)
}
