package router

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// readerIdle is how long a pass waits for an entry, although some must
	// come, before it takes its connection for dead.
	readerIdle = 5 * time.Second
	// readerTurn is how long a pass goes on while somebody waits for whom it
	// has come too far.
	readerTurn = 250 * time.Millisecond
	// readerPasses is how many consumers serve those who are behind.
	readerPasses = 2
)

// reader reads a partition for all who are further behind than the ring
// reaches (delivery rule C8). At most two passes run at a time, each one
// consumer: the first begins at the lowest position that waits for it, the
// second with whoever has waited longest. A pass takes along everybody whose
// place it comes by, and ends when nobody is left, or when its turn is over
// and others wait: so nobody waits for the end of somebody else's reading.
type reader struct {
	p *partition

	mu      sync.Mutex
	waiting map[reading]*place
	order   uint64
	passes  [readerPasses]*pass
	checked time.Time // when it was last looked what is left of the log
}

// place is where a reading waits.
type place struct {
	order uint64 // of arrival
	pass  *pass  // that serves it; nil while it waits for one
}

// pass is one run over a part of the log.
type pass struct {
	at       int64 // everything up to here was shown to those it serves
	standsAt int64 // the end of the entry that is being shown; none between two
	lingers  bool
	began    time.Time
	over     chan struct{} // closed when it is to end
	back     chan struct{} // rouses it when it lingers; holds one
	seen     window        // of the consumer's goroutine
	last     uint64        // the offset of the last entry; of its consumer
}

func newPass() *pass {
	return &pass{standsAt: none, over: make(chan struct{}), back: make(chan struct{}, 1)}
}

// end ends a pass. The reader's lock is held.
func (p *pass) end() {
	if !p.isOver() {
		close(p.over)
	}
}

// add makes the reader serve rd, whose feeder it is from now on.
func (r *reader) add(rd reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[reading]*place{}
	}
	r.order++
	r.waiting[rd] = &place{order: r.order}
	at := rd.at()
	for _, p := range r.passes {
		if p != nil && !p.isOver() && p.stands(at) {
			p.rouse()
			return // it looks before it goes on
		}
	}
	for i := range r.passes {
		if r.passes[i] == nil {
			r.passes[i] = newPass()
			if !r.p.r.spawn(func(ctx context.Context) { r.run(ctx, i) }) {
				r.passes[i] = nil
			}
			return
		}
	}
	for _, p := range r.passes {
		p.rouse() // who lingers is in the way
	}
}

// remove forgets rd.
func (r *reader) remove(rd reading) {
	r.mu.Lock()
	delete(r.waiting, rd)
	r.mu.Unlock()
}

// run makes passes as long as somebody waits for one.
func (r *reader) run(ctx context.Context, i int) {
	failures := 0
	for {
		p := r.begin(i)
		if p == nil {
			return
		}
		err := r.read(ctx, p)
		r.release(p)
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() == nil {
			failures++
			r.p.r.log.Warn("cannot read a partition for those who are behind", "partition", r.p.id, "error", err)
		}
		if !wait(ctx, backoffAfter(failures)) {
			r.mu.Lock()
			r.passes[i] = nil
			r.mu.Unlock()
			return
		}
	}
}

// begin starts a pass for one that waits, nil if nobody does.
func (r *reader) begin(i int) *pass {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first *place
	at := none
	for rd, pl := range r.waiting {
		if pl.pass != nil {
			continue
		}
		position := rd.at()
		if first == nil || i == 0 && position < at || i != 0 && pl.order < first.order {
			first, at = pl, position
		}
	}
	if first == nil {
		r.passes[i] = nil
		return nil
	}
	p := newPass()
	p.at, p.began = at, r.p.r.now()
	first.pass = p
	r.passes[i] = p
	r.p.r.stats.CatchUps.Add(1)
	return p
}

// release lets those that a pass did not finish wait for another.
func (r *reader) release(p *pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pl := range r.waiting {
		if pl.pass == p {
			r.order++
			pl.pass, pl.order = nil, r.order
		}
	}
}

