package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// listen is the goroutine of the one connection on which changes and notices
// come. Whatever is wrong with it, it is opened anew and the directory scanned:
// what was missed cannot be asked for.
func (p *Presence) listen() {
	backoff := p.o.Beat / 10
	for p.ctx.Err() == nil {
		ok := p.subscribe()
		if ok {
			backoff = p.o.Beat / 10
		}
		wait := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-wait.C:
		case <-p.ctx.Done():
			wait.Stop()
		}
		backoff = min(2*backoff, p.o.Beat)
	}
}

// subscribe serves one connection to its end. It returns true if it was of
// use.
func (p *Presence) subscribe() (served bool) {
	channels := []string{p.base + "dir", p.channel(""), p.channel(p.self.ID)}
	ps := p.client.Subscribe(p.ctx) // connects with the first channel
	stop := context.AfterFunc(p.ctx, func() { ps.Close() })
	defer func() {
		p.dir.unsync()
		stop()
		ps.Close()
	}()
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	err := ps.Subscribe(ctx, channels...)
	cancel()
	if err != nil {
		return false
	}
	p.dir.unsync()
	pinged := false
	for subscribed := 0; ; {
		if p.dir.behind(p.o.now().Add(-2 * p.o.Beat)) {
			return served // changes do not come through any more
		}
		message, err := ps.ReceiveTimeout(p.ctx, 2*p.o.Beat)
		if err != nil {
			var late net.Error
			if !errors.As(err, &late) || !late.Timeout() || pinged || p.ctx.Err() != nil || subscribed < len(channels) {
				return served
			}
			// Silence may be rest or a dead connection.
			pinged = true
			if err := ps.Ping(p.ctx); err != nil {
				return served
			}
			continue
		}
		pinged = false
		switch m := message.(type) {
		case *goredis.Subscription:
			if subscribed++; subscribed == len(channels) {
				served = true
				p.wantScan()
			}
		case *goredis.Message:
			if m.Channel == channels[0] {
				p.onChanges(m.Payload)
			} else {
				p.onNotice(m.Payload)
			}
		}
	}
}

// onChanges handles a change of the directory.
func (p *Presence) onChanges(message string) {
	incarnation, version, changes, err := parseChanges(message)
	if err != nil {
		p.wantScan()
		return
	}
	if !p.dir.apply(incarnation, version, changes) {
		p.wantScan()
	}
	for _, c := range changes {
		if c.session == "" {
			continue
		}
		p.mu.RLock()
		set, key := p.place(c.name)
		h := set[key]
		p.mu.RUnlock()
		if h != nil && h.lease.SessionID != c.session {
			p.lose(h.lease.SessionID, c.epoch)
		}
	}
}

// wantScan asks for a scan.
func (p *Presence) wantScan() {
	select {
	case p.rescan <- struct{}{}:
	default:
	}
}

// scans is the goroutine that reads the directory in full: at the start, after
// a gap, and now and then (delivery rule C7).
func (p *Presence) scans() {
	tick := time.NewTicker(p.o.ScanInterval)
	defer tick.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.rescan:
		case <-tick.C:
		case <-again:
		}
		again = nil
		if !p.scan() {
			again = time.After(p.o.Beat / 4)
		}
	}
}

const scanPiece = 500

// scan reads the directory in pieces, in the order of names.
func (p *Presence) scan() bool {
	p.mu.RLock()
	incarnation, unready := p.incarnation, p.ready()
	before := make([]*held, 0, len(p.own))
	for _, h := range p.own {
		before = append(before, h)
	}
	p.mu.RUnlock()
	if unready != nil {
		return false
	}
	p.dir.scanBegin()
	began := int64(-1)
	for cursor := ""; ; {
		r, err := p.run(p.ctx, scanScript, incarnation, cursor, scanPiece)
		if err != nil || r.status != statusOK {
			p.dir.scanAbort()
			return false
		}
		version := r.number(0)
		cursor = r.text(1)
		rows, err := parseRows(r.list(2))
		if err != nil || r.bad || !p.dir.scanPiece(incarnation, uint64(version), rows) {
			p.dir.scanAbort()
			return false
		}
		if began < 0 {
			began = version
		}
		if cursor == "" {
			break
		}
	}
	if !p.dir.scanEnd(incarnation, uint64(began)) {
		return false
	}
	p.count(&p.stats.Scans)
	p.dropForgotten()
	p.restoreMissing(before)
	return true
}

// restoreMissing registers leases again that were there before a scan and did
// not appear in it: somebody has deleted keys, or Redis has evicted them. If
// another session has the names by now, that shows then.
func (p *Presence) restoreMissing(before []*held) {
	missing := 0
	for _, h := range before {
		e, _, certain := p.dir.lookup(h.lease.Names[0])
		if !certain || e.session == h.lease.SessionID {
			continue
		}
		p.mu.Lock()
		if p.own[h.lease.SessionID] == h {
			h.in = ""
			missing++
		}
		p.mu.Unlock()
	}
	if missing > 0 {
		p.log.Warn("presence: leases are missing in Redis and are registered again", "leases", missing)
		p.hurry()
	}
}

// dropForgotten gives back what the directory gives to this gateway and nobody
// here knows of. There should be nothing.
func (p *Presence) dropForgotten() {
	sessions := p.dir.sessionsOf(p.self.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range sessions {
		_, pending := p.pending[id]
		_, waits := p.drops[id]
		if p.own[id] == nil && !pending && !waits {
			p.drops[id] = ""
		}
	}
}
