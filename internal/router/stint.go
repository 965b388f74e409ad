package router

import (
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// stint reads the log for a group from the arrival of its first worker until
// the last one has left. The next worker's begins at another place, and a
// feeder that still has the old one must not mix it up.
type stint struct{ *group }

var _ reading = (*stint)(nil)

func (s *stint) take(v *envelope.View, position uint64, _ bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contest.stint == s && s.takeIt(v, position)
}

func (s *stint) claim(who delivery.Feeder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contest.stint == s && s.contest.placed && s.claimFor(who)
}

func (s *stint) advance(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contest.stint == s {
		s.position = max(s.position, position)
	}
}

func (s *stint) starve(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contest.stint == s {
		s.starveAt(position)
	}
}
