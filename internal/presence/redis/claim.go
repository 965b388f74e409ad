package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aether-gateway/gateway/internal/presence"
)

// attempts is how often a claim follows a name that moves on meanwhile.
const attempts = 3

// Acquire implements [presence.Leases].
func (p *Presence) Acquire(ctx context.Context, sessionID string, names ...string) (presence.Lease, error) {
	g, err := p.Claim(ctx, presence.Claim{SessionID: sessionID, Names: names})
	return g.Lease, err
}

// attempt is the state under which a claim is made: what it is granted is
// worth nothing under another.
type attempt struct {
	presence.Claim
	incarnation string
	fence       *presence.Fence
	names       []any
}

// Claim implements [presence.Registry].
func (p *Presence) Claim(ctx context.Context, c presence.Claim) (presence.Grant, error) {
	if err := c.Check(); err != nil {
		return presence.Grant{}, err
	}
	a := attempt{Claim: c}
	a.Names = slices.Clone(c.Names)
	for _, name := range a.Names {
		a.names = append(a.names, name)
	}
	if err := p.begin(&a); err != nil {
		return presence.Grant{}, err
	}
	g, err := p.claim(ctx, &a)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, c.SessionID)
	return g, err
}

func (p *Presence) begin(a *attempt) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ready(); err != nil {
		return err
	}
	if _, pending := p.pending[a.SessionID]; pending || p.own[a.SessionID] != nil {
		return errUsed
	}
	p.pending[a.SessionID] = false
	a.incarnation, a.fence = p.incarnation, p.fence
	return nil
}

var errUsed = fmt.Errorf("%w: the session id is in use", presence.ErrInvalid)

func (p *Presence) claim(ctx context.Context, a *attempt) (presence.Grant, error) {
	for range attempts {
		args := append([]any{a.SessionID, a.Resume}, a.names...)
		r, err := p.run(ctx, claimScript, a.incarnation, args...)
		if err != nil {
			return presence.Grant{}, p.unknown(ctx, a, err)
		}
		if r.status == statusTake {
			g, again, err := p.takeOver(ctx, a, r)
			if again {
				continue
			}
			return g, err
		}
		if r.status != statusOK {
			return presence.Grant{}, p.refusal(a, r)
		}
		g := presence.Grant{Resumed: r.number(1) == 1}
		if w := r.text(2); w != "" {
			g.Watermark = []byte(w)
		}
		return p.adopt(a, uint64(r.number(0)), r.list(3), g)
	}
	return presence.Grant{}, presence.ErrHeld
}

// takeOver takes the lease of a session from which the claim may (delivery
// rule L4). again says that it had moved on.
func (p *Presence) takeOver(ctx context.Context, a *attempt, r reply) (g presence.Grant, again bool, err error) {
	old, epoch, boot, alive := r.text(0), uint64(r.number(1)), r.text(2), r.number(3) == 1
	if err := r.err(); err != nil {
		return presence.Grant{}, false, p.unknown(ctx, a, err)
	}
	var handed yielded
	if alive {
		handed = p.ask(ctx, boot, old, a.Resume)
	}
	if err := ctx.Err(); err != nil {
		return presence.Grant{}, false, &presence.UnavailableError{Reason: err.Error()}
	}
	exact := "0"
	if handed.exact {
		exact = "1"
	}
	args := append([]any{a.SessionID, a.Resume, old, decimal(epoch), exact, handed.watermark}, a.names...)
	if r, err = p.run(ctx, takeScript, a.incarnation, args...); err != nil {
		return presence.Grant{}, false, p.unknown(ctx, a, err)
	}
	if r.status == statusMoved {
		return presence.Grant{}, true, nil
	}
	if r.status != statusOK {
		return presence.Grant{}, false, p.refusal(a, r)
	}
	g = presence.Grant{Resumed: true, Exact: r.number(2) == 1}
	if w := r.text(1); w != "" || g.Exact {
		g.Watermark = []byte(w)
	}
	if boot == p.self.ID {
		p.superseded(old, g.Exact)
	}
	g, err = p.adopt(a, uint64(r.number(0)), r.list(3), g)
	return g, false, err
}

