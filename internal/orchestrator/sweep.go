package orchestrator

import (
	"slices"
	"sync"
	"time"
)

const (
	// sweepInterval is how often it is looked for mail that waits although
	// nothing has said so: a net below the others.
	sweepInterval = 5 * time.Minute
	// sweepRetry is when a sweep that did not come to its end goes on.
	sweepRetry = 2 * time.Second
	// sweepPage is how many addresses are read at once.
	sweepPage = 500
)

// sweeps look for mail that waits for somebody who is not there and has not been
// started: because the store was away, because the gateway that knew it is dead,
// because too much happened at once, or because nothing could be started then.
type sweeps struct {
	wake chan struct{}

	mu   sync.Mutex
	due  []time.Time // when some are asked for
	last time.Time

	lived map[string]bool // the gateways that were there; of the goroutine
}

// swept are the prefixes of those who can be started.
var swept = [...]string{"ag::", "tu::"}

// Sweep looks for mail that waits, soon, and on this gateway.
func (s *Service) Sweep() { s.sweepIn(0) }

// maxSweeps bounds the sweeps that are asked for; one more is none, as the next
// one finds the same.
const maxSweeps = 8

func (s *Service) sweepIn(after time.Duration) {
	w := &s.sweeps
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.due) < maxSweeps {
		w.due = append(w.due, s.o.Now().Add(after))
	}
	nudge(w.wake)
}

func (s *Service) runSweeps() {
	s.sweepIn(sweepRetry)
	s.every(time.Second, s.sweeps.wake, s.maySweep)
}

// gatewaysGone notices gateways that live no longer: what their sessions had not
// read waits, and what they had yet to look at is not looked at by them. One of
// those that live looks after it: at once, and when what they sent last is
// stored.
func (s *Service) gatewaysGone() {
	list, certain := s.o.Presence.Instances()
	if !certain {
		return
	}
	live := make(map[string]bool, len(list))
	for _, i := range list {
		live[i.ID] = true
	}
	for id := range s.sweeps.lived {
		if !live[id] && s.elected() {
			s.sweepIn(0)
			s.sweepIn(settles)
			break
		}
	}
	s.sweeps.lived = live
}

// maySweep sweeps if it is time. The regular sweep is one gateway's.
func (s *Service) maySweep() {
	s.gatewaysGone()
	w, now := &s.sweeps, s.o.Now()
	w.mu.Lock()
	before := len(w.due)
	w.due = slices.DeleteFunc(w.due, func(due time.Time) bool { return !now.Before(due) })
	asked := len(w.due) < before
	regular := now.Sub(w.last) >= sweepInterval
	w.mu.Unlock()
	if !s.Armed() || !asked && !(regular && s.elected()) {
		return
	}
	w.mu.Lock()
	w.last = now
	w.mu.Unlock()
	if !s.sweep() {
		s.sweepIn(sweepRetry)
	}
}

// sweep has everybody looked at for whom mail may wait; it reports false if it
// did not come to its end.
func (s *Service) sweep() bool {
	for _, prefix := range swept {
		for after := ""; ; {
			if s.ctx.Err() != nil || !s.looks.room() {
				return false
			}
			ctx, cancel := s.call()
			list, err := s.o.Mail.Waiting(ctx, prefix, after, sweepPage)
			cancel()
			if err != nil {
				if s.ctx.Err() == nil {
					s.o.Logger.Warn("it could not be looked for mail that waits; it is tried again", "error", err)
				}
				return false
			}
			now := s.o.Now()
			for _, identity := range list {
				if _, _, ok := s.startable(identity); !ok {
					continue
				}
				if held, certain := s.o.Presence.Held(identity); held && certain {
					continue
				}
				s.looks.add(identity, "", "", now, time.Time{})
			}
			if len(list) < sweepPage {
				break
			}
			after = list[len(list)-1]
		}
	}
	return true
}
