package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// load is what a run asks of the clients.
type load struct {
	Pairs   int // each a sender and a receiver
	Payload int // bytes
	// Window is how many sends of a pair may be without a receipt; Unacked
	// how many deliveries without an acknowledgement.
	Window, Unacked int
	// IDs gives each message an idempotency key of its own.
	IDs bool
	// Rate is in messages per second and pair; 0 is as many as the window
	// lets out.
	Rate int
	// Warmup comes before Duration and is not counted.
	Warmup, Duration time.Duration
}

var runs atomic.Uint64

// patience is how long a run waits for what is still on its way.
const patience = 15 * time.Second

// pair is a sender and a receiver.
type pair struct {
	load     load
	run      uint64
	out, in  *peer
	template *template

	sent      atomic.Uint64
	receipts  atomic.Uint64
	delivered atomic.Uint64

	acking sync.Mutex
	seen   uint64 // the last delivery id
	acked  uint64

	waiting atomic.Bool   // the sender sleeps until the window opens
	opened  chan struct{} // buffered
	stop    chan struct{} // no more sends
	settled chan struct{} // a signal: look whether all is done; buffered

	sequence sequence // of the receiver's goroutine
	answers  sequence // of the goroutine that reads receipts
	stale    uint64
	refused  uint64
	refusal  string

	// Of runs at a rate. sentAt is written before the send.
	sentAt    []int64
	measure   atomic.Bool
	oneWay    []time.Duration
	receipt   []time.Duration
	overslept uint64 // sends that were more than 5 ms late

	readers sync.WaitGroup
	failed  chan<- error // buffered, shared by the pairs of a run
}

func newPair(ctx context.Context, from, to target, i int, l load, run uint64, failed chan<- error) (_ *pair, err error) {
	p := &pair{
		load: l, run: run,
		opened: make(chan struct{}, 1), stop: make(chan struct{}), settled: make(chan struct{}, 1), failed: failed,
	}
	if l.Rate > 0 {
		n := int(int64(l.Rate) * int64(l.Warmup+l.Duration+2*patience) / int64(time.Second))
		p.sentAt = make([]int64, n)
		p.oneWay = make([]time.Duration, 0, n)
		p.receipt = make([]time.Duration, 0, n)
	}
	receiver := fmt.Sprintf("receiver-%d", i)
	if p.template, err = newTemplate(address(receiver), l.Payload, run, l.IDs); err != nil {
		return nil, err
	}
	if p.in, err = to.dial(ctx, receiver, l.Unacked); err != nil {
		return nil, err
	}
	if p.out, err = from.dial(ctx, fmt.Sprintf("sender-%d", i), l.Unacked); err != nil {
		p.in.cut()
		return nil, err
	}
	p.readers.Go(func() { p.report(p.in.read(p.deliver)) })
	p.readers.Go(func() { p.report(p.out.read(p.answer)) })
	return p, nil
}

func (p *pair) report(err error) {
	if err != nil {
		select {
		case p.failed <- err:
		default:
		}
	}
}

// deliver takes a frame of the receiver's stream.
func (p *pair) deliver(n *notice) error {
	switch n.kind {
	case noticeError:
		return errors.New("the receiver got " + n.text)
	case noticeMessage:
	default:
		return nil
	}
	at := now()
	mine := n.load.run == p.run
	switch {
	case !mine:
		p.stale++
	case p.load.Rate > 0 && p.measure.Load():
		p.oneWay = append(p.oneWay, time.Duration(at-n.load.sentAt))
	}
	// Often enough that the window never closes, seldom enough to cost little.
	if err := p.acknowledge(n.deliveryID, uint64(max(p.load.Unacked/8, 1))); err != nil {
		return err
	}
	if mine {
		p.sequence.see(n.load.number)
		p.delivered.Add(1)
		p.look()
	}
	return nil
}

// acknowledge tells the server of all deliveries up to an id, if that are at
// least some. A server without acknowledgements gives no ids.
func (p *pair) acknowledge(upTo, least uint64) error {
	p.acking.Lock()
	defer p.acking.Unlock()
	p.seen = max(p.seen, upTo)
	if p.seen-p.acked < least {
		return nil
	}
	p.acked = p.seen
	return p.in.st.SendMsg(&frame{appendAck(nil, p.acked)})
}

