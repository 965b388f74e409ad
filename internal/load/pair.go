package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// pair is a sender and a receiver.
type pair struct {
	o       *Options
	run     uint64
	out, in *client.Client
	to      string // the receiver's address

	measuring         atomic.Bool
	stored, delivered atomic.Uint64
	came              chan struct{} // a signal; buffered

	last uint64 // number; of the handler alone

	mu              sync.Mutex
	oneWay, receipt histogram
	limited         uint64
	refused         uint64
	refusal         string
	overtaken       uint64
	resume          time.Time // not before it the next send
}

func newPair(ctx context.Context, o *Options, run uint64, i int) (_ *pair, err error) {
	p := &pair{o: o, run: run, came: make(chan struct{}, 1)}
	name := func(role string) string { return fmt.Sprintf("%s-%s-%d", o.Name, role, i) }
	p.in, err = o.Connect(ctx, name("receiver"), client.Options{
		MaxUnacked: max(o.Window, client.DefaultMaxUnacked), Handler: p.handle,
	})
	if err != nil {
		return nil, err
	}
	p.to = p.in.Address()
	if p.out, err = o.Connect(ctx, name("sender"), client.Options{MaxPending: o.Window, PendingBytes: o.Window * (o.Payload + 1024)}); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = p.in.Close(closing)
		return nil, err
	}
	return p, nil
}

var epoch = time.Now()

// stampSize is what a message begins with: its run, its number, and when it was
// sent, in nanoseconds of this process.
const stampSize = 24

func fill(payload []byte, run, number uint64, at time.Duration) {
	binary.BigEndian.PutUint64(payload, run)
	binary.BigEndian.PutUint64(payload[8:], number)
	binary.BigEndian.PutUint64(payload[16:], uint64(at))
}

// handle takes a message at the receiver.
func (p *pair) handle(_ context.Context, m *client.Message) error {
	at := time.Since(epoch)
	if len(m.Payload) < stampSize || binary.BigEndian.Uint64(m.Payload) != p.run {
		return nil // of an earlier run, or somebody else's
	}
	number, sent := binary.BigEndian.Uint64(m.Payload[8:]), time.Duration(binary.BigEndian.Uint64(m.Payload[16:]))
	p.mu.Lock()
	if number < p.last {
		p.overtaken++
	}
	if p.measuring.Load() {
		p.oneWay.add(at - sent)
	}
	p.mu.Unlock()
	p.last = max(p.last, number)
	p.delivered.Add(1)
	select {
	case p.came <- struct{}{}:
	default:
	}
	return nil
}

// sent is a send that waits for its answer.
type sent struct {
	*client.Pending
	at time.Duration
}

// send sends until stop ends, and returns when all is answered, or sends has
// ended.
func (p *pair) send(stop, sends context.Context) {
	open := make(chan sent, p.o.Window) // full: the window is
	var answers sync.WaitGroup
	answers.Go(func() {
		for s := range open {
			_, err := s.Wait(sends)
			p.answered(s.at, err)
		}
	})
	defer answers.Wait()
	defer close(open)
	payload := make([]byte, p.o.Payload)
	begin := time.Now()
	for number := uint64(1); ; number++ {
		if !p.turn(stop, begin, number) {
			return
		}
		at := time.Since(epoch)
		fill(payload, p.run, number, at)
		pending, err := p.out.SendAsync(sends, p.to, payload)
		if err != nil {
			p.answered(at, err)
			continue
		}
		open <- sent{pending, at}
	}
}

// turn waits until a message may be sent, and reports false if none may any
// more. At a rate a deployment that is slow for a moment gets no fewer messages
// for it, as long as the window allows.
func (p *pair) turn(stop context.Context, begin time.Time, number uint64) bool {
	p.mu.Lock()
	due := p.resume
	p.mu.Unlock()
	if p.o.Rate > 0 {
		scheduled := begin.Add(time.Duration(float64(number) / float64(p.o.Rate) * float64(time.Second)))
		if scheduled.After(due) {
			due = scheduled
		}
	}
	if pause := time.Until(due); pause > 0 {
		wait(stop, pause)
	}
	return stop.Err() == nil
}

// pauseIfLimited is how long a sender waits that a limit has refused, if the
// gateway does not say.
const pauseIfLimited = 100 * time.Millisecond

// answered takes the outcome of a send.
func (p *pair) answered(at time.Duration, err error) {
	if err == nil {
		p.stored.Add(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch code := client.CodeOf(err); {
	case err == nil:
		if p.measuring.Load() {
			p.receipt.add(time.Since(epoch) - at)
		}
	case code == client.CodeRateLimited || code == client.CodeWorkspaceLimited || code == client.CodeQuotaExceeded:
		p.limited++
		p.refusal = err.Error()
		pause := pauseIfLimited
		if e, ok := errors.AsType[*client.Error](err); ok {
			pause = max(pause, e.RetryAfter)
		}
		p.resume = time.Now().Add(pause)
	default:
		p.refused++
		p.refusal = err.Error()
	}
}

// settle waits for what was stored and has not come yet.
func (p *pair) settle() {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for p.delivered.Load() < p.stored.Load() {
		select {
		case <-p.came:
		case <-p.in.Done():
			return
		case <-timeout.C:
			return
		}
	}
}
