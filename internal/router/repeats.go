package router

import (
	"sync"

	"github.com/aether-gateway/gateway/internal/delivery"
)

// maxRepeats bounds how many addresses are remembered; past it any is
// forgotten, and its repeats come without their flag.
const maxRepeats = 1 << 16

// repeats remembers how far sessions that ended were handed messages that they
// did not finish, so that those are flagged when they come again. It does not
// outlive the process.
type repeats struct {
	mu sync.Mutex
	at map[string]int64 // by address
}

func (r *repeats) set(address string, position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position == delivery.NoPosition {
		delete(r.at, address)
		return
	}
	if r.at == nil {
		r.at = map[string]int64{}
	}
	if len(r.at) >= maxRepeats {
		for other := range r.at {
			delete(r.at, other)
			break
		}
	}
	r.at[address] = position
}

func (r *repeats) get(address string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position, ok := r.at[address]; ok {
		return position
	}
	return delivery.NoPosition
}
