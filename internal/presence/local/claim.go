package local

import (
	"context"
	"fmt"
	"slices"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Acquire implements [presence.Leases].
func (l *Leases) Acquire(ctx context.Context, sessionID string, names ...string) (presence.Lease, error) {
	g, err := l.Claim(ctx, presence.Claim{SessionID: sessionID, Names: names})
	return g.Lease, err
}

// attempts is how often a claim follows a name that moves on meanwhile.
const attempts = 3

// Claim implements [presence.Registry].
func (l *Leases) Claim(ctx context.Context, c presence.Claim) (presence.Grant, error) {
	if err := c.Check(); err != nil {
		return presence.Grant{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for range attempts {
		if l.closed {
			return presence.Grant{}, presence.ErrClosed
		}
		if l.sessions[c.SessionID] != nil {
			return presence.Grant{}, fmt.Errorf("%w: the session id is in use", presence.ErrInvalid)
		}
		old := l.holder(c.Names[0])
		if old == nil || old.lease.Names[0] != c.Names[0] || !old.accepts(c.Resume) {
			return l.fresh(c)
		}
		if rec := l.obstacle(c.Names, old); rec != nil {
			return presence.Grant{}, &presence.HeldError{SessionID: rec.lease.SessionID}
		}
		l.yield(ctx, old)
		if err := ctx.Err(); err != nil {
			l.settle(old)
			return presence.Grant{}, &presence.UnavailableError{Reason: err.Error()}
		}
		if l.sessions[old.lease.SessionID] == old {
			if rec := l.obstacle(c.Names, old); rec != nil {
				l.settle(old)
				return presence.Grant{}, &presence.HeldError{SessionID: rec.lease.SessionID}
			}
			return l.take(c, old), nil
		}
	}
	return presence.Grant{}, presence.ErrHeld
}

func (r *record) accepts(id string) bool {
	return r.lease.SessionID == id || slices.Contains(r.preds, id)
}

func (l *Leases) obstacle(names []string, except *record) *record {
	for _, name := range names {
		if rec := l.conflict(name, except); rec != nil {
			return rec
		}
	}
	return nil
}

func (l *Leases) fresh(c presence.Claim) (presence.Grant, error) {
	if rec := l.obstacle(c.Names, nil); rec != nil {
		return presence.Grant{}, &presence.HeldError{SessionID: rec.lease.SessionID}
	}
	rec := l.add(c)
	g := presence.Grant{Lease: rec.lease}
	if gone, ok := l.remembered(c.Resume); ok && gone.holding.Names[0] == c.Names[0] {
		delete(l.gone, c.Resume)
		rec.watermark, rec.preds = gone.watermark, []string{c.Resume}
		l.aliases[c.Resume] = rec
		g.Resumed, g.Watermark = true, gone.watermark
	}
	return g, nil
}

// add makes the record of a lease that nothing stands against.
func (l *Leases) add(c presence.Claim) *record {
	// Unix milliseconds, so that a new process never issues an epoch below
	// one that an earlier process left in the store (delivery rule L1).
	l.epoch = max(l.epoch+1, uint64(l.now().UnixMilli()))
	rec := &record{lease: presence.Lease{
		SessionID: c.SessionID, Names: slices.Clone(c.Names), Epoch: l.epoch, Hold: presence.NewHold(nil),
	}}
	l.sessions[c.SessionID] = rec
	for _, name := range rec.lease.Names {
		set, key := l.place(name)
		set[key] = rec
	}
	return rec
}

// yield asks the session to stop. The mutex is not held meanwhile, and the
// record may have been taken by another when it returns.
func (l *Leases) yield(ctx context.Context, old *record) {
	if l.handler == nil {
		return
	}
	h := l.handler
	old.yielding++
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, presence.HandOver)
	watermark, exact := h.Yield(ctx, old.lease.SessionID)
	cancel()
	l.mu.Lock()
	old.yielding--
	if exact && len(watermark) <= presence.MaxWatermark {
		old.watermark, old.exact = watermark, true
	}
}

// settle drops a record that was released while it was to be taken over, which
// has not happened.
func (l *Leases) settle(rec *record) {
	if rec.released && rec.yielding == 0 && l.sessions[rec.lease.SessionID] == rec {
		l.drop(rec)
	}
}

func (l *Leases) take(c presence.Claim, old *record) presence.Grant {
	l.unlink(old)
	rec := l.add(c)
	rec.watermark = old.watermark
	rec.preds = append(old.preds, old.lease.SessionID)
	rec.preds = rec.preds[max(0, len(rec.preds)-maxPreds):]
	if !slices.Contains(rec.preds, c.Resume) {
		rec.preds[0] = c.Resume // the client knows no later one
	}
	for _, id := range rec.preds {
		l.aliases[id] = rec
	}
	old.lease.Hold.Drop()
	if !old.exact && l.handler != nil {
		h := l.handler
		l.mu.Unlock()
		h.Lost(old.lease, presence.ErrSuperseded)
		l.mu.Lock()
	}
	return presence.Grant{Lease: rec.lease, Resumed: true, Watermark: old.watermark, Exact: old.exact}
}

// Confirm implements [presence.Registry].
func (l *Leases) Confirm(lease presence.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.current(lease)
	if rec == nil {
		return
	}
	for _, id := range rec.preds {
		if l.aliases[id] == rec {
			delete(l.aliases, id)
		}
	}
	rec.preds = nil
}

func (l *Leases) current(lease presence.Lease) *record {
	if rec := l.sessions[lease.SessionID]; rec != nil && rec.lease.Epoch == lease.Epoch {
		return rec
	}
	return nil
}

// Mark implements [presence.Registry].
func (l *Leases) Mark(lease presence.Lease, watermark []byte) error {
	if len(watermark) > presence.MaxWatermark {
		return presence.ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec := l.current(lease); rec != nil && !rec.exact {
		rec.watermark = watermark
	}
	return nil
}

// Release implements [presence.Leases].
func (l *Leases) Release(_ context.Context, lease presence.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.current(lease)
	if rec == nil {
		return nil
	}
	rec.lease.Hold.Drop()
	rec.released = true
	l.settle(rec)
	return nil
}

// Find implements [presence.Registry].
func (l *Leases) Find(_ context.Context, sessionID string) (presence.Holding, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.sessions[sessionID]
	if rec == nil {
		rec = l.aliases[sessionID]
	}
	if rec != nil {
		return presence.Holding{SessionID: rec.lease.SessionID, Names: rec.lease.Names, Epoch: rec.lease.Epoch}, nil
	}
	if gone, ok := l.remembered(sessionID); ok {
		return gone.holding, nil
	}
	return presence.Holding{}, presence.ErrNotFound
}

func (l *Leases) remembered(id string) (departed, bool) {
	gone, ok := l.gone[id]
	return gone, ok && l.now().Before(gone.until)
}
