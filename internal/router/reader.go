package router

import (
	"context"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/streams"
)

// readerIdle is how long the reader waits for an entry, although some must
// come, before it takes its connection for dead.
const readerIdle = 5 * time.Second

// reader reads a partition for all who are further behind than the ring
// reaches. There is one consumer for all of them: it starts at the lowest
// position that somebody waits for, and starts again there when nobody is
// left in front of it (delivery rule C8).
type reader struct {
	p *partition

	mu      sync.Mutex
	waiting map[reading]bool // value: the present pass serves it
	running bool
	passed  chan struct{} // closed when the present pass serves nobody any more
}

// add makes the reader serve rd, whose feeder it is from now on.
func (r *reader) add(rd reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[reading]bool{}
	}
	r.waiting[rd] = false
	if !r.running {
		r.running = r.p.r.spawn(r.run)
	}
}

// remove forgets rd.
func (r *reader) remove(rd reading) {
	r.mu.Lock()
	delete(r.waiting, rd)
	r.mu.Unlock()
}

func (r *reader) run(ctx context.Context) {
	failures := 0
	for {
		start, ok := r.begin()
		if !ok {
			return
		}
		if err := r.pass(ctx, start); err != nil {
			if ctx.Err() != nil {
				r.mu.Lock()
				r.running = false
				r.mu.Unlock()
				return
			}
			failures++
			r.p.r.log.Warn("cannot read a partition for those who are behind", "partition", r.p.id, "error", err)
			wait(ctx, backoffAfter(failures))
			continue
		}
		failures = 0
	}
}

// begin starts a pass at the lowest position that is waited for.
func (r *reader) begin() (streams.Start, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.running = false
		return streams.Start{}, false
	}
	lowest, first := none, true
	for rd := range r.waiting {
		r.waiting[rd] = true
		if at := rd.at(); first || at < lowest {
			lowest, first = at, false
		}
	}
	r.passed = make(chan struct{})
	r.p.r.stats.CatchUps.Add(1)
	if lowest == none {
		return streams.First(), true
	}
	return streams.From(streams.Position(lowest).Offset()), true
}

// pass reads from start until it serves nobody any more.
func (r *reader) pass(ctx context.Context, start streams.Start) error {
	r.mu.Lock()
	passed := r.passed
	r.mu.Unlock()
	alive := make(chan struct{}, 1)
	opening, cancel := context.WithTimeout(ctx, readerIdle)
	c, err := r.p.r.driver.OpenConsumer(opening, r.p.id, start, func(e streams.Entry) {
		select {
		case alive <- struct{}{}:
		default:
		}
		r.handle(e, passed)
	})
	cancel()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	idle := time.NewTimer(readerIdle)
	defer idle.Stop()
	for {
		select {
		case <-passed:
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

// handle serves everybody with one entry. Who is full leaves; who has come as
// far as the ring reaches is handed over to its own pump.
func (r *reader) handle(e streams.Entry, passed chan struct{}) {
	serve := r.served(e.Offset)
	for _, rd := range serve {
		if endOf(e.Offset) > rd.at() && !r.p.handOn(rd, e) {
			r.remove(rd)
			continue
		}
		r.p.mu.Lock()
		covered := r.p.recent.covers(rd.at())
		r.p.mu.Unlock()
		if covered {
			r.remove(rd)
			rd.starve(rd.at())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, served := range r.waiting {
		if served {
			return
		}
	}
	select {
	case <-passed:
	default:
		close(passed)
	}
}

// served returns whom the pass serves. Who came later may join if the reader
// has not passed its position yet.
func (r *reader) served(offset uint64) []reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]reading, 0, len(r.waiting))
	for rd, served := range r.waiting {
		if !rd.claim(delivery.FedByReader) {
			delete(r.waiting, rd) // its session has ended
			continue
		}
		if !served {
			at := rd.at()
			if at == none || streams.Position(at).Offset() < offset {
				continue
			}
			r.waiting[rd] = true
		}
		list = append(list, rd)
	}
	return list
}
