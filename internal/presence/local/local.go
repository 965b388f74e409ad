package local

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Leases is an in-process [presence.Gateway]. Its size is that of the sessions
// that are connected, and of those that have ended lately. Leases cannot be
// lost but to a session that takes over, so there is no fence, and no call
// fails for want of anything.
type Leases struct {
	now  func() time.Time
	self presence.Instance

	inbox presence.Dispatcher // of the notices that this gateway sends itself

	mu       sync.Mutex
	handler  presence.Handler
	sessions map[string]*record  // by session id
	aliases  map[string]*record  // by a predecessor's id that still counts
	held     map[string]*record  // by name
	wild     map[string]*record  // by the text before the star
	gone     map[string]departed // by session id; at most maxGone
	goneIDs  []string            // in the order of leaving
	epoch    uint64
	closed   bool
}

type record struct {
	lease     presence.Lease
	preds     []string // predecessors' ids that still count
	watermark []byte
	exact     bool
	yielding  int  // how many sessions wait to take over
	released  bool // to be dropped when nobody does
}

type departed struct {
	holding   presence.Holding
	watermark []byte
	until     time.Time
}

// Bounds. Past them the oldest is forgotten.
const (
	maxGone  = 1 << 16
	maxPreds = 8
)

var _ presence.Gateway = (*Leases)(nil)

// New returns leases without a holder. now is the clock that epochs follow;
// nil is [time.Now]. The value may be used without Start.
func New(now func() time.Time) *Leases {
	if now == nil {
		now = time.Now
	}
	return &Leases{
		now: now, self: presence.Instance{ID: rand.Text(), Name: "local"},
		sessions: map[string]*record{}, aliases: map[string]*record{},
		held: map[string]*record{}, wild: map[string]*record{}, gone: map[string]departed{},
	}
}

// Start implements [presence.Gateway].
func (l *Leases) Start(_ context.Context, h presence.Handler) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handler = h
	return nil
}

// Status implements [presence.Gateway].
func (l *Leases) Status() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return presence.ErrClosed
	}
	return nil
}

// Fence implements [presence.Gateway].
func (l *Leases) Fence() *presence.Fence { return nil }

// Close implements [presence.Gateway].
func (l *Leases) Close(context.Context) error {
	l.mu.Lock()
	l.closed = true
	for _, rec := range l.sessions {
		rec.lease.Hold.Drop()
		l.drop(rec)
	}
	l.mu.Unlock()
	l.inbox.Close()
	return nil
}

// Holder implements [presence.Leases].
func (l *Leases) Holder(name string) (string, bool) {
	e, held := l.Lookup(name)
	return e.SessionID, held
}

// Held implements [presence.Directory]; its answers are always certain.
func (l *Leases) Held(name string) (held, certain bool) {
	_, held = l.Lookup(name)
	return held, true
}

// Lookup implements [presence.Directory].
func (l *Leases) Lookup(name string) (presence.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.holder(name)
	if rec == nil {
		return presence.Entry{}, false
	}
	return presence.Entry{SessionID: rec.lease.SessionID, Instance: l.self.ID, Epoch: rec.lease.Epoch}, true
}

// Self implements [presence.Directory].
func (l *Leases) Self() presence.Instance { return l.self }

// Instances implements [presence.Directory].
func (l *Leases) Instances() ([]presence.Instance, bool) {
	return []presence.Instance{l.self}, true
}

// Send implements [presence.Notices]. There are no others.
func (l *Leases) Send(to, kind string, payload []byte) error {
	if err := presence.CheckNotice(kind, payload); err != nil {
		return err
	}
	if to == l.self.ID {
		l.inbox.Put(presence.Notice{From: to, Kind: kind, Payload: append([]byte(nil), payload...)})
	}
	return nil
}

// Listen implements [presence.Notices].
func (l *Leases) Listen(kind string, f func(presence.Notice)) (stop func()) {
	return l.inbox.Listen(kind, f)
}

// holder returns who holds name or a wildcard that covers it. The mutex is
// held, here and below.
func (l *Leases) holder(name string) *record {
	if rec := l.held[name]; rec != nil {
		return rec
	}
	if prefix, ok := presence.Wildcard(name); ok {
		name = prefix
	}
	for prefix := range presence.Prefixes(name) {
		if rec := l.wild[prefix]; rec != nil {
			return rec
		}
	}
	return nil
}

// conflict returns who stands in the way of name; that is not the one in
// except.
func (l *Leases) conflict(name string, except *record) *record {
	if rec := l.holder(name); rec != nil && rec != except {
		return rec
	}
	prefix, ok := presence.Wildcard(name)
	if !ok {
		return nil
	}
	for _, set := range []map[string]*record{l.held, l.wild} {
		for other, rec := range set {
			if rec != except && strings.HasPrefix(other, prefix) {
				return rec
			}
		}
	}
	return nil
}

func (l *Leases) place(name string) (map[string]*record, string) {
	if prefix, ok := presence.Wildcard(name); ok {
		return l.wild, prefix
	}
	return l.held, name
}

// drop forgets a record, and remembers that it was.
func (l *Leases) drop(rec *record) {
	l.unlink(rec)
	lease := rec.lease
	now := l.now()
	for len(l.goneIDs) > 0 {
		oldest, ok := l.gone[l.goneIDs[0]]
		if ok && len(l.goneIDs) < maxGone && now.Before(oldest.until) {
			break
		}
		delete(l.gone, l.goneIDs[0])
		l.goneIDs = l.goneIDs[1:]
	}
	l.gone[lease.SessionID] = departed{
		holding:   presence.Holding{SessionID: lease.SessionID, Names: lease.Names, Epoch: lease.Epoch, Ended: true},
		watermark: rec.watermark, until: now.Add(presence.Remembered),
	}
	l.goneIDs = append(l.goneIDs, lease.SessionID)
}

func (l *Leases) unlink(rec *record) {
	for _, name := range rec.lease.Names {
		if set, key := l.place(name); set[key] == rec {
			delete(set, key)
		}
	}
	delete(l.sessions, rec.lease.SessionID)
	for _, id := range rec.preds {
		if l.aliases[id] == rec {
			delete(l.aliases, id)
		}
	}
}
