package presencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// World is what the suite runs in: gateways that share their leases, and the
// clock that all of them read.
type World interface {
	// Gateways returns two gateways that have been started and hand out
	// leases; where only one can be, both are the same.
	Gateways() (a, b *Member)
	// Advance moves the clock. Live gateways send the heartbeats that are due.
	Advance(d time.Duration)
	Now() time.Time
}

// Member is a gateway with its handler.
type Member struct {
	presence.Gateway
	*Handler
}

// Handler is a [presence.Handler] that answers as it is told and keeps what
// it was told.
type Handler struct {
	mu     sync.Mutex
	yields map[string]func(context.Context) ([]byte, bool)
	asked  []string
	lost   map[string]error
}

var _ presence.Handler = (*Handler)(nil)

// OnYield says what a session does when it is asked to yield. Without it the
// session does not hand over.
func (h *Handler) OnYield(session string, f func(context.Context) ([]byte, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.yields == nil {
		h.yields = map[string]func(context.Context) ([]byte, bool){}
	}
	h.yields[session] = f
}

// Yield implements [presence.Handler].
func (h *Handler) Yield(ctx context.Context, session string) ([]byte, bool) {
	h.mu.Lock()
	h.asked = append(h.asked, session)
	f := h.yields[session]
	h.mu.Unlock()
	if f == nil {
		return nil, false
	}
	return f(ctx)
}

// Lost implements [presence.Handler].
func (h *Handler) Lost(lease presence.Lease, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil {
		h.lost = map[string]error{}
	}
	if before := h.lost[lease.SessionID]; before != nil {
		why = fmt.Errorf("lost twice: %w, %w", before, why)
	}
	h.lost[lease.SessionID] = why
}

// LostSession returns why a session was lost, nil if it was not.
func (h *Handler) LostSession(session string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[session]
}

// Asked returns which sessions were asked to yield.
func (h *Handler) Asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.asked...)
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Take claims and fails the test if that does not succeed.
func Take(t *testing.T, g presence.Registry, c presence.Claim) presence.Grant {
	t.Helper()
	grant, err := g.Claim(t.Context(), c)
	if err != nil {
		t.Fatalf("claim of %q for %s: %v", c.Names, c.SessionID, err)
	}
	if grant.Lease.SessionID != c.SessionID || len(grant.Lease.Names) != len(c.Names) {
		t.Fatalf("claim of %q for %s: got %+v", c.Names, c.SessionID, grant.Lease)
	}
	if grant.Lease.Lost() {
		t.Fatalf("the lease of %s is lost at once", c.SessionID)
	}
	return grant
}

// Refused claims and fails the test unless the names are held.
func Refused(t *testing.T, g presence.Registry, c presence.Claim) {
	t.Helper()
	grant, err := g.Claim(t.Context(), c)
	if !errors.Is(err, presence.ErrHeld) {
		t.Fatalf("claim of %q for %s: got %+v, %v, want ErrHeld", c.Names, c.SessionID, grant, err)
	}
}

func named(session string, names ...string) presence.Claim {
	return presence.Claim{SessionID: session, Names: names}
}

func resuming(resume, session string, names ...string) presence.Claim {
	return presence.Claim{SessionID: session, Names: names, Resume: resume}
}

func release(t *testing.T, g presence.Leases, lease presence.Lease) {
	t.Helper()
	if err := g.Release(t.Context(), lease); err != nil {
		t.Fatalf("release of %s: %v", lease.SessionID, err)
	}
}
