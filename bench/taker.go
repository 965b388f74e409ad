package main

import (
	"context"
	"errors"
	"time"
)

// taker is the receiver of messages that were there before it: it takes them,
// acknowledges them and leaves. One goroutine uses it.
type taker struct {
	*peer
	run      uint64
	sequence sequence
	last     uint64 // the number at which it leaves
	every    uint64 // deliveries without an acknowledgement
	seen     uint64 // delivery ids
	acked    uint64
	took     uint64 // messages of the run, repeats included
	stale    uint64

	began      int64 // the start of the connect
	open       int64 // the server's answer to it
	first, end int64 // the first message, and the last with its acknowledgement; 0: never
}

// taker connects as the agent of a name, for the messages of a run after one
// number and up to another.
func (t target) taker(ctx context.Context, name string, run, after, last uint64, unacked int) (*taker, error) {
	k := &taker{run: run, sequence: sequence{last: after}, last: last, every: uint64(max(unacked/8, 1)), began: now()}
	p, err := t.dial(ctx, name, unacked)
	if err != nil {
		return nil, err
	}
	k.peer, k.open = p, now()
	return k, nil
}

// take takes the messages, for at most a time: what has not come by then is
// lost. It returns when the server has ended the session.
func (k *taker) take(limit time.Duration) (faults, error) {
	cut := time.AfterFunc(limit, k.cut)
	defer cut.Stop()
	err := k.read(k.notice)
	if err == nil && k.end != 0 && !cut.Stop() {
		err = errors.New("the server has not ended a session that its client has left")
	}
	k.cut()
	f := k.sequence.until(k.last)
	f.Stale = k.stale
	return f, err
}

func (k *taker) notice(n *notice) error {
	switch n.kind {
	case noticeError:
		return errors.New("a receiver got " + n.text)
	case noticeMessage:
	default:
		return nil
	}
	mine := n.load.run == k.run
	if mine {
		k.sequence.see(n.load.number)
		k.took++
	} else {
		k.stale++
	}
	if mine && k.first == 0 {
		k.first = now()
	}
	k.seen = max(k.seen, n.deliveryID)
	switch {
	case k.end != 0:
		return nil // it has left; what comes now comes twice, and is counted
	case mine && n.load.number >= k.last:
		if err := k.acknowledge(); err != nil {
			return err
		}
		k.end = now()
		k.leave()
	case k.seen-k.acked >= k.every:
		return k.acknowledge()
	}
	return nil
}

// acknowledge tells the server of all deliveries so far.
func (k *taker) acknowledge() error {
	k.acked = k.seen
	return k.st.SendMsg(&frame{appendAck(nil, k.acked)})
}
