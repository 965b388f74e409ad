package router

import "time"

// readerLinger is how long a pass whose readers are all full waits for one of
// them to have room again, if nobody else wants a pass. To open a consumer for
// every queue that was emptied would cost more than the reading itself.
const readerLinger = 100 * time.Millisecond

// stands reports whether a pass is at an entry of which a reading at a position
// wants the rest. The reader's lock is held, here and below.
func (p *pass) stands(at int64) bool { return at >= p.at && at < p.standsAt }

// stay reports whether somebody wants the rest of the entry at which a pass
// stands. If everybody has left because of full queues it waits for one of them
// to come back. Otherwise the entry is done with, and the pass may be over.
func (r *reader) stay(p *pass, full bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if full && r.idle(p) {
		r.linger(p)
	}
	turnOver := r.p.r.now().Sub(p.began) > readerTurn
	served, behind := false, false
	for rd, pl := range r.waiting {
		if pl.pass != p && pl.pass != nil {
			continue
		}
		at := rd.at()
		if p.stands(at) && !p.isOver() && !(behind && turnOver) {
			return true
		}
		served = served || pl.pass == p
		behind = behind || pl.pass == nil && at < p.standsAt
	}
	p.at, p.standsAt = max(p.at, p.standsAt), none
	if !served || behind && turnOver {
		p.end()
	}
	return false
}

// idle reports whether nobody wants anything of a pass.
func (r *reader) idle(p *pass) bool {
	for _, pl := range r.waiting {
		if pl.pass == nil || pl.pass == p {
			return false
		}
	}
	return !p.isOver()
}

// linger gives up the lock until somebody wants a pass, or for a while.
func (r *reader) linger(p *pass) {
	p.lingers = true
	r.mu.Unlock()
	limit := time.NewTimer(r.p.r.linger)
	select {
	case <-p.back:
	case <-p.over:
	case <-limit.C:
	}
	limit.Stop()
	r.mu.Lock()
	p.lingers = false
}

// rouse makes a pass that lingers look who waits.
func (p *pass) rouse() {
	if p == nil || !p.lingers {
		return
	}
	select {
	case p.back <- struct{}{}:
	default:
	}
}

func (p *pass) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}
