package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// system is something that messages are sent through: the gateway on one of
// its logs, or a baseline.
type system interface {
	// name is what reports call it.
	name() string
	// run puts a load on it. One run at a time.
	run(ctx context.Context, l load) (outcome, error)
}

// outcome is what one run showed.
type outcome struct {
	// Messages were sent, delivered and receipted in Elapsed.
	Messages uint64
	Elapsed  time.Duration
	Faults   faults
	// OneWay and Receipt are the delays of a run at a rate.
	OneWay, Receipt []time.Duration
	// Overslept counts sends of a run at a rate that went more than 5 ms too
	// late, because the machine was busy.
	Overslept uint64
	// CPU is what each process used in Elapsed.
	CPU map[string]time.Duration

	// First and Last are how long clients waited, from the start of their
	// connect, for the first and the last of the messages that were there
	// before them.
	First, Last []time.Duration
	// Passes is how often the gateway opened the log for who was behind.
	// Counted says whether it was asked.
	Passes  uint64
	Counted bool
	// Idle is the memory of a session without messages, in bytes; Full what it
	// takes in addition when it does not read what is there for it.
	Idle, Full float64
	// Before and After are what the gateway had around identities that came and
	// went.
	Before, After footprint
	// Repeated counts connects of theirs that were made anew, because the gateway
	// could not take them at that moment.
	Repeated float64
	// FewRules and ManyRules are what a decision takes, in nanoseconds.
	FewRules, ManyRules float64
	// Reports and Broadcasts came in a second.
	Reports, Broadcasts float64
	// Granted and Ungranted messages were stored in a second, under a grant and not.
	Granted, Ungranted float64
	// Tasks were created, assigned, run and completed in a second.
	Tasks float64
	// Starts are agents that were started in a second.
	Starts float64
	// Keyed and Keyless are how long agents waited for their snapshots.
	Keyed, Keyless []time.Duration
}

// perSecond is the throughput.
func (o *outcome) perSecond() float64 {
	if o.Elapsed <= 0 {
		return 0
	}
	return float64(o.Messages) / o.Elapsed.Seconds()
}

// server is a system that speaks aether.v1.
type server struct {
	title string
	target
	senders  *target   // where senders connect, if that is another server
	cpu      []process // who works when it does
	measured func(begin bool) error
}

// process is one whose CPU time is told.
type process struct {
	role string
	pid  func() int
}

var _ system = (*server)(nil)

func (s *server) name() string { return s.title }

func (s *server) run(ctx context.Context, l load) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pairs := make([]*pair, 0, l.Pairs)
	run := runs.Add(1)
	failed := make(chan error, 4*l.Pairs)
	left := false
	leave := func() {
		if left {
			return
		}
		left = true
		var wg sync.WaitGroup
		for _, p := range pairs {
			wg.Go(p.leave)
		}
		wg.Wait()
	}
	defer leave()
	for i := range l.Pairs {
		from := s.target
		if s.senders != nil {
			from = *s.senders
		}
		p, err := newPair(ctx, from, s.target, i, l, run, failed)
		if err != nil {
			return outcome{}, fmt.Errorf("%s: %w", s.title, err)
		}
		pairs = append(pairs, p)
	}
	o, err := s.drive(ctx, l, pairs, failed)
	leave()
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", s.title, err)
	}
	for _, p := range pairs {
		o.Faults.add(p.faults())
		o.OneWay = append(o.OneWay, p.oneWay...)
		o.Receipt = append(o.Receipt, p.receipt...)
		o.Overslept += p.overslept
	}
	return o, nil
}

// drive lets the pairs send, and counts.
func (s *server) drive(ctx context.Context, l load, pairs []*pair, failed <-chan error) (outcome, error) {
	var senders sync.WaitGroup
	for _, p := range pairs {
		senders.Go(func() {
			p.report(p.send())
		})
	}
	wait := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	o, err := s.count(l, pairs, wait)
	for _, p := range pairs {
		close(p.stop)
	}
	if err != nil {
		for _, p := range pairs {
			p.in.cut()
			p.out.cut()
		}
		senders.Wait()
		return outcome{}, err
	}
	senders.Wait()
	var errs []error
	for _, p := range pairs {
		errs = append(errs, p.drain(failed))
	}
	return o, errors.Join(errs...)
}

// count measures between the warm-up and the end.
func (s *server) count(l load, pairs []*pair, wait func(time.Duration) error) (outcome, error) {
	if err := wait(l.Warmup); err != nil {
		return outcome{}, err
	}
	for begin := time.Now(); idle(pairs); {
		if time.Since(begin) > patience {
			return outcome{}, errors.New("a pair has moved no message")
		}
		if err := wait(10 * time.Millisecond); err != nil {
			return outcome{}, err
		}
	}
	if s.measured != nil {
		if err := s.measured(true); err != nil {
			return outcome{}, err
		}
	}
	for _, p := range pairs {
		p.measure.Store(true)
	}
	usage := usageOf(s.cpu)
	delivered, receipts := progress(pairs)
	begin := time.Now()
	err := wait(l.Duration)
	o := outcome{Elapsed: time.Since(begin)}
	nowDelivered, nowReceipts := progress(pairs)
	o.CPU = usage.since(s.cpu)
	for _, p := range pairs {
		p.measure.Store(false)
	}
	if s.measured != nil {
		err = errors.Join(err, s.measured(false))
	}
	if err != nil {
		return outcome{}, err
	}
	o.Messages = min(nowDelivered-delivered, nowReceipts-receipts)
	return o, nil
}

// idle reports whether a pair has had no message yet.
func idle(pairs []*pair) bool {
	return slices.ContainsFunc(pairs, func(p *pair) bool { return p.delivered.Load() == 0 })
}

func progress(pairs []*pair) (delivered, receipts uint64) {
	for _, p := range pairs {
		delivered += p.delivered.Load()
		receipts += p.receipts.Load()
	}
	return delivered, receipts
}
