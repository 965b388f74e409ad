package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// maxAttempts is how often a message is delivered before it counts as
	// done all the same, so that it cannot pin the watermark (delivery rule
	// S8).
	maxAttempts    = 5
	redeliverFirst = 100 * time.Millisecond
	redeliverMax   = 10 * time.Second
	redeliverRetry = 100 * time.Millisecond
	// returnedFor is how long an unfinished message waits for a worker.
	returnedFor  = 10 * time.Minute
	fetchTimeout = 10 * time.Second
)

var (
	errGone       = errors.New("router: the log does not have the message any more")
	errReaderIdle = errors.New("router: the log hands on nothing")
)

// Nacked handles a delivery that its receiver wants again.
func (r *Router) Nacked(n delivery.Nacked) {
	switch owner := n.Inbox.Owner.(type) {
	case *member:
		position, known, open := n.Inbox.Mailbox().PositionOf(n.ID)
		n.Inbox.Mailbox().Finish(n.ID)
		if open && known {
			owner.group.giveBack(position, n.Attempts, redeliverAfter(n.Attempts))
		}
	case *inbox:
		r.redeliver(owner, n)
	}
}

// redeliver makes a nacked delivery again after a pause that grows.
func (r *Router) redeliver(in *inbox, n delivery.Nacked) {
	if n.Attempts >= maxAttempts {
		position, _, _ := in.Mailbox().PositionOf(n.ID)
		in.Mailbox().Finish(n.ID)
		r.giveUp(in.Address, position, n.Attempts)
		return
	}
	var try func()
	try = func() {
		position, known, open := in.Mailbox().PositionOf(n.ID)
		switch {
		case !open:
			return
		case !known:
			// It was delivered live and is not in the log yet.
			r.later(redeliverRetry, try)
			return
		}
		raw, err := r.fetch(in.p, streams.Position(position))
		if errors.Is(err, errGone) {
			in.Mailbox().Finish(n.ID)
			in.sub.gap(Gap{Topic: in.Address, Reason: GapRetention, FirstMissing: position, HasFirst: true})
			return
		}
		var v envelope.View
		if err != nil || v.Parse(raw) != nil || !in.Redeliver(n.ID, &v, position, n.Attempts) {
			r.later(redeliverRetry, try)
			return
		}
		r.stats.Redelivered.Add(1)
	}
	r.later(redeliverAfter(n.Attempts), try)
}

func redeliverAfter(attempts uint8) time.Duration {
	d := redeliverFirst << min(attempts, 10)
	d = min(d, redeliverMax)
	return d/2 + rand.N(d/2)
}

func (r *Router) giveUp(topic string, position uint64, attempts uint8) {
	r.stats.GivenUp.Add(1)
	r.log.Warn("a message is given up after its last attempt", "topic", topic, "position", position, "attempts", attempts)
}

// later runs f in a goroutine of its own after a pause, unless the router is
// closed by then. What is nacked is bounded by the windows of those who nack.
func (r *Router) later(d time.Duration, f func()) bool {
	return r.spawn(func(ctx context.Context) {
		if wait(ctx, d) {
			f()
		}
	})
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func backoffAfter(failures int) time.Duration {
	d := min(50*time.Millisecond<<min(failures, 6), 2*time.Second)
	return d/2 + rand.N(d/2)
}

// fetch reads a single message again.
func (r *Router) fetch(p *partition, position streams.Position) ([]byte, error) {
	p.mu.Lock()
	e, ok := p.recent.entry(position.Offset())
	p.mu.Unlock()
	if !ok {
		var err error
		if e, err = r.fetchEntry(p, position.Offset()); err != nil {
			return nil, err
		}
	}
	it := streams.Open(e.Data)
	for it.Next() {
		if it.Index() == position.Index() {
			return it.Bytes(), nil
		}
	}
	return nil, errGone
}

func (r *Router) fetchEntry(p *partition, offset uint64) (streams.Entry, error) {
	select {
	case r.fetching <- struct{}{}:
	case <-r.ctx.Done():
		return streams.Entry{}, r.ctx.Err()
	}
	defer func() { <-r.fetching }()
	ctx, cancel := context.WithTimeout(r.ctx, fetchTimeout)
	defer cancel()
	found := make(chan streams.Entry, 1)
	c, err := r.driver.OpenConsumer(ctx, p.id, streams.From(offset), func(e streams.Entry) {
		select {
		case found <- e:
		default:
		}
	})
	if err != nil {
		return streams.Entry{}, err
	}
	defer func() { _ = c.Close() }()
	select {
	case e := <-found:
		if e.Offset != offset {
			return streams.Entry{}, errGone
		}
		return e, nil
	case <-c.Done():
		return streams.Entry{}, streams.ErrClosed
	case <-ctx.Done():
		return streams.Entry{}, ctx.Err()
	}
}
