package router

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// firstFor is how old what is known of a log's first entry may be when
	// somebody begins to read far back.
	firstFor = time.Second
	// upkeepInterval is how often positions are looked at that fall behind.
	upkeepInterval = time.Minute
	// touchInterval is how often what the store keeps of sessions that go on is
	// made as new as now, and how often what is too old is removed.
	touchInterval = time.Hour
)

// leftFrom returns the lowest position that a partition may still have.
func (r *Router) leftFrom(ctx context.Context, p *partition) (int64, error) {
	bounded, cancel := context.WithTimeout(ctx, readerIdle)
	defer cancel()
	e, err := r.driver.First(bounded, p.id)
	if err != nil {
		return 0, err
	}
	return int64(streams.At(e.Offset, 0)), nil
}

// checkLost looks whether retention has removed what those need whom a pass may
// serve, and tells them (delivery rule C6). They go on at what is left.
// It reports false if the pass has nobody to serve then.
func (r *reader) checkLost(ctx context.Context, p *pass) (some bool, err error) {
	first, err := r.p.r.leftFrom(ctx, r.p)
	if err != nil {
		return false, err
	}
	var list []reading
	r.mu.Lock()
	r.checked = r.p.r.now()
	for rd, pl := range r.waiting {
		if (pl.pass == nil || pl.pass == p) && rd.at()+1 < first {
			delete(r.waiting, rd)
			list = append(list, rd)
			continue
		}
		some = some || pl.pass == p
	}
	p.at = max(p.at, first-1)
	r.mu.Unlock()
	for _, rd := range list {
		if rd.claim(delivery.FedByReader) {
			rd.lose(first)
			r.p.r.spawn(func(context.Context) { r.p.catchUp(rd) })
		}
	}
	return some, nil
}

// suspicious reports whether a pass has come to a gap that retention may have
// torn since it was last looked for. Gaps of other kinds are rare.
func (r *reader) suspicious(p *pass, e streams.Entry) bool {
	before := p.last
	p.last = e.Offset
	if before == 0 || e.Offset <= before+1 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.p.r.now().Sub(r.checked) > firstFor
}

// lose tells the session that retention has removed what it was to get, and
// leads on to what is left. A session that is to leap has nothing to get before
// the leap that anybody knows of: only what lies behind it counts. So nobody is
// told of a gap because of an old position alone.
func (in *inbox) lose(first int64) {
	if in.leap.after != 0 {
		to := in.leap.to
		in.leap = leap{}
		in.Advance(to)
	}
	if at := in.At(); at+1 < first {
		in.sub.gap(Gap{Topic: in.Address, Reason: GapRetention, FirstMissing: uint64(at + 1), HasFirst: true})
		in.Advance(first - 1)
	}
}

// lose implements reading. What nobody has worked on is not kept.
func (g *group) lose(first int64) { g.advance(first - 1) }

// lookAfterStore keeps what the store knows of sessions and addresses from
// growing old or piling up.
func (r *Router) lookAfterStore(ctx context.Context) {
	for n := 1; wait(ctx, upkeepInterval); n++ {
		r.keepUp(ctx)
		r.purge(ctx)
		r.recheckNotes(ctx)
		if n%int(touchInterval/upkeepInterval) == 0 {
			r.touch(ctx)
			r.expire(ctx)
		}
	}
}

// keepUp has the positions of those committed who have all that the log shows,
// and whose position lies in the older half of what the log has. Without it a
// session that got nothing for long and whose gateway dies would look as if it
// had lost what retention has removed meanwhile.
func (r *Router) keepUp(ctx context.Context) {
	byPart := map[*partition][]*inbox{}
	for _, s := range r.subscriptions() {
		for _, in := range s.inboxes {
			if in.Fed() == delivery.FedByTail {
				byPart[in.p] = append(byPart[in.p], in)
			}
		}
	}
	for p, list := range byPart {
		first, err := r.leftFrom(ctx, p)
		if err != nil {
			return // the next round
		}
		p.mu.Lock()
		middle := first + (p.tailAt-first)/2
		p.mu.Unlock()
		for _, in := range list {
			if in.Saved() < middle {
				in.Renew()
			}
		}
	}
}

// recheckNotes reads once more the notes of sessions that have been there for as
// long as others may have taken their addresses for absent: what those noted
// meanwhile would outlive the session, and look like lost mail one day.
func (r *Router) recheckNotes(ctx context.Context) {
	due := r.now().Add(-presence.Staleness - noteValidFor(r.presence) - r.publishTimeout)
	for _, s := range r.subscriptions() {
		if s.began.After(due) {
			continue
		}
		for _, in := range s.inboxes {
			if in.rechecked {
				continue
			}
			bounded, cancel := context.WithTimeout(ctx, commitTimeout)
			note, noted, err := r.positions.Note(bounded, in.Address)
			cancel()
			if err != nil {
				return // the next round
			}
			in.rechecked = true
			if noted {
				in.setNote(note, true)
			}
		}
	}
}

// touch makes the rows of sessions that go on as new as now.
func (r *Router) touch(ctx context.Context) {
	var list []store.Session
	for _, s := range r.subscriptions() {
		for _, in := range s.inboxes {
			list = append(list, store.Session{
				Identity: in.Identity, Address: in.Address, Workspace: s.reads.Workspace, Epoch: s.reads.Lease.Epoch,
			})
		}
	}
	if len(list) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, upkeepInterval)
	defer cancel()
	if err := r.positions.TouchSessions(bounded, list); err != nil {
		r.log.Warn("the rows of sessions could not be kept new; it is tried again in an hour", "error", err)
	}
}

// expire removes notes, marks and positions that are older than everything that
// any partition holds. The age alone would not do: a broker removes whole
// segments, and keeps one that is not full for as long as it likes.
func (r *Router) expire(ctx context.Context) {
	if r.retention <= 0 {
		return
	}
	before := r.now().Add(-r.retention)
	for _, p := range r.parts {
		bounded, cancel := context.WithTimeout(ctx, readerIdle)
		e, err := r.driver.First(bounded, p.id)
		cancel()
		if err != nil {
			return // the next round
		}
		if stamp := stampOf(e); e.Data != nil && time.UnixMilli(stamp).Before(before) {
			before = time.UnixMilli(stamp)
		}
	}
	// Rows of a session that goes on are as old as the last touch, or the one
	// before if that failed.
	before = before.Add(-2*touchInterval - clockSkew)
	bounded, cancel := context.WithTimeout(ctx, upkeepInterval)
	defer cancel()
	var total int64
	removals := []func(context.Context, time.Time) (int64, error){
		r.positions.ExpireNotes, r.positions.ExpireMarks, r.positions.ExpirePositions,
	}
	if r.spaces.store != nil {
		removals = append(removals, r.spaces.store.ExpireWorkspaces)
	}
	for _, remove := range removals {
		n, err := remove(bounded, before)
		total += n
		if err != nil {
			r.log.Warn("old rows could not be removed; it is tried again in an hour", "error", err)
			return
		}
	}
	if total > 0 {
		r.log.Info("what the store kept was removed that is older than the log", "rows", total, "before", before)
	}
}
