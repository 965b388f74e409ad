package router

import (
	"context"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
)

// Starter is told of messages that are stored for somebody who is not there, so
// that they can be started (gateway.md 13.2). It is safe for concurrent use, and
// does not block.
type Starter interface {
	// Armed reports whether anybody can be started at all. It is asked for every
	// batch of messages.
	Armed() bool
	// Waits says that a message of a sender was stored, and that nobody here reads
	// the address.
	Waits(to, sender, workspace string)
}

// SetStarter sets who is told. It is called before anybody is served.
func (r *Router) SetStarter(s Starter) { r.starter.Store(&s) }

// waiting is a stored message that nobody here reads.
type waitingMail struct{ to, sender string }

// absentees returns those of stored messages that wait for somebody who can be
// started. The lock is held.
func (p *partition) absentees(items []pending) (list []waitingMail) {
	last, absent := "", false
	for i := range items {
		it := &items[i]
		to := it.key.address
		if it.sender == nil || !strings.HasPrefix(to, "ag::") && !strings.HasPrefix(to, "tu::") {
			continue
		}
		if to == last {
			continue // one is enough
		}
		if last, absent = to, p.findString(to) == nil; absent {
			list = append(list, waitingMail{to, it.sender.source})
		}
	}
	return list
}

// armed returns who is told, nil if nobody can be started.
func (r *Router) armed() Starter {
	if s := r.starter.Load(); s != nil && (*s).Armed() {
		return *s
	}
	return nil
}

// tellStarter tells of them.
func (r *Router) tellStarter(s Starter, list []waitingMail) {
	for _, w := range list {
		if r.heldElsewhere(w.to) {
			continue // the end of that session is looked at there (delivery rule L6)
		}
		workspace := ""
		if a, err := address.Parse(w.to); err == nil {
			workspace = a.Workspace()
		}
		s.Waits(w.to, w.sender, workspace)
	}
}

// Unread reports for which exclusive addresses mail surely waits, and for which
// that was not found out in the time that there is; for the others none does.
func (r *Router) Unread(ctx context.Context, list []string) (unread, unknown map[string]bool, err error) {
	unread, unknown = map[string]bool{}, map[string]bool{}
	addresses := make([]address.Address, 0, len(list))
	for _, text := range list {
		a, err := address.Parse(text)
		if err != nil {
			continue
		}
		addresses = append(addresses, a)
	}
	found, err := r.Backlogs(ctx, addresses)
	if err != nil {
		return nil, nil, err
	}
	for text, b := range found {
		switch {
		case b.Count > 0:
			unread[text] = true
		case !b.Exact:
			unknown[text] = true
		}
	}
	return unread, unknown, nil
}