// read makes one pass.
func (r *reader) read(ctx context.Context, p *pass) error {
	r.mu.Lock()
	start := streams.First()
	if p.at != none {
		start = streams.From(streams.Position(p.at).Offset())
	}
	r.mu.Unlock()
	// What is left of the log is looked up meanwhile: each takes several
	// questions to the broker. Nothing is shown before that is known.
	looked := make(chan error, 1)
	go func() {
		some, err := r.checkLost(ctx, p)
		if err == nil && !some {
			err = errNobodyLeft
		}
		looked <- err
	}()
	known, left := make(chan struct{}), make(chan struct{})
	alive := make(chan struct{}, 1)
	opening, cancel := context.WithTimeout(ctx, readerIdle)
	c, err := r.p.r.driver.OpenConsumer(opening, r.p.id, start, func(e streams.Entry) {
		select {
		case <-known:
		case <-left:
			return
		}
		select {
		case alive <- struct{}{}:
		default:
		}
		r.handle(e, p)
	})
	cancel()
	lookErr := <-looked
	if err == nil {
		defer func() { _ = c.Close() }()
	}
	switch {
	case errors.Is(lookErr, errNobodyLeft):
		close(left)
		return nil
	case lookErr != nil || err != nil:
		close(left)
		return cmp.Or(err, lookErr)
	}
	close(known)
	idle := time.NewTimer(readerIdle)
	defer idle.Stop()
	for {
		select {
		case <-p.over:
			return nil
		case <-alive:
			idle.Reset(readerIdle)
		case <-c.Done():
			return streams.ErrClosed
		case <-idle.C:
			return errReaderIdle
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handle shows an entry to everybody whom the pass serves. Who is full leaves;
// who has leapt ahead waits for another pass; who has come as far as the ring
// reaches goes on from there by itself: its own pump may be stuck with a client
// that does not read.
func (r *reader) handle(e streams.Entry, p *pass) {
	if r.suspicious(p, e) {
		r.mu.Lock()
		p.end()
		r.mu.Unlock()
		return
	}
	end := endOf(e.Offset)
	r.mu.Lock()
	p.standsAt = end
	r.mu.Unlock()
	for r.stay(p, r.show(e, p, end)) {
	}
}

// show shows an entry to everybody whom the pass serves, and reports whether
// somebody was full.
func (r *reader) show(e streams.Entry, p *pass, end int64) (full bool) {
	list := r.board(p, end)
	var has *contents
	if len(list) > 1 {
		has = contentsOf(e)
	}
	for _, rd := range list {
		// Off the list first: its pump may add it again at once.
		if r.p.beyondTail(end) && r.p.covers(rd.at()) {
			// The tail has not judged it (P6), and will deliver it.
			r.remove(rd)
			r.p.r.spawn(func(context.Context) { r.p.catchUp(rd) })
			continue
		}
		if address, ok := rd.skims(); ok && has != nil && has.lack(address) {
			rd.advance(end)
		} else if upTo, ok := r.p.handOn(rd, e, &p.seen); !ok {
			r.remove(rd)
			rd.starve(upTo)
			full = true
			continue
		}
		if at := rd.at(); at > end || r.p.covers(at) {
			r.remove(rd)
			r.p.r.spawn(func(context.Context) { r.p.catchUp(rd) })
		}
	}
	return full
}

// board returns whom a pass serves with the entry that ends at end. Whoever
// waits for an entry that has not passed yet joins.
func (r *reader) board(p *pass, end int64) []reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.isOver() {
		return nil
	}
	var list []reading
	for rd, pl := range r.waiting {
		at := rd.at()
		if pl.pass == nil && at >= p.at && at < end {
			pl.pass = p
		}
		if pl.pass != p || at >= end {
			continue
		}
		if !rd.claim(delivery.FedByReader) {
			delete(r.waiting, rd) // its session has ended
			continue
		}
		list = append(list, rd)
	}
	return list
}

// covers reports whether the ring has everything after a position.
func (p *partition) covers(at int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.covers(at)
}

// beyondTail reports whether the tail has yet to come as far as a position.
func (p *partition) beyondTail(position int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return position > p.tailAt
}
