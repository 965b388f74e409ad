package session

import (
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// Bounds of what is remembered of tasks that have ended; past them the oldest
// are forgotten.
const (
	maxRecent = 10_000
	recentFor = 10 * time.Minute
)

// recentTasks remembers the addresses of non-unique tasks whose sessions have
// ended, so that one that comes back gets its mail. Guarded by the manager's
// lock.
type recentTasks struct {
	byID  map[string]address.Address
	order []recentTask // oldest first
}

type recentTask struct {
	session string
	ended   time.Time
}

// add remembers a session that has ended.
func (r *recentTasks) add(s *Session, now time.Time) {
	if s.kind != acl.Task {
		return
	}
	if r.byID == nil {
		r.byID = map[string]address.Address{}
	}
	n := 0
	for n < len(r.order) && (now.Sub(r.order[n].ended) > recentFor || len(r.order)-n >= maxRecent) {
		delete(r.byID, r.order[n].session)
		n++
	}
	clear(r.order[:n])
	r.order = append(r.order[n:], recentTask{s.id, now})
	r.byID[s.id] = s.principal.Address
}

// taskAddress returns the address of the non-unique task of a session that is
// there or has been there lately; zero if there is none.
func (m *Manager) taskAddress(session string) address.Address {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil && s.kind == acl.Task {
		return s.principal.Address
	}
	return m.recent.byID[session]
}
