package router

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// Forwarding: one gateway at a time forwards for all of them, the one that holds
// the lease on [forwarderName]. It reads the log from where the routes are known
// to be, forwards what they take, and commits how far it has come, for each route
// and partition, under the lease's epoch. If it dies, the next holder begins at
// what was committed: nothing is lost, and what was forwarded since has the same
// message id again (see [forwardID]), under which it is stored once (delivery
// rule P6). So that the memory of ids reaches back far enough, no more is
// forwarded than [forwardWindow] beyond what is committed.

// forwarderName is the name under which routes are leased, and their positions
// kept.
const forwarderName = "forwarder"

const (
	// forwardWindow is how many messages may be forwarded and not committed, by
	// all feeds together; less than what is remembered of a sender and an address.
	forwardWindow = 3 * idsPerPair / 4
	// claimEvery is how often a gateway asks for the lease.
	claimEvery = time.Second
	// forwardTimeout bounds a call to the store.
	forwardTimeout = 5 * time.Second
)

// forwarder is this gateway as far as it forwards.
type forwarder struct {
	r      *Router
	routes []wiring.Route
	owner  []acl.Principal // by route
	log    refusalLog

	cancel context.CancelFunc
	done   chan struct{}
}

// forward starts a forwarder. It is called once, by New.
func (r *Router) forward(routes []wiring.Route) *forwarder {
	ctx, cancel := context.WithCancel(r.ctx)
	f := &forwarder{r: r, routes: routes, cancel: cancel, done: make(chan struct{})}
	f.log.log = r.log
	for i := range routes {
		f.owner = append(f.owner, acl.Principal{Kind: acl.Service, Address: routes[i].Principal, Workspaces: routes[i].Covers()})
	}
	r.spawn(func(context.Context) {
		defer close(f.done)
		f.run(ctx)
	})
	return f
}

// stop ends forwarding, and waits for that as long as ctx allows.
func (f *forwarder) stop(ctx context.Context) {
	f.cancel()
	select {
	case <-f.done:
	case <-ctx.Done():
	}
}

func (f *forwarder) run(ctx context.Context) {
	select {
	case <-f.r.ready:
	case <-ctx.Done():
		return
	}
	for {
		lease, err := f.claim(ctx)
		if err == nil {
			err = f.hold(ctx, lease)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, presence.ErrHeld) {
			f.r.log.Warn("forwarding is interrupted; it goes on where it was", "error", err)
		}
		if !wait(ctx, claimEvery) {
			return
		}
	}
}

