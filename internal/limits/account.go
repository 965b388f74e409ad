package limits

import "time"

// Account is what one session sends on. Its methods are called by one goroutine
// at a time. A nil Account lets everything pass.
type Account struct {
	l                *Limiter
	identity, source *bucket // nil: no limit
	workspace        *bucket // of the session's own workspace; nil: none, or no limit
	own              string
	visited          map[string]*bucket // workspaces that a session without one sends to; at most maxVisited
	closed           bool
}

// maxVisited bounds the workspaces whose buckets an account keeps at hand; past
// it all are let go of and looked up again.
const maxVisited = 64

// Take takes one message of so many bytes, sent in a workspace, which is empty
// for a message without one. It takes from all limits or from none. It does not
// wait, and does not allocate but for a workspace that is new to the session.
func (a *Account) Take(workspace string, bytes int) Verdict {
	if a == nil {
		return Verdict{}
	}
	in := a.workspace
	if workspace != a.own {
		in = a.visit(workspace)
	}
	c := cost{Messages: 1, Bytes: float64(bytes)}
	now := a.l.o.Now()
	path := [scopes]*bucket{a.identity, a.source, in}
	for i, b := range path {
		if b == nil {
			continue
		}
		v := a.l.take(b, now, &c)
		if !v.Refused {
			continue
		}
		for _, before := range path[:i] {
			if before != nil {
				before.mu.Lock()
				before.back(&c)
				before.mu.Unlock()
			}
		}
		a.l.refused[v.Scope].Add(1)
		return v
	}
	return Verdict{}
}

// take takes from one bucket, and sees to it that others hear of it.
func (l *Limiter) take(b *bucket, now time.Time, c *cost) Verdict {
	b.mu.Lock()
	v := b.take(now, c)
	touch, wake := false, false
	if l.o.Counters != nil {
		touch = !b.touched
		b.touched = true
		if !b.starved && b.urgent() {
			b.starved, wake = true, true
		}
	}
	b.mu.Unlock()
	if touch {
		l.touch(b)
	}
	if wake {
		l.hurry()
	}
	return v
}

// visit returns the bucket of a workspace that is not the session's own.
func (a *Account) visit(workspace string) *bucket {
	if workspace == "" || a.l.o.Workspace.none() {
		return nil
	}
	if b, ok := a.visited[workspace]; ok {
		return b
	}
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	if a.closed {
		return nil
	}
	if len(a.visited) >= maxVisited {
		a.leaveVisited()
	}
	if a.visited == nil {
		a.visited = map[string]*bucket{}
	}
	b := a.l.use(Workspace, workspace)
	a.visited[workspace] = b
	return b
}

// leaveVisited lets go of the workspaces that were sent to. The limiter's lock
// is held.
func (a *Account) leaveVisited() {
	for _, b := range a.visited {
		a.l.leave(b, 0)
	}
	clear(a.visited)
}

// Close ends the account. What was used stays used. It may be called twice, and
// by another goroutine than the one that takes, which takes nothing more.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.l.mu.Lock()
	if a.closed {
		a.l.mu.Unlock()
		return
	}
	a.closed = true
	a.leaveVisited()
	for _, b := range []*bucket{a.identity, a.source, a.workspace} {
		if b != nil {
			a.l.leave(b, 1)
		}
	}
	a.l.mu.Unlock()
	if a.l.o.Counters != nil {
		a.l.hurry() // who comes back elsewhere is to find what was used
	}
}
