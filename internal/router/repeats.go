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
	at map[string]handed // by address
}

// handed is how far: up to a position in the log, and, of what was delivered
// live and had none yet, up to a seq of this gateway.
type handed struct {
	position int64
	seq      uint64
}

func (r *repeats) set(address string, h handed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h == (handed{position: delivery.NoPosition}) {
		delete(r.at, address)
		return
	}
	if r.at == nil {
		r.at = map[string]handed{}
	}
	if len(r.at) >= maxRepeats {
		for other := range r.at {
			delete(r.at, other)
			break
		}
	}
	r.at[address] = h
}

func (r *repeats) get(address string) handed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.at[address]; ok {
		return h
	}
	return handed{position: delivery.NoPosition}
}