// superseded ends a session of this gateway whose lease has been taken.
func (p *Presence) superseded(id string, exact bool) {
	p.mu.Lock()
	if h := p.own[id]; h != nil {
		h.handed = h.handed || exact
	}
	p.mu.Unlock()
	p.lose(id, 0)
}

// adopt makes a granted lease this gateway's, unless that is worth nothing any
// more.
func (p *Presence) adopt(a *attempt, epoch uint64, preds []string, g presence.Grant) (presence.Grant, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fence != a.fence || a.fence.Fenced() {
		p.drops[a.SessionID] = ""
		return presence.Grant{}, &presence.UnavailableError{Reason: "the gateway was fenced meanwhile", RetryAfter: p.o.Beat}
	}
	if p.pending[a.SessionID] {
		p.drops[a.SessionID] = ""
		return presence.Grant{}, presence.ErrHeld // somebody has resumed this very session
	}
	g.Lease = presence.Lease{SessionID: a.SessionID, Names: a.Names, Epoch: epoch, Hold: presence.NewHold(a.fence)}
	// If the incarnation has changed meanwhile, the next heartbeat registers
	// the lease.
	h := &held{lease: g.Lease, preds: preds, watermark: g.Watermark, in: a.incarnation}
	p.own[a.SessionID] = h
	for _, name := range a.Names {
		set, key := p.place(name)
		set[key] = h
	}
	return g, nil
}

// unknown handles a call whose outcome is not known: whatever it was, it is
// undone.
func (p *Presence) unknown(ctx context.Context, a *attempt, err error) error {
	fault := p.fault(err)
	if errors.Is(err, goredis.ErrPoolTimeout) {
		return &presence.UnavailableError{Reason: "too many claims at once"} // it was not sent
	}
	p.mu.Lock()
	p.drops[a.SessionID] = ""
	if ctx.Err() == nil {
		p.suspect(fault)
	}
	p.mu.Unlock()
	return &presence.UnavailableError{Reason: fault.Error(), RetryAfter: p.o.Beat}
}

// suspect stops further calls until a heartbeat has come through. The mutex is
// held.
func (p *Presence) suspect(fault error) {
	if p.down == nil {
		p.down = fault
		p.hurry()
	}
}

// refusal turns a status into an error.
func (p *Presence) refusal(a *attempt, r reply) error {
	switch r.status {
	case statusHeld:
		return &presence.HeldError{SessionID: r.text(0)}
	case statusWait:
		return &presence.UnavailableError{
			Reason: "Redis is new; gateways register what they hold", RetryAfter: time.Duration(r.number(0)) * time.Millisecond,
		}
	case statusUsed, statusTomb:
		return errUsed
	case statusOther, statusDead:
		p.hurry()
		return &presence.UnavailableError{Reason: "Redis has lost its state", RetryAfter: p.o.Beat}
	}
	return &presence.UnavailableError{Reason: errReply.Error()}
}

