package router

import (
	"cmp"
	"time"
)

// suspect is an inbox whose position, or note, lies beyond what the tail has shown. Either
// another gateway's tail was further, or the log has lost its end, or is another
// one (delivery rule C2). The tail knows when it has shown something that was
// written after the session began: everything that was stored before has been
// shown then (M1). Until then the inbox is fed by nobody.
type suspect struct {
	in    *inbox
	seq   uint64 // of what is waited for; 0: it is not written yet
	end   int64  // what the tail had shown
	since time.Time
}

// suspectEnd waits for the end of the log. The lock is held, here and below.
func (p *partition) suspectEnd(in *inbox) {
	in.suspected = true
	p.suspects = append(p.suspects, suspect{in: in, end: p.tailAt})
	p.markSuspects()
}

// suspectNote is suspectEnd for what lies before a note (C2).
func (p *partition) suspectNote(in *inbox, before int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before > p.tailAt && !in.suspected {
		p.suspectEnd(in)
	}
}

// markSuspects writes a marker for those that wait for one. The router's clock
// writes another if it gets lost.
func (p *partition) markSuspects() {
	if !p.mark() {
		return
	}
	for i := range p.suspects {
		if s := &p.suspects[i]; s.seq == 0 || p.r.now().Sub(s.since) > markInterval {
			s.seq, s.since = cmp.Or(s.seq, p.seq), p.r.now()
		}
	}
}

// retrySuspects is called by the router's clock.
func (p *partition) retrySuspects(now time.Time) {
	for i := range p.suspects {
		if s := &p.suspects[i]; s.seq == 0 || now.Sub(s.since) > markInterval {
			p.markSuspects()
			return
		}
	}
}

// judge decides about those who waited for what the tail shows now.
func (p *partition) judge(seq uint64, position int64) {
	kept := p.suspects[:0]
	for _, s := range p.suspects {
		if s.seq == 0 || seq < s.seq {
			kept = append(kept, s)
			continue
		}
		s.in.suspected = false
		switch {
		case s.in.noted && int64(s.in.note)-1 > position:
			s.in.recreated, s.in.recreatedEnd = true, s.in.unnotedFrom(position)
		case s.in.At() > position:
			s.in.recreated, s.in.recreatedEnd = true, s.end
		}
		if s.in.begun {
			p.startReading(s.in)
		}
	}
	clear(p.suspects[len(kept):])
	p.suspects = kept
}

// unnotedFrom returns where to begin in a log that ends at position and that the
// note does not belong to: who sends to the address may rely on that note, so
// its mail may be anywhere behind what was read of this log.
func (in *inbox) unnotedFrom(position int64) int64 {
	if committed := int64(in.origin.position); in.origin.known && committed <= position {
		return committed
	}
	return none
}

// startReading lets an inbox be fed, once it is known where it begins.
func (p *partition) startReading(in *inbox) {
	in.begun = true
	if in.suspected {
		return
	}
	if in.recreated {
		// What lies in this log has never been read. If a note says where its
		// mail begins that is to be believed; otherwise it has none yet.
		in.recreated, in.leap = false, leap{}
		at := in.recreatedEnd
		if before := int64(in.note) - 1; in.noted && before < at {
			at = before
		}
		in.Jump(at)
		in.lower(at)
		in.sub.gap(Gap{Topic: in.Address, Reason: GapRecreated, FirstMissing: uint64(at + 1), HasFirst: true})
	}
	in.Starve(in.At())
}

func (p *partition) forgetSuspect(in *inbox) {
	for i, s := range p.suspects {
		if s.in == in {
			p.suspects = append(p.suspects[:i], p.suspects[i+1:]...)
			return
		}
	}
}
