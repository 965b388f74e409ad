package redis

import (
	"context"
	"errors"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// chunk is how many leases one script call handles, so that no call holds
// Redis up.
const chunk = 200

// beats is the goroutine of the heartbeat (delivery rule L2).
func (p *Presence) beats() {
	wait := time.NewTimer(p.o.Beat)
	defer wait.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-wait.C:
		case <-p.kick:
		}
		began := time.Now()
		next := p.o.Beat
		if err := p.beat(p.ctx); err != nil {
			next = p.o.Beat / 4
		}
		wait.Reset(max(next-time.Since(began), p.o.Beat/10))
	}
}

// hurry asks for a heartbeat now.
func (p *Presence) hurry() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// watch is the goroutine that sees the fence fall, also while a heartbeat
// hangs.
func (p *Presence) watch() {
	tick := time.NewTicker(p.o.Beat / 5)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
			p.checkFence()
		}
	}
}

// checkFence ends all leases if the fence has fallen.
func (p *Presence) checkFence() {
	p.mu.Lock()
	if p.fence == nil || !p.fence.Fenced() || len(p.own) == 0 {
		p.mu.Unlock()
		return
	}
	lost := make([]presence.Lease, 0, len(p.own))
	for id, h := range p.own {
		lost = append(lost, h.lease)
		p.drops[id] = "" // it may still be there when Redis is back
	}
	clear(p.own)
	clear(p.names)
	clear(p.wild)
	clear(p.confirms)
	p.stats.Fences++
	age, h := p.fence.Age(), p.handler
	p.mu.Unlock()
	p.log.Error("the gateway could not renew its leases and has fenced itself", "age", age, "sessions", len(lost))
	for _, lease := range lost {
		lease.Hold.Drop()
		if h != nil {
			h.Lost(lease, presence.ErrFenced)
		}
	}
}

// beat sends a heartbeat, and with it everything that is due.
func (p *Presence) beat(ctx context.Context) error {
	err := p.renew(ctx)
	p.mu.Lock()
	before := p.down
	p.down = err
	if err == nil {
		p.stats.Beats++
	} else {
		p.stats.BeatsFailed++
	}
	p.mu.Unlock()
	p.checkFence()
	switch {
	case ctx.Err() != nil:
	case err != nil && before == nil:
		p.log.Warn("presence: no heartbeat", "error", err)
	case err == nil && before != nil:
		p.log.Info("presence: heartbeats again")
	}
	if err == nil {
		p.flush(ctx)
	}
	return err
}

func (p *Presence) renew(ctx context.Context) error {
	p.mu.RLock()
	sent, incarnation := p.o.now(), p.incarnation
	elapsed := int64(-1)
	if !p.confirmed.IsZero() {
		elapsed = presence.Elapsed(p.confirmed, sent).Milliseconds()
	}
	args := []any{newID(), p.self.Name, elapsed}
	for _, id := range p.lostSeen {
		args = append(args, id)
	}
	seen := len(p.lostSeen)
	p.mu.RUnlock()

	r, err := p.pulsed(ctx, beatScript, incarnation, args...)
	if err != nil {
		if elapsed < 0 && p.unencrypted(ctx) {
			return errUnencrypted
		}
		return p.fault(err)
	}
	if r.status == statusDouble {
		return &doubleError{at: r.text(0)}
	}
	is, known, grace, version := r.text(0), r.number(1) == 1, time.Duration(r.number(2))*time.Millisecond, uint64(r.number(3))
	flat, lost := r.list(4), r.list(5)
	if r.status != statusOK || r.bad || len(flat)%2 != 0 {
		return errReply
	}
	if is != incarnation {
		p.changeIncarnation(is)
		p.warnOfEviction(ctx)
	}
	p.checkFence() // before anything is renewed that is lost already
	if err := p.register(ctx, is, known); err != nil {
		return err
	}

	p.mu.Lock()
	if p.fence == nil || !p.fence.Renew(sent) {
		// Whatever the old fence covered stays lost; new leases get a new one.
		for len(p.own) > 0 {
			p.mu.Unlock()
			p.checkFence()
			p.mu.Lock()
		}
		p.fence = presence.NewFence(p.o.now, p.o.FenceAfter, sent)
	}
	p.confirmed, p.graceUntil = sent, sent.Add(grace)
	p.lostSeen = append(p.lostSeen[seen:], lost...)
	p.mu.Unlock()

	for _, id := range lost {
		p.lose(id, 0)
	}
	peers := make([]presence.Instance, 0, len(flat)/2)
	for ; len(flat) > 0; flat = flat[2:] {
		peers = append(peers, presence.Instance{ID: flat[0], Name: flat[1]})
	}
	for _, peer := range p.dir.beat(is, version, peers, sent, grace > 0) {
		p.inbox.Put(presence.Notice{From: peer.ID, Kind: presence.KindGone, Payload: []byte(peer.Name)})
	}
	return nil
}

// changeIncarnation begins anew with an emptied Redis (delivery rule L1).
func (p *Presence) changeIncarnation(is string) {
	p.mu.Lock()
	first := p.incarnation == ""
	p.incarnation = is
	clear(p.drops) // nothing is left that could be given back
	p.lostSeen = nil
	leases := len(p.own)
	p.mu.Unlock()
	p.dir.enter(is)
	p.wantScan()
	if !first {
		p.log.Warn("presence: Redis has lost its state; leases are registered again", "leases", leases)
	}
}

