package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// strangersCell measures identities that come for the first time, all at once,
// to a log full of messages for others, between which lie a few of their own.
// The baseline is as many streams that the relay opens at once.
func strangersCell(o options, l load) cell {
	const storing = 40_000 // messages per second, at least
	return cell{
		Name: cellStrangers, Title: fmt.Sprintf("%d new among %d of others", o.strangers, o.foreign), Load: l,
		Systems: []string{nameRelay, nameRabbitMQ}, takes: 3 * time.Second,
		setup: time.Duration(o.foreign/storing+1) * time.Second,
		open: func(ctx context.Context, s *site, c cell, rounds int) (stage, error) {
			st := &strangers{site: s, load: c.Load, run1: runs.Add(1), each: o.strangers}
			return st, st.fill(ctx, uint64(o.foreign), rounds)
		},
	}
}

const (
	// ownMessages are what was sent to a stranger before it came.
	ownMessages = 10
	// others are the addresses that the rest goes to: enough that the
	// partitions get about the same.
	others = 64
)

type strangers struct {
	site *site
	load load
	run1 uint64
	each int // how many come in a round
	// faults of the sends, told by the first round.
	sends faults
}

func (st *strangers) close() error { return nil }

// name is that of a stranger, who comes in one round only.
func (st *strangers) name(i int) string { return fmt.Sprintf("stranger-%d-%d", st.run1, i) }

// fill stores the messages of others, and after each eleventh part of them one
// message for every stranger of all rounds.
func (st *strangers) fill(ctx context.Context, foreign uint64, rounds int) error {
	system, ok := st.site.systems[nameRabbitMQ].(*server)
	if !ok {
		return errors.New("strangers come to a gateway")
	}
	away := make([]*template, others)
	own := make([]*template, st.each*rounds)
	var err error
	for i := range away {
		if away[i], err = newTemplate(address(fmt.Sprintf("away-%d-%d", st.run1, i)), st.load.Payload, st.run1, false); err != nil {
			return err
		}
	}
	for i := range own {
		if own[i], err = newTemplate(address(st.name(i)), st.load.Payload, st.run1, false); err != nil {
			return err
		}
	}
	f, err := system.feeder(ctx, "feeder", st.load.Window)
	if err != nil {
		return err
	}
	sent := uint64(0)
	err = func() error {
		for part := uint64(1); part <= ownMessages+1; part++ {
			for ; sent < foreign*part/(ownMessages+1); sent++ {
				if err := f.send(ctx, away[sent%others], sent/others+1); err != nil {
					return err
				}
			}
			for i := 0; part <= ownMessages && i < len(own); i++ {
				if err := f.send(ctx, own[i], part); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	sends, leaveErr := f.leave(ctx)
	st.sends = sends
	return errors.Join(err, leaveErr)
}

func (st *strangers) run(ctx context.Context, system string, round int) (outcome, error) {
	s := st.site.systems[system].(*server)
	var o outcome
	err := st.site.counting(ctx, system, &o, func() (err error) {
		o, err = st.come(ctx, s.target, round, system != nameRelay)
		return err
	})
	if err != nil {
		return o, fmt.Errorf("%s: %w", system, err)
	}
	if system == nameRabbitMQ {
		o.Faults.add(st.sends)
		st.sends = faults{}
	}
	return o, nil
}

// come lets the strangers of a round connect. With mail they take theirs;
// without, the server's answer is all that they wait for.
func (st *strangers) come(ctx context.Context, t target, round int, mail bool) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	takers, errs, wrong := make([]*taker, st.each), make([]error, st.each), make([]faults, st.each)
	last := uint64(0)
	if mail {
		last = ownMessages
	}
	limit := time.Minute + readLimit(uint64(st.site.options.foreign)/10)
	var wg sync.WaitGroup
	for i := range takers {
		wg.Go(func() {
			k, err := t.taker(ctx, st.name(round*st.each+i), st.run1, 0, last, st.load.Unacked)
			if err != nil {
				errs[i] = err
				cancel()
				return
			}
			if !mail {
				k.first, k.end = k.open, k.open
				k.leave()
			}
			wrong[i], errs[i] = k.take(limit)
			takers[i] = k
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return outcome{}, err
	}
	var o outcome
	for i, k := range takers {
		o.Faults.add(wrong[i])
		o.Messages += k.took
		if k.first != 0 {
			o.First = append(o.First, time.Duration(k.first-k.began))
		}
		if mail && k.end != 0 {
			o.Last = append(o.Last, time.Duration(k.end-k.began))
		}
	}
	return o, nil
}

// aimStranger is within what the first message of all strangers should come.
const aimStranger = time.Second

// arrivals are the figures of identities that come for the first time.
func (r *report) arrivals() []row {
	var rows []row
	for _, p := range []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"max", 1}} {
		relay := r.rounds(cellStrangers, nameRelay, firstAfter(p.p))
		rows = append(rows, compare("relay, streams opened at once, "+p.name, "ms", relay, "", nil),
			compare("gateway, first message of new identities, "+p.name, "ms", r.rounds(cellStrangers, nameRabbitMQ, firstAfter(p.p)), "relay", relay))
	}
	slowest := r.rounds(cellStrangers, nameRabbitMQ, firstAfter(1))
	w := compare("  the slowest", "ms", slowest, "aim", repeated(float64(aimStranger)/1e6, len(slowest)))
	w.AtMost = 1
	return append(rows, w, compare(fmt.Sprintf("  all %d of the slowest", ownMessages), "ms", r.rounds(cellStrangers, nameRabbitMQ, lastAfter(1)), "", nil),
		r.passes(cellStrangers, "  passes over the log for them"))
}

// passes is how often the gateway opened the log in a cell, if it was asked.
func (r *report) passes(cell, measure string) row {
	var values []float64
	for _, result := range r.Results {
		for _, o := range result.Rounds[nameRabbitMQ] {
			if result.Cell.Name == cell && o.Counted {
				values = append(values, float64(o.Passes))
			}
		}
	}
	w := compare(measure, "", values, "", nil)
	w.known = len(values) > 0
	return w
}

// repeated is a series of one value: a baseline that is not measured.
func repeated(v float64, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = v
	}
	return values
}
