package router

import (
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
)

// Members knows which user is in which workspace, from the tokens that users
// connected with, until those expire. It is safe for concurrent use; its size
// is bounded by the tokens that were issued.
type Members struct {
	now func() time.Time

	mu    sync.RWMutex
	users map[string]map[string]time.Time // user → workspace → until
}

var _ acl.Members = (*Members)(nil)

func newMembers(now func() time.Time) *Members {
	return &Members{now: now, users: map[string]map[string]time.Time{}}
}

// Learn records the membership of a verified token.
func (m *Members) Learn(user string, workspaces []string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := m.users[user]
	if in == nil {
		in = map[string]time.Time{}
		m.users[user] = in
	}
	for _, ws := range workspaces {
		if in[ws].Before(until) {
			in[ws] = until
		}
	}
}

// InWorkspace implements [acl.Members].
func (m *Members) InWorkspace(user, workspace string) bool {
	m.mu.RLock()
	until, ok := m.users[user][workspace]
	m.mu.RUnlock()
	return ok && m.now().Before(until)
}

// InAny implements [acl.Members].
func (m *Members) InAny(user string, set acl.WorkspaceSet) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for ws, until := range m.users[user] {
		if set.Covers(ws) && m.now().Before(until) {
			return true
		}
	}
	return false
}

// forget drops what has expired.
func (m *Members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for user, in := range m.users {
		for ws, until := range in {
			if !now.Before(until) {
				delete(in, ws)
			}
		}
		if len(in) == 0 {
			delete(m.users, user)
		}
	}
}
