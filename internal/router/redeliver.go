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
	// maxAttempts is how often a message is delivered before it goes to the
	// dead-letter log, so that it cannot pin the watermark (delivery rule S8).
	maxAttempts    = 5
	redeliverFirst = 100 * time.Millisecond
	redeliverMax   = 10 * time.Second
	redeliverRetry = 100 * time.Millisecond
	fetchTimeout   = 10 * time.Second
)

var (
	errGone       = errors.New("router: the log does not have the message any more")
	errReaderIdle = errors.New("router: the log hands on nothing")
	errNobodyLeft = errors.New("router: what all need who are behind was removed")
)

// Nacked handles a delivery that its receiver wants again.
func (r *Router) Nacked(n delivery.Nacked) {
	switch owner := n.Inbox.Owner.(type) {
	case *member:
		// Its session may be ending, and give back all that is open.
		if u, ok := n.Inbox.Mailbox().TakeBack(n.ID); ok {
			owner.group.giveBack(u.Position, u.Attempts, redeliverAfter(u.Attempts))
		}
	case *inbox:
		r.redeliver(owner, n)
	}
}

// redeliver makes a nacked delivery again after a pause that grows.
func (r *Router) redeliver(in *inbox, n delivery.Nacked) {
	if n.Attempts >= maxAttempts {
		r.giveUpDelivery(in, n)
		return
	}
	failures := 0
	in.sub.again.add(redeliverAfter(n.Attempts), func() time.Duration {
		position, known, open := in.Mailbox().PositionOf(n.ID)
		switch {
		case !open:
			return 0
		case !known && in.p.neverStored(in, n.ID):
			in.Mailbox().Finish(n.ID)
			r.stats.GivenUp.Add(1)
			return 0
		case !known || !in.Mailbox().Roomy():
			return redeliverRetry
		}
		v, err := r.fetch(in.p, streams.Position(position))
		if errors.Is(err, errGone) {
			in.Mailbox().Finish(n.ID)
			in.sub.gap(Gap{Topic: in.Address, Reason: GapRetention, FirstMissing: position, HasFirst: true})
			return 0
		}
		if err != nil {
			failures++
			return backoffAfter(failures)
		}
		if !in.Redeliver(n.ID, &v, position, n.Attempts) {
			return redeliverRetry
		}
		r.stats.Redelivered.Add(1)
		return 0
	})
}

// neverStored reports whether a live delivery that has no position will have
// none, because the tail has shown what was numbered after it (S3).
func (p *partition) neverStored(in *inbox, id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return in.Fed() == delivery.FedByTail && in.NeverStored(id, p.seen)
}

func redeliverAfter(attempts uint8) time.Duration {
	d := redeliverFirst << min(attempts, 10)
	d = min(d, redeliverMax)
	return d/2 + rand.N(d/2)
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
func (r *Router) fetch(p *partition, position streams.Position) (v envelope.View, err error) {
	p.mu.Lock()
	e, ok := p.recent.entry(position.Offset())
	p.mu.Unlock()
	if !ok {
		if e, err = r.fetchEntry(p, position.Offset()); err != nil {
			return v, err
		}
	}
	it := streams.Open(e.Data)
	for it.Next() {
		if it.Index() == position.Index() && v.Parse(it.Bytes()) == nil {
			return v, nil
		}
	}
	return v, errGone
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
