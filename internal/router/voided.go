package router

import (
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// suspicion is for how long after the gateway's fence has fallen entries of the
// log are looked through for what was sent under it. All sessions of that time
// have been dropped by then.
const suspicion = 30 * time.Second

// fencing notes when the gateway has fenced itself. The zero value is ready.
type fencing struct {
	mu    sync.Mutex
	fence *presence.Fence
	until time.Time
}

// voided is asked before each entry: a process that was stopped may come to
// write what it had in hand before anything else tells it that it has lost its
// leases (delivery rule L2). As long as the fence stands it costs a look at the
// clock for each entry, and nothing for each message.
func (r *Router) voided() func(*pending) bool {
	if r.presence == nil {
		return nil
	}
	fence := r.presence.Fence()
	if fence == nil {
		return nil
	}
	now := time.Now()
	r.fencing.mu.Lock()
	defer r.fencing.mu.Unlock()
	if r.fencing.fence != fence && r.fencing.fence != nil || fence.Fenced() {
		r.fencing.until = now.Add(suspicion)
	}
	r.fencing.fence = fence
	if now.After(r.fencing.until) {
		return nil
	}
	return func(item *pending) bool { return item.sender != nil && item.sender.lease.Lost() }
}
