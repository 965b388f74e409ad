package limits

import "context"

// Moving is a session's change to another workspace, as far as limits go: the
// session counts in both until it is settled, by Commit or by Cancel. Nil is
// that of a nil [Account].
type Moving struct {
	a   *Account
	own string
	to  *bucket // nil: no limit
}

// Move prepares the change of the account's session to another workspace; empty
// is none. With other gateways it asks what is left there, and waits for that a
// moment. It returns a [*SessionsError] if there is no room.
func (a *Account) Move(ctx context.Context, workspace string) (*Moving, error) {
	if a == nil {
		return nil, nil
	}
	l := a.l
	m := &Moving{a: a, own: workspace}
	if workspace == "" || l.o.Workspace.none() && l.o.WorkspaceSessions <= 0 {
		return m, nil
	}
	var done chan struct{}
	l.mu.Lock()
	if a.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	m.to = l.use(Workspace, workspace)
	m.to.holders++
	if l.o.Counters != nil {
		done = make(chan struct{})
		l.opening = append(l.opening, opening{[]*bucket{m.to}, done})
	}
	l.mu.Unlock()
	var err error
	if done != nil {
		err = l.await(ctx, done)
	}
	if err == nil {
		err = l.full(m.to, l.o.WorkspaceSessions)
	}
	if err != nil {
		m.Cancel()
		return nil, err
	}
	return m, nil
}

// Commit makes the change: what is taken from now on is taken in the new
// workspace. It is called by the goroutine that takes.
func (m *Moving) Commit() {
	if m == nil {
		return
	}
	l := m.a.l
	l.mu.Lock()
	old := m.a.workspace
	if m.a.closed {
		old = m.to
	} else {
		m.a.workspace, m.a.own = m.to, m.own
	}
	if old != nil {
		l.leave(old, 1)
	}
	l.mu.Unlock()
	m.tell()
}

// Cancel leaves the account as it is.
func (m *Moving) Cancel() {
	if m == nil || m.to == nil {
		return
	}
	l := m.a.l
	l.mu.Lock()
	l.leave(m.to, 1)
	l.mu.Unlock()
	m.tell()
}

// tell has the others told soon where the session counts.
func (m *Moving) tell() {
	if m.a.l.o.Counters != nil {
		m.a.l.hurry()
	}
}
