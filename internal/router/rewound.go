package router

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
)

// A log that was deleted and made anew, or whose broker has lost its end, holds
// at lower offsets what the tail waits for at higher ones (delivery rule C2).
// This is found out in two ways: the tail sees another entry where it left off;
// or it shows nothing of what is confirmed, and something of that is found below
// where it waits. Then the tail goes on where the log begins to differ, and so
// do its readers, who are told.

const (
	// probeTime bounds the search for what the tail does not show.
	probeTime = 5 * time.Second
	// probeSpan is how much older than the lag what is looked for may be by the
	// log's clock.
	probeSpan = 30 * time.Second
	// compareIdle is how long the log may be silent before it is taken to end.
	compareIdle = 3 * time.Second
)

// rewritten is called by the tail: the log is not the one that it was.
func (p *partition) rewritten() { p.lookBack(func(context.Context) bool { return true }) }

// hangs is called for a tail that shows nothing.
func (p *partition) hangs() { p.lookBack(p.storedBelow) }

// lookBack has the tail begin anew, if differs confirms that the log is another
// one. One at a time is looked after.
func (p *partition) lookBack(differs func(context.Context) bool) {
	if !p.lookingBack.CompareAndSwap(false, true) {
		return
	}
	if !p.r.spawn(func(ctx context.Context) {
		defer p.lookingBack.Store(false)
		for differs(ctx) && ctx.Err() == nil {
			err := p.rewind(ctx)
			if err == nil {
				return
			}
			p.r.log.Warn("a partition whose log has changed cannot be compared with what was read", "partition", p.id, "error", err)
			if !wait(ctx, time.Second) {
				return
			}
		}
	}) {
		p.lookingBack.Store(false)
	}
}

// storedBelow reports whether something of this gateway that is newer than all
// that the tail has shown lies below what it has shown.
func (p *partition) storedBelow(ctx context.Context) bool {
	p.mu.Lock()
	seen, at := p.seen, p.tailAt
	p.mu.Unlock()
	if at == none {
		return false
	}
	found := make(chan int64, 1)
	var v envelope.View
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	c, err := p.r.driver.OpenConsumer(ctx, p.id, streams.Since(p.r.now().Add(-tailTimeout-probeSpan)), func(e streams.Entry) {
		for it := streams.Open(e.Data); it.Next(); {
			if v.Parse(it.Bytes()) == nil && v.Origin == p.r.origin && v.Seq > seen {
				select {
				case found <- int64(streams.At(e.Offset, it.Index())):
				default:
				}
			}
		}
	})
	if err != nil {
		return false // the next hang tries again
	}
	defer func() { _ = c.Close() }()
	select {
	case position := <-found:
		return position <= at
	case <-c.Done():
	case <-ctx.Done():
	}
	return false
}

// rewind has the tail and all readers go on where the log begins to differ from
// what was read: behind the last entry of the ring that is still the same, or at
// the beginning of the log.
func (p *partition) rewind(ctx context.Context) error {
	p.mu.Lock()
	had := slices.Clone(p.recent.entries)
	p.mu.Unlock()
	same, err := p.commonWith(ctx, had)
	if err != nil {
		return err
	}
	start, at := streams.First(), none
	if same > 0 {
		last := had[same-1].Offset
		start, at = streams.From(last+1), endOf(last)
	}
	p.mu.Lock()
	if n := len(p.recent.entries); n != len(had) || n > 0 && p.recent.entries[n-1].Offset != had[n-1].Offset {
		p.mu.Unlock()
		return nil // the tail goes on: it was slow
	}
	if same > 0 && same == len(had) {
		p.mu.Unlock()
		return nil // nothing differs
	}
	p.r.log.Error("the log has lost entries that were confirmed, or was made anew; reading goes on where it begins to differ",
		"partition", p.id, "position", at+1, "was", p.tailAt)
	p.recent.truncate(same)
	p.tailAt, p.handover, p.marker, p.lagSince = at, false, 0, time.Time{}
	for _, t := range p.targets {
		switch {
		case t.inbox != nil:
			t.inbox.rewind(at)
		case t.workers != nil:
			t.workers.rewind(at)
		}
	}
	if p.wild != nil {
		p.wild.rewind(at)
	}
	p.renote(uint64(at + 1))
	if p.usage != nil {
		p.usage.Rewind(at)
	}
	p.mu.Unlock()
	p.tail.Rewind(start)
	return nil
}

