package router

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/usage"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// namesEvery is how often it is counted for how many addresses the store keeps
// notes and marks.
const namesEvery = 30 * time.Second

// quotas are what a workspace may keep (gateway.md 18): bytes in the log, and
// addresses in the store, which anybody can make up.
type quotas struct {
	usage *usage.Usage // nil: bytes are not limited
	names int          // notes and marks of a workspace; 0: no limit
	// crowded are the workspaces that have more.
	crowded atomic.Pointer[map[string]struct{}]
}

// openQuotas reads what was stored before this process.
func (r *Router) openQuotas(o Options) {
	r.quotas.names = o.AddressQuota
	if o.ByteQuota <= 0 {
		return
	}
	r.quotas.usage = usage.New(usage.Options{
		Partitions: o.Placement.Count(), Quota: o.ByteQuota, Keep: o.Retention, Store: o.Stored, Logger: r.log, Now: r.now,
		First: func(ctx context.Context, partition int) (uint64, error) {
			e, err := r.driver.First(ctx, partition)
			return e.Offset, err
		},
	})
	if err := r.quotas.usage.Load(r.ctx); err != nil {
		r.log.Warn("what workspaces have stored could not be read; it is counted from now on", "error", err)
	}
}

// checkQuota refuses a send of a workspace that has its bytes.
func (r *Router) checkQuota(workspace string) *wireerr.Error {
	u := r.quotas.usage
	if u == nil || workspace == "" || !u.Over(workspace) {
		return nil
	}
	return wireerr.New(wireerr.QuotaExceeded, "the workspace has as much in the log as it may have; the message is not stored").
		With("limit", strconv.FormatInt(u.Quota(), 10)).With("unit", "bytes")
}

// checkNames refuses a send to an address that nobody holds, for which a note
// would be kept, if its workspace has too many. The lock is held.
func (p *partition) checkNames(topic, workspace string) *wireerr.Error {
	crowded := p.r.quotas.crowded.Load()
	if crowded == nil {
		return nil
	}
	if _, ok := (*crowded)[workspace]; !ok || p.findString(topic) != nil || !isMailbox(topic) || p.r.heldElsewhere(topic) {
		return nil
	}
	return wireerr.New(wireerr.QuotaExceeded, "nobody is connected under this address, and the workspace has as many addresses as it may have; the message is not stored").
		With("limit", strconv.Itoa(p.r.quotas.names)).With("unit", "addresses")
}

// countNames keeps crowded up to date. What it does not know it does not limit.
func (r *Router) countNames(ctx context.Context) {
	if r.quotas.names <= 0 {
		return
	}
	for {
		if err := r.recountNames(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("notes and marks could not be counted; it is tried again", "error", err)
		}
		if !wait(ctx, namesEvery) {
			return
		}
	}
}

func (r *Router) recountNames(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	notes, err := r.positions.CountNotes(bounded)
	if err != nil {
		return err
	}
	marks, err := r.positions.CountMarks(bounded)
	if err != nil {
		return err
	}
	crowded := map[string]struct{}{}
	for _, counts := range []map[string]int64{notes, marks} {
		for workspace := range counts {
			if notes[workspace]+marks[workspace] >= int64(r.quotas.names) {
				crowded[workspace] = struct{}{}
			}
		}
	}
	if len(crowded) == 0 {
		r.quotas.crowded.Store(nil)
		return nil
	}
	r.quotas.crowded.Store(&crowded)
	return nil
}
