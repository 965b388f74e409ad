package router

import (
	"testing"
)

// A store that hung held up what looks after the log: a tail that had to be
// marked or opened anew waited for it.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	gate, gated := make(chan struct{}), make(chan struct{})
	defer close(gate)
	w.store.mu.Lock()
	w.store.gate, w.store.gated = gate, gated
	w.store.mu.Unlock()
	b.ack(1)
	<-gated // the clock's commit
	p := w.r.parts[0]
	p.mu.Lock()
	p.handover, p.marker = false, 0 // as if the marker had been refused
	p.mu.Unlock()
	w.eventually(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.handover
	})
}
