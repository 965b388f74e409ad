package audit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// Options configure a [Recorder]. Store, Gateway and Origin are required.
type Options struct {
	Store store.Audit
	// Gateway is the configured name of this gateway; Origin identifies its
	// process among all that ever wrote to the store.
	Gateway, Origin string
	// Retention is how long records are kept; 0 is without end.
	Retention time.Duration
	Logger    *slog.Logger
	// Now is the wall clock; default [time.Now].
	Now func() time.Time
}

const (
	// window is how long the same event is counted in one record, and how often
	// records are written.
	window = time.Second
	// maxWaiting bounds the records that wait for the store. Past it events are
	// only counted.
	maxWaiting = 8192
	// maxBatch is how many records a statement writes, writeTimeout how long it
	// may take.
	maxBatch     = 500
	writeTimeout = 5 * time.Second
	// expireEvery is how often old records are removed, give or take a tenth.
	expireEvery = time.Hour
)

// rates bound how many records a kind may make over time, however many make
// them, so that no flood fills the disk; what is beyond is only counted. The
// others are made by operators.
var rates = map[Kind]rate{
	Refusal: {perSecond: 20, burst: 2000},
	Connect: {perSecond: 200, burst: 20_000},
	Task:    {perSecond: 200, burst: 20_000},
}

type rate struct{ perSecond, burst float64 }

// bucket is how many records a kind may make now.
type bucket struct {
	tokens float64
	at     time.Time
}

// Recorder records events. All methods are safe for concurrent use. It must be
// closed.
type Recorder struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended

	recorded, overflowed, stored, failures atomic.Uint64

	mu      sync.Mutex
	closed  bool
	seq     uint64
	open    map[Event]*store.AuditRecord // of this window, by what they have in common
	order   []*store.AuditRecord         // the same in the order of their making
	waiting []store.AuditRecord          // of earlier windows
	lost    map[Kind]*store.AuditRecord  // events that found no room; at most one a kind
	buckets map[Kind]*bucket
}

// New returns a recorder that writes until it is closed.
func New(o Options) *Recorder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Recorder{
		o: o, done: make(chan struct{}),
		open: map[Event]*store.AuditRecord{}, lost: map[Kind]*store.AuditRecord{}, buckets: map[Kind]*bucket{},
	}
	for kind, rate := range rates {
		r.buckets[kind] = &bucket{tokens: rate.burst, at: o.Now()}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.run()
	return r
}

// Record takes an event. It never waits for the store. A nil recorder records
// nothing.
func (r *Recorder) Record(e Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.recorded.Add(1)
	key := e.like()
	if rec := r.open[key]; rec != nil {
		rec.Count++
		return
	}
	now := r.o.Now()
	if len(r.waiting)+len(r.order) >= maxWaiting || !r.allowed(e.Kind, now) {
		r.overflow(e.Kind, now)
		return
	}
	rec := r.record(&e, now)
	r.open[key] = rec
	r.order = append(r.order, rec)
}

