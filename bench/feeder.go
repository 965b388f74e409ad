package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// feeder sends to receivers that are away, or do not read: what only waits. One
// goroutine sends.
type feeder struct {
	*peer
	window   uint64
	sent     atomic.Uint64
	answered atomic.Uint64
	waiting  atomic.Bool   // the sender sleeps
	changed  chan struct{} // buffered
	ended    chan struct{}
	err      error    // valid after ended
	answers  sequence // of the goroutine that reads, as are the next two
	refused  uint64
	refusal  string
}

// feeder connects one with the agent's name.
func (t target) feeder(ctx context.Context, name string, window int) (*feeder, error) {
	p, err := t.dial(ctx, name, 1)
	if err != nil {
		return nil, err
	}
	f := &feeder{peer: p, window: uint64(window), changed: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.err = p.read(f.answer)
	}()
	return f, nil
}

func (f *feeder) answer(n *notice) error {
	switch n.kind {
	case noticeError:
		f.refused++
		f.refusal = n.text
	case noticeReceipt:
		if !n.stored {
			return errors.New("a receipt does not say STORED")
		}
		f.answers.see(n.number)
	default:
		return nil
	}
	answered := f.answered.Add(1)
	if open := f.sent.Load() - answered; f.waiting.Load() && (open == 0 || open == f.window*3/4) {
		signal(f.changed)
	}
	return nil
}

// send sends message number of a template's receiver, when the window allows
// it.
func (f *feeder) send(ctx context.Context, t *template, number uint64) error {
	if err := f.await(ctx, f.window-1); err != nil {
		return err
	}
	request := f.sent.Add(1)
	t.fillAs(request, number, now())
	if err := f.st.SendMsg(&t.frame); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// await waits until at most so many sends are without an answer.
func (f *feeder) await(ctx context.Context, open uint64) error {
	if f.sent.Load()-f.answered.Load() <= open {
		return nil
	}
	f.waiting.Store(true)
	defer f.waiting.Store(false)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for f.sent.Load()-f.answered.Load() > open {
		select {
		case <-f.changed:
		case <-f.ended:
			return f.err
		case <-timeout.C:
			return fmt.Errorf("%d sends have had no answer for %s", f.sent.Load()-f.answered.Load(), patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// leave waits for all answers and ends the session. It returns what went wrong
// with the sends.
func (f *feeder) leave(ctx context.Context) (faults, error) {
	err := f.await(ctx, 0)
	if err == nil {
		f.peer.leave()
		cut := time.AfterFunc(patience, f.peer.cut)
		defer cut.Stop()
	} else {
		f.peer.cut()
	}
	<-f.ended
	f.peer.cut()
	answers := f.answers.until(f.sent.Load())
	return faults{Refused: f.refused, Refusal: f.refusal, Duplicates: answers.Duplicates}, errors.Join(err, f.err)
}