// answer takes a frame of the sender's stream.
func (p *pair) answer(n *notice) error {
	switch n.kind {
	case noticeError:
		p.refused++
		p.refusal = n.text
	case noticeReceipt:
		if !n.stored {
			return errors.New("a receipt does not say STORED")
		}
		if p.load.Rate > 0 && p.measure.Load() && n.number <= p.sent.Load() {
			p.receipt = append(p.receipt, time.Duration(now()-p.sentAt[n.number]))
		}
		p.answers.see(n.number)
	default:
		return nil
	}
	receipts := p.receipts.Add(1)
	if p.waiting.Load() && p.sent.Load()-receipts <= uint64(p.load.Window)*3/4 {
		signal(p.opened)
	}
	p.look()
	return nil
}

// look tells who waits for the end of the run that something came.
func (p *pair) look() {
	select {
	case <-p.stop:
		signal(p.settled)
	default:
	}
}

// send sends until it is stopped.
func (p *pair) send() error {
	if p.load.Rate > 0 {
		return p.sendPaced()
	}
	for number := uint64(1); ; number++ {
		for p.sent.Load()-p.receipts.Load() >= uint64(p.load.Window) {
			p.waiting.Store(true)
			if p.sent.Load()-p.receipts.Load() >= uint64(p.load.Window) {
				select {
				case <-p.opened:
				case <-p.stop:
					return nil
				}
			}
			p.waiting.Store(false)
		}
		if number%64 == 0 {
			select {
			case <-p.stop:
				return nil
			default:
			}
		}
		if err := p.emit(number, now()); err != nil {
			return err
		}
	}
}

func (p *pair) emit(number uint64, at int64) error {
	p.template.fill(number, at)
	p.sent.Store(number)
	if err := p.out.st.SendMsg(&p.template.frame); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// sendPaced is send at a rate.
func (p *pair) sendPaced() error {
	return paced(p.load.Rate, p.stop, &p.overslept, func(number uint64) error {
		if number >= uint64(len(p.sentAt)) {
			return errors.New("a run at a rate takes much longer than it should")
		}
		at := now()
		p.sentAt[number] = at
		return p.emit(number, at)
	})
}

// paced calls send for the numbers from 1, at the times of a schedule and
// whatever comes back: a server that is slow for a moment does not get fewer
// messages for it. It returns when stop is closed.
func paced(rate int, stop <-chan struct{}, late *uint64, send func(number uint64) error) error {
	interval := time.Second / time.Duration(rate)
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for number := uint64(1); ; number++ {
		due := begin.Add(time.Duration(number) * interval)
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-stop:
			return nil
		}
		if time.Since(due) > 5*time.Millisecond {
			*late++
		}
		if err := send(number); err != nil {
			return err
		}
	}
}

// signal wakes whoever waits on a channel that holds one signal.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// done reports whether everything that was sent has come and is receipted.
func (p *pair) done() bool {
	sent := p.sent.Load()
	return p.delivered.Load() >= sent && p.receipts.Load() >= sent
}

// drain waits, after stop, for what is on its way.
func (p *pair) drain(failed <-chan error) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !p.done() {
		select {
		case <-p.settled:
		case err := <-failed:
			return err
		case <-timeout.C:
			return nil // what is missing shows in the faults
		}
	}
	return nil
}

// leave ends both sessions as a client would: everything acknowledged, then
// half-closed.
func (p *pair) leave() {
	if err := p.acknowledge(0, 1); err != nil {
		p.report(err)
	}
	p.in.leave()
	p.out.leave()
	ended := make(chan struct{})
	go func() {
		p.readers.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
	}
	p.in.cut()
	p.out.cut()
	<-ended
}

// faults is valid when the pair has left.
func (p *pair) faults() faults {
	sent := p.sent.Load()
	f := p.sequence.until(sent)
	f.Stale, f.Refused, f.Refusal = p.stale, p.refused, p.refusal
	answers := p.answers.until(sent)
	if unanswered := answers.Lost - min(answers.Lost, p.refused); unanswered > 0 {
		f.Refused += unanswered
		f.Refusal = "sends without any answer"
	}
	f.Duplicates += answers.Duplicates
	return f
}