// allowed takes a record of what the kind may make. The lock is held, here and
// below.
func (r *Recorder) allowed(kind Kind, now time.Time) bool {
	b := r.buckets[kind]
	if b == nil {
		return true
	}
	rate := rates[kind]
	b.tokens = min(rate.burst, b.tokens+max(0, now.Sub(b.at).Seconds())*rate.perSecond)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (r *Recorder) overflow(kind Kind, now time.Time) {
	r.overflowed.Add(1)
	rec := r.lost[kind]
	if rec == nil {
		rec = r.record(&Event{
			Kind: Overflow, Actor: r.o.Gateway, Action: "overflow", Target: string(kind), Outcome: Failed,
			Detail: "events that were counted but not recorded one by one",
		}, now)
		rec.Count = 0
		r.lost[kind] = rec
	}
	rec.Count++
}

func (r *Recorder) record(e *Event, now time.Time) *store.AuditRecord {
	r.seq++
	return &store.AuditRecord{
		AuditKey: store.AuditKey{At: time.UnixMilli(now.UnixMilli()), Origin: r.o.Origin, Seq: r.seq},
		Gateway:  clean(r.o.Gateway), Kind: string(e.Kind), Actor: clean(e.Actor), Action: clean(e.Action), Target: clean(e.Target),
		Outcome: clean(e.Outcome), Reason: clean(e.Reason), Detail: clean(e.Detail), Count: 1,
	}
}

// turn ends the window: its records wait for the store from now on.
func (r *Recorder) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.order {
		r.waiting = append(r.waiting, *rec)
	}
	r.open, r.order = map[Event]*store.AuditRecord{}, nil
	if len(r.waiting) >= maxWaiting {
		return // the store is away; they are counted on
	}
	for kind, rec := range r.lost {
		r.waiting = append(r.waiting, *rec)
		delete(r.lost, kind)
	}
}

// next returns the batch that is to be written.
func (r *Recorder) next() []store.AuditRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[:min(len(r.waiting), maxBatch):min(len(r.waiting), maxBatch)]
}

// wrote forgets the first n.
func (r *Recorder) wrote(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored.Add(uint64(n))
	r.waiting = r.waiting[n:]
	if len(r.waiting) == 0 {
		r.waiting = nil
	}
}

// flush writes all that waits. What could not be written goes on waiting.
func (r *Recorder) flush(ctx context.Context) error {
	r.turn()
	for {
		batch := r.next()
		if len(batch) == 0 {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, writeTimeout)
		err := r.o.Store.RecordAudit(bounded, batch)
		cancel()
		if err != nil {
			r.failures.Add(1)
			return err
		}
		r.wrote(len(batch))
	}
}

// run writes once in a window.
func (r *Recorder) run() {
	defer close(r.done)
	tick := time.NewTicker(window)
	defer tick.Stop()
	failing := false
	expireAt := r.o.Now().Add(rand.N(expireEvery / 10))
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		err := r.flush(r.ctx)
		switch {
		case r.ctx.Err() != nil:
			return
		case err != nil && !failing:
			r.o.Logger.Warn("the audit cannot be written; it waits, and what finds no room is counted", "error", err)
		case err == nil && failing:
			r.o.Logger.Info("the audit is written again")
		}
		failing = err != nil
		if now := r.o.Now(); r.o.Retention > 0 && !failing && now.After(expireAt) {
			expireAt = now.Add(expireEvery - expireEvery/10 + rand.N(expireEvery/5))
			r.expire(now.Add(-r.o.Retention))
		}
	}
}

func (r *Recorder) expire(before time.Time) {
	bounded, cancel := context.WithTimeout(r.ctx, writeTimeout)
	defer cancel()
	if _, err := r.o.Store.ExpireAudit(bounded, before); err != nil && r.ctx.Err() == nil {
		r.o.Logger.Warn("old records of the audit could not be removed", "error", err)
	}
}

// Close takes no more events and writes what waits, until ctx ends. The error
// says what could not be written.
func (r *Recorder) Close(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	<-r.done
	err := r.flush(ctx)
	if err == nil {
		err = r.flush(ctx) // what was over the bound at first
	}
	if err != nil {
		r.mu.Lock()
		left := len(r.waiting)
		r.mu.Unlock()
		return fmt.Errorf("audit: %d records are lost: %w", left, err)
	}
	return nil
}

// Stats are counts since the start.
type Stats struct {
	// Recorded counts events, Overflowed those that are in no record but of
	// their number, Stored records, Failures writes that failed.
	Recorded, Overflowed, Stored, Failures uint64
}

// Stats returns the counts.
func (r *Recorder) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	return Stats{Recorded: r.recorded.Load(), Overflowed: r.overflowed.Load(), Stored: r.stored.Load(), Failures: r.failures.Load()}
}