// claim takes the lease.
func (f *forwarder) claim(ctx context.Context) (presence.Lease, error) {
	if f.r.presence == nil {
		return presence.Lease{Epoch: uint64(f.r.nowMS())}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	return f.r.presence.Acquire(ctx, newID(), forwarderName)
}

func (f *forwarder) release(lease presence.Lease) {
	if f.r.presence == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	if err := f.r.presence.Release(ctx, lease); err != nil {
		f.r.log.Warn("the lease on forwarding could not be given back", "error", err)
	}
}

// hold forwards until the lease is lost, ctx ends or something fails.
func (f *forwarder) hold(ctx context.Context, lease presence.Lease) error {
	defer f.release(lease)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	feeds, err := f.open(ctx, lease, cancel)
	if err != nil {
		return err
	}
	f.r.log.Info("this gateway forwards", "routes", len(f.routes), "partitions", len(feeds))
	var running sync.WaitGroup
	for _, fd := range feeds {
		share := forwardWindow / len(feeds)
		fd.batchSize = min(max(share/2, 1), maxForwardBatch)
		fd.window = max(share-fd.batchSize, 0)
		fd.over = ctx.Done()
		fd.start()
		running.Go(func() { fd.run(ctx) })
	}
	f.commitWhile(ctx, lease, feeds)
	cancel(nil)
	for _, fd := range feeds {
		fd.tail.Close()
	}
	running.Wait()
	if !lease.Lost() {
		last, done := context.WithTimeout(context.Background(), forwardTimeout)
		defer done()
		f.commit(last, lease, feeds)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// errLeaseLost ends forwarding when another gateway may do it.
var errLeaseLost = errors.New("router: the lease on forwarding is lost")

// commitWhile commits about once a second and whenever a feed waits for it, until
// ctx ends or the lease is lost.
func (f *forwarder) commitWhile(ctx context.Context, lease presence.Lease, feeds []*feed) {
	due := make(chan struct{}, 1)
	for _, fd := range feeds {
		fd.setDue(due)
	}
	tick := time.NewTicker(commitInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-due:
		}
		if lease.Lost() {
			f.r.log.Warn("forwarding stops here", "error", errLeaseLost)
			return
		}
		f.commit(ctx, lease, feeds)
	}
}

// commit stores how far the routes are. What fails is tried again.
func (f *forwarder) commit(ctx context.Context, lease presence.Lease, feeds []*feed) {
	var list []store.Commit
	marks := make([]feedMark, len(feeds))
	for i, fd := range feeds {
		marks[i] = fd.mark()
		if marks[i].position <= fd.committed() {
			continue
		}
		for _, n := range fd.routes {
			if marks[i].position >= fd.after[n] {
				list = append(list, store.Commit{
					Identity: forwarderName, Address: fd.key(n), Position: uint64(marks[i].position), Epoch: lease.Epoch,
				})
			}
		}
	}
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	if err := f.r.positions.Commit(ctx, list); err != nil {
		f.r.stats.CommitFailures.Add(1)
		if ctx.Err() == nil {
			f.r.log.Warn("positions of routes could not be committed; they are tried again", "error", err)
		}
		return
	}
	for i, fd := range feeds {
		fd.settleMark(marks[i])
	}
}

// open finds where the routes are and makes a feed for each partition that they
// take from.
func (f *forwarder) open(ctx context.Context, lease presence.Lease, fail context.CancelCauseFunc) ([]*feed, error) {
	reading, cancel := context.WithTimeout(ctx, forwardTimeout)
	known, err := f.r.positions.PositionsOf(reading, forwarderName)
	cancel()
	if err != nil {
		return nil, err
	}
	at := map[string]int64{}
	for _, p := range known {
		at[p.Address] = int64(p.Position)
	}
	var feeds []*feed
	var first []store.Commit // positions of routes that have none, or one beyond the log
	for _, p := range f.r.parts {
		fd := &feed{f: f, p: p, lease: lease, after: map[int]int64{}, fail: fail, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
		for i := range f.routes {
			if name, one := f.routes[i].From.Address(); !one || f.r.placement.Of(name) == p.id {
				fd.routes = append(fd.routes, i)
			}
		}
		if len(fd.routes) == 0 {
			continue
		}
		end, err := p.caughtUp(ctx)
		if err != nil {
			return nil, err
		}
		start := end
		for _, i := range fd.routes {
			position, ok := at[fd.key(i)]
			if !ok || position > end {
				if ok {
					f.r.log.Error("the log ends before a route's position; the route goes on at the end", "route", f.routes[i].Name, "partition", p.id)
				}
				position = end
				first = append(first, store.Commit{Identity: forwarderName, Address: fd.key(i), Position: uint64(end), Epoch: lease.Epoch})
			}
			fd.after[i] = position
			start = min(start, position)
		}
		fd.done, fd.stored = start, start
		feeds = append(feeds, fd)
	}
	if len(first) > 0 {
		writing, cancel := context.WithTimeout(ctx, forwardTimeout)
		defer cancel()
		if err := errors.Join(f.r.positions.RewindPositions(writing, first), f.r.positions.Commit(writing, first)); err != nil {
			return nil, err
		}
	}
	return feeds, nil
}

// caughtUp waits until the tail has shown all that was stored before the call,
// and returns what it has handed on.
func (p *partition) caughtUp(ctx context.Context) (int64, error) {
	marked := uint64(0)
	for {
		shown := p.nextEntry()
		p.mu.Lock()
		if marked == 0 && p.mark() {
			marked = p.seq
		}
		seen, at := p.seen, p.tailAt
		p.mu.Unlock()
		if marked != 0 && seen >= marked {
			return at, nil
		}
		again := time.NewTimer(markInterval)
		select {
		case <-shown:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// startAt is the entry that has a position.
func startAt(position int64) streams.Start {
	if position < 0 {
		return streams.First()
	}
	return streams.From(streams.Position(position).Offset())
}