// register tells Redis the leases that it does not know (delivery rule L1).
func (p *Presence) register(ctx context.Context, incarnation string, known bool) error {
	p.mu.RLock()
	var list []*held
	for _, h := range p.own {
		if h.in != incarnation || !known {
			list = append(list, h)
		}
	}
	p.mu.RUnlock()
	for len(list) > 0 {
		part := list[:min(len(list), chunk)]
		list = list[len(part):]
		var args []any
		p.mu.RLock()
		for _, h := range part {
			args = append(args, h.lease.SessionID, decimal(h.lease.Epoch), h.watermark, len(h.preds))
			for _, id := range h.preds {
				args = append(args, id)
			}
			args = append(args, len(h.lease.Names))
			for _, name := range h.lease.Names {
				args = append(args, name)
			}
		}
		p.mu.RUnlock()
		r, err := p.pulsed(ctx, registerScript, incarnation, args...)
		if err != nil {
			return p.fault(err)
		}
		if r.status != statusOK {
			return errUnsettled
		}
		lost := r.list(0)
		if r.bad {
			return errReply
		}
		p.mu.Lock()
		for _, h := range part {
			h.in = incarnation
		}
		p.mu.Unlock()
		for _, id := range lost {
			p.lose(id, 0)
		}
	}
	return nil
}

// errUnsettled says that Redis lost its state again, while leases were
// registered.
var errUnsettled = errors.New("Redis changes while leases are registered")

// lose ends a lease that another session has, if it is still this gateway's
// and its epoch is below a later one (0: any).
func (p *Presence) lose(id string, later uint64) {
	p.mu.Lock()
	h := p.own[id]
	if _, pending := p.pending[id]; pending && later == 0 {
		p.pending[id] = true
	}
	if h == nil || later != 0 && h.lease.Epoch >= later {
		p.mu.Unlock()
		return
	}
	p.forget(h)
	handler, handed := p.handler, h.handed
	p.mu.Unlock()
	h.lease.Hold.Drop()
	if !handed && handler != nil {
		handler.Lost(h.lease, presence.ErrSuperseded)
	}
}

// forget removes a lease from this gateway's. The mutex is held.
func (p *Presence) forget(h *held) {
	delete(p.own, h.lease.SessionID)
	delete(p.confirms, h.lease.SessionID)
	for _, name := range h.lease.Names {
		if set, key := p.place(name); set[key] == h {
			delete(set, key)
		}
	}
}

func (p *Presence) place(name string) (map[string]*held, string) {
	if prefix, ok := presence.Wildcard(name); ok {
		return p.wild, prefix
	}
	return p.names, name
}

// flush writes what waits: watermarks, confirmations, leases to give back.
// What fails waits for the next time.
func (p *Presence) flush(ctx context.Context) {
	now := p.o.now()
	p.mu.Lock()
	incarnation := p.incarnation
	for id, h := range p.own {
		if h.released && !h.yielding(now) {
			p.forget(h)
			p.drops[id] = decimal(h.lease.Epoch)
		}
	}
	p.mu.Unlock()
	if !p.flushMarks(ctx, incarnation) {
		return
	}
	p.flushConfirms(ctx, incarnation)
	p.flushDrops(ctx, incarnation)
}

func (p *Presence) flushMarks(ctx context.Context, incarnation string) bool {
	p.mu.RLock()
	var dirty []*held
	for _, h := range p.own {
		if h.dirty && !h.handed {
			dirty = append(dirty, h)
		}
	}
	p.mu.RUnlock()
	for len(dirty) > 0 {
		part := dirty[:min(len(dirty), chunk)]
		dirty = dirty[len(part):]
		var args []any
		p.mu.Lock()
		for _, h := range part {
			args = append(args, h.lease.SessionID, decimal(h.lease.Epoch), h.watermark)
			h.dirty = false
		}
		p.mu.Unlock()
		if r, err := p.pulsed(ctx, markScript, incarnation, args...); err != nil || r.status != statusOK {
			p.mu.Lock()
			for _, h := range part {
				h.dirty = true
			}
			p.mu.Unlock()
			return false
		}
	}
	return true
}

// flushConfirms leaves out sessions that somebody is about to take: that claim
// came before their first frame (delivery rule L5).
func (p *Presence) flushConfirms(ctx context.Context, incarnation string) {
	now := p.o.now()
	for {
		p.mu.RLock()
		list := map[string]uint64{}
		var args []any
		for id, epoch := range p.confirms {
			if len(list) == chunk {
				break
			}
			if h := p.own[id]; h != nil && h.yielding(now) {
				continue
			}
			list[id] = epoch
			args = append(args, id, decimal(epoch))
		}
		p.mu.RUnlock()
		if len(args) == 0 {
			return
		}
		if r, err := p.pulsed(ctx, confirmScript, incarnation, args...); err != nil || r.status != statusOK {
			return
		}
		p.mu.Lock()
		for id, epoch := range list {
			if p.confirms[id] == epoch {
				delete(p.confirms, id)
			}
		}
		p.mu.Unlock()
	}
}

func (p *Presence) flushDrops(ctx context.Context, incarnation string) {
	for {
		p.mu.RLock()
		list := map[string]string{}
		var args []any
		for id, epoch := range p.drops {
			if len(list) == chunk {
				break
			}
			list[id] = epoch
			args = append(args, id, epoch)
		}
		p.mu.RUnlock()
		if len(args) == 0 {
			return
		}
		if r, err := p.pulsed(ctx, releaseScript, incarnation, args...); err != nil || r.status != statusOK {
			return
		}
		p.mu.Lock()
		for id, epoch := range list {
			if p.drops[id] == epoch {
				delete(p.drops, id)
			}
		}
		p.mu.Unlock()
	}
}