// Release implements [presence.Leases].
func (p *Presence) Release(ctx context.Context, lease presence.Lease) error {
	p.mu.Lock()
	h := p.own[lease.SessionID]
	if h == nil || h.lease.Epoch != lease.Epoch {
		p.mu.Unlock()
		return nil
	}
	h.lease.Hold.Drop()
	if h.yielding(p.o.now()) {
		// Somebody is about to take it; nobody else shall come between.
		h.released = true
		p.mu.Unlock()
		return nil
	}
	p.forget(h)
	epoch := decimal(lease.Epoch)
	incarnation, unready := p.incarnation, p.ready()
	if unready != nil {
		p.drops[lease.SessionID] = epoch
		p.mu.Unlock()
		return unready
	}
	dirty, watermark := h.dirty, h.watermark
	p.mu.Unlock()

	var err error
	if dirty {
		// Whoever resumes the ended session gets its last watermark.
		_, err = p.run(ctx, markScript, incarnation, lease.SessionID, epoch, watermark)
	}
	if err == nil {
		_, err = p.run(ctx, releaseScript, incarnation, lease.SessionID, epoch)
	}
	if err == nil {
		return nil // of another incarnation: then it is gone anyway
	}
	fault := p.fault(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops[lease.SessionID] = epoch
	if ctx.Err() == nil {
		p.suspect(fault)
	}
	return &presence.UnavailableError{Reason: fault.Error(), RetryAfter: p.o.Beat}
}

// Confirm implements [presence.Registry].
func (p *Presence) Confirm(lease presence.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.own[lease.SessionID]
	if h == nil || h.lease.Epoch != lease.Epoch || len(h.preds) == 0 {
		return
	}
	h.preds = nil
	p.confirms[lease.SessionID] = lease.Epoch
	p.hurry()
}

// Mark implements [presence.Registry].
func (p *Presence) Mark(lease presence.Lease, watermark []byte) error {
	if len(watermark) > presence.MaxWatermark {
		return fmt.Errorf("%w: a watermark of %d bytes, %d are allowed", presence.ErrInvalid, len(watermark), presence.MaxWatermark)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.own[lease.SessionID]; h != nil && h.lease.Epoch == lease.Epoch && !h.handed {
		h.watermark, h.dirty = watermark, true
	}
	return nil
}

// Find implements [presence.Registry].
func (p *Presence) Find(ctx context.Context, sessionID string) (presence.Holding, error) {
	if sessionID == "" || len(sessionID) > presence.MaxSessionID {
		return presence.Holding{}, presence.ErrNotFound
	}
	p.mu.RLock()
	incarnation, unready := p.incarnation, p.ready()
	p.mu.RUnlock()
	if unready != nil {
		return presence.Holding{}, unready
	}
	r, err := p.run(ctx, findScript, incarnation, sessionID)
	if err != nil {
		return presence.Holding{}, &presence.UnavailableError{Reason: p.fault(err).Error(), RetryAfter: p.o.Beat}
	}
	switch r.status {
	case statusOK:
		h := presence.Holding{SessionID: r.text(0), Epoch: uint64(r.number(1)), Ended: r.number(2) == 1, Names: r.list(3)}
		return h, r.err()
	case statusNone:
		return presence.Holding{}, presence.ErrNotFound
	}
	return presence.Holding{}, p.refusal(nil, r)
}

// Holder implements [presence.Leases].
func (p *Presence) Holder(name string) (string, bool) {
	e, held := p.Lookup(name)
	return e.SessionID, held
}

// Held implements [presence.Directory].
func (p *Presence) Held(name string) (held, certain bool) {
	if p.mine(name) != nil {
		return true, true
	}
	e, held, certain := p.dir.lookup(name)
	// What the directory still gives to this gateway it has given back.
	return held && e.boot != p.self.ID, certain
}

// Lookup implements [presence.Directory].
func (p *Presence) Lookup(name string) (presence.Entry, bool) {
	if h := p.mine(name); h != nil {
		return presence.Entry{SessionID: h.lease.SessionID, Instance: p.self.ID, Epoch: h.lease.Epoch}, true
	}
	e, held, _ := p.dir.lookup(name)
	if !held || e.boot == p.self.ID {
		return presence.Entry{}, false
	}
	return presence.Entry{SessionID: e.session, Instance: e.boot, Epoch: e.epoch}, true
}

// mine returns this gateway's lease that covers name.
func (p *Presence) mine(name string) *held {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.fence.Fenced() {
		return nil
	}
	if h := p.names[name]; h != nil {
		return h
	}
	if prefix, ok := presence.Wildcard(name); ok {
		name = prefix
	}
	for prefix := range presence.Prefixes(name) {
		if h := p.wild[prefix]; h != nil {
			return h
		}
	}
	return nil
}

// Self implements [presence.Directory].
func (p *Presence) Self() presence.Instance { return p.self }

// Instances implements [presence.Directory].
func (p *Presence) Instances() ([]presence.Instance, bool) { return p.dir.instances() }
