package router

import (
	"context"
	"errors"
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
)

// An observer that does not keep up loses the oldest, is told how many, and
// costs a bounded amount; who sends little is seen beside one who floods.
func TestObserverDropsOldest(t *testing.T) {
	t.Parallel()
	o := newObserver(0)
	for i := range maxObserved + 10 {
		o.put(nil, Observed{Position: uint64(i)})
	}
	o.put([]byte("ag::w::i::quiet"), Observed{Position: 9999})
	m, dropped, err := o.Next(t.Context())
	if err != nil || dropped != 10 || m.Position != 10 {
		t.Errorf("got %d after %d dropped, %v", m.Position, dropped, err)
	}
	turn := 0
	for ; m.Position != 9999 && err == nil; turn++ {
		m, dropped, err = o.Next(t.Context())
	}
	if turn > 100 || dropped != 0 {
		t.Errorf("who sends little waits for %d of one who floods", turn)
	}
	o.put(nil, Observed{Position: 5000, Envelope: make([]byte, 2*maxObservedBytes)})
	if m, dropped, _ = o.Next(t.Context()); dropped != 1 || m.Position == 5000 {
		t.Errorf("one that is too large: %d after %d dropped", m.Position, dropped)
	}
	for n := o.queue.Stats().Messages; n > 0; n-- {
		_, _, _ = o.Next(t.Context())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := o.Next(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Observers are bounded, and an end gives the place back.
func TestObserversAreBounded(t *testing.T) {
	t.Parallel()
	p := &partition{}
	r := &Router{parts: []*partition{p}}
	r.placement.Partitions = 1
	a, err := address.Parse("ga::w")
	if err != nil {
		t.Fatal(err)
	}
	var stops []func()
	for range maxObservers {
		_, stop, err := r.Observe(a, nil)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	if _, _, err := r.Observe(a, nil); !errors.Is(err, ErrObservers) {
		t.Errorf("one too many: %v", err)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	if len(p.observers) != 0 || r.observers != 0 {
		t.Errorf("left: %d addresses, %d observers", len(p.observers), r.observers)
	}
}
