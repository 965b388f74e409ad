// Package local keeps leases in the memory of one process.
package local

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Leases is an in-process [presence.Leases]. Its size is that of the sessions
// that are connected.
type Leases struct {
	now func() time.Time

	mu    sync.Mutex
	held  map[string]holder // by name
	wild  map[string]holder // by the text before the star
	epoch uint64
}

type holder struct {
	session string
	epoch   uint64
}

var _ presence.Leases = (*Leases)(nil)

// New returns leases without a holder. now is the clock that epochs follow;
// nil is [time.Now].
func New(now func() time.Time) *Leases {
	if now == nil {
		now = time.Now
	}
	return &Leases{now: now, held: map[string]holder{}, wild: map[string]holder{}}
}

// Acquire implements [presence.Leases].
func (l *Leases) Acquire(_ context.Context, sessionID string, names ...string) (presence.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.taken(name) {
			return presence.Lease{}, presence.ErrHeld
		}
	}
	// Unix milliseconds, so that a new process never issues an epoch below
	// one that an earlier process left in the store (delivery rule L1).
	l.epoch = max(l.epoch+1, uint64(l.now().UnixMilli()))
	lease := presence.Lease{SessionID: sessionID, Names: names, Epoch: l.epoch}
	for _, name := range names {
		set, key := l.place(name)
		set[key] = holder{sessionID, l.epoch}
	}
	return lease, nil
}

// Release implements [presence.Leases].
func (l *Leases) Release(_ context.Context, lease presence.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range lease.Names {
		set, key := l.place(name)
		if set[key] == (holder{lease.SessionID, lease.Epoch}) {
			delete(set, key)
		}
	}
	return nil
}

// Holder implements [presence.Leases].
func (l *Leases) Holder(name string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.held[name]; ok {
		return h.session, true
	}
	for prefix, h := range l.wild {
		if strings.HasPrefix(name, prefix) {
			return h.session, true
		}
	}
	return "", false
}

func (l *Leases) place(name string) (map[string]holder, string) {
	if prefix, ok := wildcard(name); ok {
		return l.wild, prefix
	}
	return l.held, name
}

func (l *Leases) taken(name string) bool {
	if prefix, ok := wildcard(name); ok {
		for other := range l.held {
			if strings.HasPrefix(other, prefix) {
				return true
			}
		}
		for other := range l.wild {
			if strings.HasPrefix(other, prefix) || strings.HasPrefix(prefix, other) {
				return true
			}
		}
		return false
	}
	if _, ok := l.held[name]; ok {
		return true
	}
	for prefix := range l.wild {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func wildcard(name string) (prefix string, ok bool) {
	if strings.HasSuffix(name, "::*") {
		return name[:len(name)-1], true
	}
	return "", false
}
