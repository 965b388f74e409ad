package usage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

const (
	// slots is how many stretches of time the retention is divided into; what is
	// removed by age is noticed to that fraction of it.
	slots = 64
	// unlimitedKeep is the width of all slots together where retention is by size
	// alone. What is older is counted with the oldest.
	unlimitedKeep = 64 * 24 * time.Hour
	// leastSlot bounds the width from below.
	leastSlot = time.Second

	// maxWorkspaces bounds the workspaces that are counted for themselves; past
	// it all others are counted together, as one, under their common quota.
	maxWorkspaces = 1 << 14
	// maxCells bounds what is kept of a partition: a number for each slot and
	// workspace; past it, too, workspaces are counted together.
	maxCells = 1 << 17

	// saveEvery is how often counts are saved, by one of all gateways; trimEvery
	// how often it is looked what retention has removed.
	saveEvery   = 10 * time.Second
	trimEvery   = time.Minute
	callTimeout = 5 * time.Second
)

// together names the workspaces that are counted as one. No workspace has a
// space in its name.
const together = "all others"

// Options configure a [Usage]. Partitions and First are required.
type Options struct {
	Partitions int
	// Quota is how many bytes a workspace may have; 0 is no limit.
	Quota int64
	// Keep is how long the log keeps what is stored; 0 is without end.
	Keep time.Duration
	// First returns the offset of the first entry that a partition still has.
	First func(ctx context.Context, partition int) (offset uint64, err error)
	// Store keeps the counts; nil: they begin with what the log shows from now
	// on.
	Store  store.Stored
	Logger *slog.Logger
	// Now is the clock; default [time.Now].
	Now func() time.Time
}

// Usage counts. All methods are safe for concurrent use.
type Usage struct {
	o     Options
	width time.Duration
	parts []*Partition

	mu     sync.RWMutex
	totals map[string]*total // at most maxWorkspaces, and one for all others
}

// total is what a workspace has in all partitions.
type total struct {
	name  string // the workspace, or together
	bytes atomic.Int64
	cells int // that count towards it; without any it goes; guarded by Usage.mu
}

// New returns counts of nothing; [Usage.Load] reads what was saved.
func New(o Options) *Usage {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	keep := o.Keep
	if keep <= 0 {
		keep = unlimitedKeep
	}
	u := &Usage{o: o, width: max(keep/slots, leastSlot).Truncate(time.Millisecond), totals: map[string]*total{}}
	for i := range o.Partitions {
		u.parts = append(u.parts, &Partition{u: u, id: i, upTo: none, loaded: none})
	}
	return u
}

// Partition returns the counts of one partition.
func (u *Usage) Partition(i int) *Partition { return u.parts[i] }

// Of returns how many bytes a workspace has, as far as the log has shown.
func (u *Usage) Of(workspace string) int64 {
	u.mu.RLock()
	defer u.mu.RUnlock()
	t := u.totals[workspace]
	if t == nil && len(u.totals) >= maxWorkspaces {
		t = u.totals[together]
	}
	if t == nil {
		return 0
	}
	return t.bytes.Load()
}

// Over reports whether a workspace has as much as it may have.
func (u *Usage) Over(workspace string) bool { return u.o.Quota > 0 && u.Of(workspace) >= u.o.Quota }

// Quota is how many bytes a workspace may have.
func (u *Usage) Quota() int64 { return u.o.Quota }

// hold returns the total to which a workspace counts, for one cell more. coarse
// asks for the one that many share.
func (u *Usage) hold(workspace string, coarse bool) *total {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.totals[workspace]
	if coarse || t == nil && len(u.totals) >= maxWorkspaces {
		workspace = together
		t = u.totals[together]
	}
	if t == nil {
		t = &total{name: workspace}
		u.totals[workspace] = t
	}
	t.cells++
	return t
}

// release takes a cell off a total.
func (u *Usage) release(t *total) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.cells--; t.cells == 0 {
		delete(u.totals, t.name)
	}
}

// Load reads what was saved. It is called before the first Add; after an error
// the counts begin with nothing.
func (u *Usage) Load(ctx context.Context) error {
	if u.o.Store == nil {
		return nil
	}
	for _, p := range u.parts {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		saved, ok, err := u.o.Store.LoadStored(bounded, p.id)
		cancel()
		if err != nil {
			return err
		}
		if ok {
			p.load(saved)
		}
	}
	return nil
}

// Run saves the counts and follows retention until ctx ends.
func (u *Usage) Run(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	trimmed := u.o.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := u.o.Now(); now.Sub(trimmed) >= trimEvery {
			trimmed = now
			u.Trim(ctx)
		}
		if err := u.Save(ctx); err != nil && ctx.Err() == nil {
			u.o.Logger.Warn("what workspaces have stored could not be saved; it is tried again", "error", err)
		}
	}
}

// Trim forgets what retention has removed.
func (u *Usage) Trim(ctx context.Context) {
	for _, p := range u.parts {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		first, err := u.o.First(bounded, p.id)
		cancel()
		if err != nil {
			continue // the next time
		}
		p.trim(first)
	}
}

// Save saves what has changed, unless another gateway has just done it.
func (u *Usage) Save(ctx context.Context) error {
	if u.o.Store == nil {
		return nil
	}
	for _, p := range u.parts {
		if err := p.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// oldest returns the number of the oldest slot that is kept.
func (u *Usage) oldest() int64 { return u.slot(u.o.Now().UnixMilli()) - slots }

func (u *Usage) slot(stampMS int64) int64 { return stampMS / u.width.Milliseconds() }
