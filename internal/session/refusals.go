package session

import (
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/wireerr"
)

// refusals counts what was refused to clients, by code. It is made once and has
// every code there is.
type refusals map[wireerr.Code]*atomic.Uint64

func newRefusals() refusals {
	r := refusals{}
	for _, e := range wireerr.Table() {
		r[e.Code] = new(atomic.Uint64)
	}
	return r
}

func (r refusals) add(code wireerr.Code) {
	if n := r[code]; n != nil {
		n.Add(1)
	}
}

// Refusals returns how many requests of clients were refused, by code.
func (m *Manager) Refusals() map[string]uint64 {
	counts := make(map[string]uint64, len(m.refusals))
	for code, n := range m.refusals {
		counts[string(code)] = n.Load()
	}
	return counts
}
