package router

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/store"
)

// Members knows which user is in which workspace: from the verified tokens of
// users who connected, as long as those are valid, and from what operators
// ruled. It is a copy of what the store has, kept up to date; a question costs
// no round trip. It is safe for concurrent use.
type Members struct {
	now   func() time.Time
	store store.Members // nil: what this process has seen is all there is
	// spaces says which workspaces exist: nobody is in one that does not.
	spaces *Spaces
	// lost is called when a user has been ruled out.
	lost func(user, workspace string)

	mu     sync.RWMutex
	users  memberships
	cursor store.Cursor
}

var _ acl.Members = (*Members)(nil)

func newMembers(now func() time.Time, s store.Members, spaces *Spaces) *Members {
	return &Members{
		now: now, store: s, spaces: spaces, lost: func(string, string) {}, users: memberships{},
	}
}

// Learn records the membership of a verified token, durably if there is a
// store.
func (m *Members) Learn(ctx context.Context, user string, workspaces []string, until time.Time) error {
	if len(workspaces) == 0 {
		return nil
	}
	if m.store != nil {
		if err := m.store.LearnMembership(ctx, user, workspaces, until); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ws := range workspaces {
		known := m.users[user][ws]
		if known.Until.Before(until) {
			known.User, known.Workspace, known.Until = user, ws, until
			m.users.set(known)
		}
	}
	return nil
}

// memberships are what is known, by user and workspace.
type memberships map[string]map[string]store.Membership

// set replaces what is known of one.
func (all memberships) set(known store.Membership) {
	in := all[known.User]
	if in == nil {
		in = map[string]store.Membership{}
		all[known.User] = in
	}
	in[known.Workspace] = known
}

// refresh takes over what has changed in the store.
func (m *Members) refresh(ctx context.Context) error {
	if m.store == nil {
		return nil
	}
	for {
		m.mu.RLock()
		cursor := m.cursor
		m.mu.RUnlock()
		changes, next, err := m.store.MembershipChanges(ctx, cursor, mirror.PageSize)
		if errors.Is(err, store.ErrCursor) && cursor != 0 {
			return m.startAnew(ctx)
		}
		if err != nil {
			return err
		}
		m.takeOver(m.users, changes, next)
		if len(changes) < mirror.PageSize {
			return nil
		}
	}
}

// startAnew is for another database, or an older state of it. Who was put out
// stays so until the new copy is complete.
func (m *Members) startAnew(ctx context.Context) error {
	all, next, err := mirror.Pages(ctx, 0, m.store.MembershipChanges)
	if err == nil {
		m.takeOver(memberships{}, all, next)
	}
	return err
}

// takeOver makes known, with what has changed in it, what is known.
func (m *Members) takeOver(known memberships, changes []store.Membership, next store.Cursor) {
	var out []store.Membership
	m.mu.Lock()
	for _, c := range changes {
		if c.Ruling == store.RuledOut && m.users[c.User][c.Workspace].Ruling != store.RuledOut {
			out = append(out, c)
		}
		known.set(c)
	}
	m.users, m.cursor = known, next
	m.mu.Unlock()
	for _, c := range out {
		m.lost(c.User, c.Workspace)
	}
}

// InWorkspace implements [acl.Members].
func (m *Members) InWorkspace(user, workspace string) bool {
	m.mu.RLock()
	known, ok := m.users[user][workspace]
	m.mu.RUnlock()
	if !ok || !known.Member(m.now()) {
		return false
	}
	_, exists := m.spaces.Check(workspace)
	return exists
}

// PutIn reports whether an operator has put a user into a workspace.
func (m *Members) PutIn(user, workspace string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.users[user][workspace].Ruling == store.RuledIn
}

// MayEnter reports whether a user may be in a workspace by a credential that
// covers a set of them: it exists, an operator has not put them out, and either
// the credential covers it or an operator has put them in. What other
// credentials of the user cover says nothing.
func (m *Members) MayEnter(user, workspace string, covered acl.WorkspaceSet) bool {
	if m.Barred(user, workspace) || !covered.Covers(workspace) && !m.PutIn(user, workspace) {
		return false
	}
	_, exists := m.spaces.Check(workspace)
	return exists
}

// Barred implements [acl.Members].
func (m *Members) Barred(user, workspace string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.users[user][workspace].Ruling == store.RuledOut
}

// out is Barred for a name that lies in a message.
func (m *Members) out(user string, workspace []byte) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.users[user][string(workspace)].Ruling == store.RuledOut
}

// InAny implements [acl.Members].
func (m *Members) InAny(user string, set acl.WorkspaceSet) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	now := m.now()
	for ws, known := range m.users[user] {
		if !set.Covers(ws) || !known.Member(now) {
			continue
		}
		if _, exists := m.spaces.Check(ws); exists {
			return true
		}
	}
	return false
}

// forget drops what has expired and was not ruled on.
func (m *Members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for user, in := range m.users {
		for ws, known := range in {
			if known.Ruling == store.Unruled && !known.Member(now) {
				delete(in, ws)
			}
		}
		if len(in) == 0 {
			delete(m.users, user)
		}
	}
}