// commonWith returns how many of the entries, from the first on, the log still has.
func (p *partition) commonWith(ctx context.Context, had []streams.Entry) (same int, err error) {
	if len(had) == 0 {
		return 0, nil
	}
	type verdict struct{ equal bool }
	verdicts := make(chan verdict)
	over := make(chan struct{})
	defer close(over)
	next := 0 // of the consumer
	opening, cancel := context.WithTimeout(ctx, readerIdle)
	c, err := p.r.driver.OpenConsumer(opening, p.id, streams.From(had[0].Offset), func(e streams.Entry) {
		if next == len(had) {
			return
		}
		equal := e.Offset == had[next].Offset && bytes.Equal(e.Data, had[next].Data)
		if next++; !equal {
			next = len(had)
		}
		select {
		case verdicts <- verdict{equal}:
		case <-over:
		}
	})
	cancel()
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	idle := time.NewTimer(compareIdle)
	defer idle.Stop()
	for same < len(had) {
		select {
		case v := <-verdicts:
			if !v.equal {
				return same, nil
			}
			same++
			idle.Reset(compareIdle)
		case <-c.Done():
			return 0, streams.ErrClosed
		case <-idle.C:
			return same, nil // it ends here
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return same, nil
}

// rewind has an inbox go on at the end of what the logs have in common. Who has
// not come so far is not touched. The partition's lock is held.
func (in *inbox) rewind(at int64) {
	if in.suspected || in.Fed() != delivery.FedByTail && in.At() <= at {
		return
	}
	in.leap, in.holding, in.joined = leap{}, false, false
	in.p.forgetHolding(in)
	in.lower(at)
	in.sub.gap(Gap{Topic: in.Address, Reason: GapRecreated, FirstMissing: uint64(at + 1), HasFirst: true})
	in.Rewind(at)
}

// forgetHolding takes an inbox off the list of those that wait for a fence: what
// waited in it is in the log.
func (p *partition) forgetHolding(in *inbox) {
	p.holding = slices.DeleteFunc(p.holding, func(other *inbox) bool { return other == in })
}

// rewind is that of a group. What it has given out stays with the workers.
func (g *group) rewind(at int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.contest != nil {
		g.contest.rewind(at)
		return
	}
	if g.feeder != delivery.FedByTail && g.position <= at {
		return
	}
	g.position, g.leftAt, g.backAt = at, min(g.leftAt, at), min(g.backAt, at)
	g.starveAt(at)
}

// lower says that the committed position is to fall: it means nothing in this
// log. The partition's lock is held.
func (in *inbox) lower(at int64) { in.lowered, in.lowerTo = true, max(at, 0) }

// lowering returns to where the committed position is to fall, if it is.
func (in *inbox) lowering() (to int64, ok bool) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	return in.lowerTo, in.lowered
}

// lowerPositions lowers the committed positions of sessions whose log is another
// one now. Until that is done nothing of them is committed.
func (r *Router) lowerPositions(ctx context.Context, subs ...*Subscription) {
	var list []store.Commit
	var lowered []*inbox
	for _, s := range subs {
		if s.reads.Lease.Lost() {
			continue
		}
		for _, in := range s.inboxes {
			if to, ok := in.lowering(); ok {
				list = append(list, store.Commit{
					Identity: in.Identity, Address: in.Address, Position: uint64(to), Epoch: s.reads.Lease.Epoch,
				})
				lowered = append(lowered, in)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := r.positions.RewindPositions(ctx, list); err != nil {
		r.stats.CommitFailures.Add(1)
		r.log.Warn("positions in a log that is gone could not be lowered; it is tried again", "positions", len(list), "error", err)
		return
	}
	for i, in := range lowered {
		in.p.mu.Lock()
		if in.lowerTo == int64(list[i].Position) {
			in.lowered = false
			in.SetSaved(in.lowerTo)
		}
		in.p.mu.Unlock()
	}
}
