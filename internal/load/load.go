package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// The bounds of Options.
const (
	MaxPairs   = 256
	MaxWindow  = 4096
	MinPayload = stampSize
	MaxPayload = 1 << 20
	MaxRate    = 1_000_000
)

// Options say what to measure. Connect is required; the zero value of every
// other field is a good choice.
type Options struct {
	// Connect connects an agent by its specifier. The options have what the measurement needs: a handler, and how
	// much may be under way.
	Connect func(ctx context.Context, specifier string, o client.Options) (*client.Client, error)
	// Name is what specifiers begin with; default "bench". They are the same in
	// each run, so that it leaves no more behind than the first; of two at a time
	// each needs a name of its own.
	Name string
	// Pairs are how many senders there are, each with a receiver of its own; 1 to
	// 256, default 1.
	Pairs int
	// Payload is the size of a message, in bytes: 24 to 1 MiB, default 256.
	Payload int
	// Window is how many sends of a pair may be without a receipt; 1 to 4096,
	// default 256.
	Window int
	// Rate is in messages per second and pair; 0 is as many as the window lets
	// out.
	Rate int
	// Warmup comes before Duration and is not counted; default 1 s, negative is
	// none. Duration's default is 10 s.
	Warmup, Duration time.Duration
}

func (o *Options) check() error {
	def := func(value *int, d int) {
		if *value == 0 {
			*value = d
		}
	}
	if o.Name == "" {
		o.Name = "bench"
	}
	def(&o.Pairs, 1)
	def(&o.Payload, 256)
	def(&o.Window, client.DefaultMaxUnacked)
	if o.Warmup == 0 {
		o.Warmup = time.Second
	}
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	for _, x := range []struct {
		what              string
		value, least, max int
	}{
		{"pairs", o.Pairs, 1, MaxPairs}, {"size", o.Payload, MinPayload, MaxPayload}, {"window", o.Window, 1, MaxWindow}, {"rate", o.Rate, 0, MaxRate},
	} {
		if x.value < x.least || x.value > x.max {
			return fmt.Errorf("%s must be in %d..%d", x.what, x.least, x.max)
		}
	}
	if o.Duration < 0 {
		return errors.New("the duration must not be negative")
	}
	return nil
}

// Result is what was measured. All figures but the last four are of the time
// after the warm-up.
type Result struct {
	// Elapsed is how long was measured.
	Elapsed time.Duration
	// Messages were stored, receipted and delivered in that time.
	Messages uint64
	// OneWay is from the call that sends to the handler that has the message,
	// Receipt to the answer that it is stored. Without a rate both are mostly
	// the time that a message waits behind those of the window.
	OneWay, Receipt Delays
	// Limited are sends that a limit of the deployment refused, Refused those
	// that were refused otherwise, Refusal is the last reason.
	Limited, Refused uint64
	Refusal          string
	// Lost are messages that were receipted and did not come, Overtaken those
	// that came after a later one.
	Lost, Overtaken uint64
}

// PerSecond is the throughput.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Messages) / r.Elapsed.Seconds()
}

// Faulty reports whether messages were lost, overtaken or refused other than by
// a limit.
func (r *Result) Faulty() bool { return r.Lost+r.Overtaken+r.Refused > 0 }

// patience is how long messages may still come when all were sent.
const patience = 10 * time.Second

// Run connects, sends, and returns what it measured. When ctx ends it measures
// no longer, and what it has measured by then is returned. The error is one of
// the options', of a connect, or of a session that ended.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if err := o.check(); err != nil {
		return r, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	b := &bench{o: &o, run: drawn(), fail: fail}
	defer b.close(context.WithoutCancel(ctx))
	if err := b.connect(ctx); err != nil {
		return r, err
	}
	stop, end := context.WithCancel(ctx)
	defer end()
	// What an answer that comes late says is still wanted when ctx has ended.
	sends, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var sending sync.WaitGroup
	for _, p := range b.pairs {
		sending.Go(func() { p.send(stop, sends) })
	}
	wait(ctx, max(o.Warmup, 0))
	begin, before := time.Now(), b.measure(true)
	wait(ctx, o.Duration)
	after := b.measure(false)
	r.Elapsed, r.Messages = time.Since(begin), min(after.stored-before.stored, after.delivered-before.delivered)
	end()
	late := time.AfterFunc(patience, giveUp)
	sending.Wait()
	late.Stop()
	for _, p := range b.pairs {
		p.settle()
	}
	b.sum(&r)
	if ended := (*endedError)(nil); errors.As(context.Cause(ctx), &ended) {
		return r, ended
	}
	return r, nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// drawn marks the messages of a run: those that an earlier one has left do not count.
func drawn() uint64 {
	var b [6]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 | uint64(b[3])<<16 | uint64(b[4])<<8 | uint64(b[5])
}

// bench is a run.
type bench struct {
	o     *Options
	run   uint64
	fail  context.CancelCauseFunc
	pairs []*pair
	// watching waits for sessions that end by themselves.
	watching sync.WaitGroup
}

// connect connects all pairs, a few at a time.
func (b *bench) connect(ctx context.Context) error {
	const atOnce = 8
	pairs, errs := make([]*pair, b.o.Pairs), make([]error, atOnce)
	var all sync.WaitGroup
	for first := range atOnce {
		all.Go(func() {
			for i := first; i < len(pairs) && errs[first] == nil; i += atOnce {
				pairs[i], errs[first] = newPair(ctx, b.o, b.run, i)
			}
		})
	}
	all.Wait()
	for _, p := range pairs {
		if p == nil {
			continue
		}
		b.pairs = append(b.pairs, p)
		for _, c := range []*client.Client{p.out, p.in} {
			b.watching.Go(func() {
				<-c.Done()
				b.fail(&endedError{c.Err()})
			})
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// endedError is of a session that ended while it was measured.
type endedError struct{ err error }

func (e *endedError) Error() string { return "a session has ended: " + e.err.Error() }
func (e *endedError) Unwrap() error { return e.err }

// close ends all sessions.
func (b *bench) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range b.pairs {
		all.Go(func() { _ = p.out.Close(ctx) })
		all.Go(func() { _ = p.in.Close(ctx) })
	}
	all.Wait()
	b.watching.Wait()
}

// counts are of all pairs.
type counts struct{ stored, delivered uint64 }

// measure begins or ends the measurement of delays, and counts.
func (b *bench) measure(on bool) (c counts) {
	for _, p := range b.pairs {
		p.measuring.Store(on)
		c.stored += p.stored.Load()
		c.delivered += p.delivered.Load()
	}
	return c
}

// sum adds what the pairs have seen, who do nothing any more.
func (b *bench) sum(r *Result) {
	var oneWay, receipt histogram
	for _, p := range b.pairs {
		p.mu.Lock()
		oneWay.merge(&p.oneWay)
		receipt.merge(&p.receipt)
		r.Limited += p.limited
		r.Refused += p.refused
		if p.refusal != "" {
			r.Refusal = p.refusal
		}
		r.Overtaken += p.overtaken
		p.mu.Unlock()
		stored, delivered := p.stored.Load(), p.delivered.Load()
		r.Lost += stored - min(stored, delivered)
	}
	r.OneWay, r.Receipt = oneWay.delays(), receipt.delays()
}
