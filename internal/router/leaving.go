package router

import (
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// Leave ends the sending half of a session that is over: it waits, for limit
// at most, until everything has its outcome, and then drops what has none, as
// [Sender.Drop] does. The identity's lease may be freed afterwards: what the
// session sent is stored by then, or it will not be, so that the identity's
// next session, on whatever gateway, finds all of it in the log before the
// first marker of its own (delivery rule M2).
//
// One thing remains: an entry that was handed to the log and has no confirm may
// be stored yet. Its copies that are told apart by message id are recognised
// (delivery rule P6).
func (s *Sender) Leave(limit time.Duration) {
	settled := s.Settled()
	select {
	case <-settled:
	default:
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-settled:
		case <-t.C:
		}
	}
	s.Drop()
}

// Drop takes back what the session sent and the log has not yet been given,
// and keeps what it has been given from being sent again (delivery rule P5). It
// is for a session that has lost its lease, and does not wait. What is dropped
// is answered with ERR_UNAVAILABLE, as is everything that is sent from now on.
func (s *Sender) Drop() {
	s.dropped.Store(true)
	for _, p := range s.r.parts {
		p.drop(s)
	}
	s.r.polls.forget(s)
}

func (p *partition) drop(s *Sender) {
	p.mu.Lock()
	if s.heldSends.Load() > 0 {
		p.refuseAll(s)
	}
	var taken []pending
	if s.waiting.Load() > 0 || len(p.unknown) > 0 {
		// What was answered as unknown may lie in an entry that is yet to be
		// sent again.
		taken = p.writer.Remove(func(item *pending) bool { return item.sender == s })
	}
	p.mu.Unlock()
	if len(taken) > 0 {
		p.settled(taken, streams.NotStored)
	}
}
