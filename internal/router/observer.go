package router

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
)

const (
	// maxObserved and maxObservedBytes bound what waits for an observer: past
	// them the oldest is dropped, and counted. A single larger one passes an
	// empty queue.
	maxObserved      = 1024
	maxObservedBytes = 4 << 20
	// maxObservers bounds the observers of a gateway; more are refused.
	maxObservers = 64
)

// ErrObservers is the refusal of one observer too many.
var ErrObservers = errors.New("router: as many observers as are allowed")

// Observed is a stored message, as an observer sees it.
type Observed struct {
	// Envelope is an encoded aether.v1.MessageEnvelope, the caller's own.
	Envelope []byte
	Position uint64
}

// Observer sees everything that is stored for an address and fits its filter from
// its beginning on, and takes nothing: no position moves, nobody gets less.
type Observer struct {
	wake   chan struct{} // capacity 1
	filter *subject.Filter

	mu      sync.Mutex
	queue   []Observed
	bytes   int
	dropped uint64 // not told yet
}

// Observe begins to observe what a filter takes of an address; stop ends it.
// [ErrObservers] refuses it.
func (r *Router) Observe(a address.Address, filter *subject.Filter) (o *Observer, stop func(), err error) {
	name := a.String()
	if a.Prefix() == address.PrefixMetric {
		name = address.MetricReceiver().String()
	}
	r.mu.Lock()
	if r.observers >= maxObservers {
		r.mu.Unlock()
		return nil, nil, ErrObservers
	}
	r.observers++
	r.mu.Unlock()
	o = &Observer{wake: make(chan struct{}, 1), filter: filter}
	p := r.parts[r.placement.Of(name)]
	p.mu.Lock()
	if p.observers == nil {
		p.observers = map[string][]*Observer{}
	}
	p.observers[name] = append(p.observers[name], o)
	p.mu.Unlock()
	return o, sync.OnceFunc(func() {
		p.mu.Lock()
		left := slices.DeleteFunc(p.observers[name], func(other *Observer) bool { return other == o })
		if p.observers[name] = left; len(left) == 0 {
			delete(p.observers, name)
		}
		p.mu.Unlock()
		r.mu.Lock()
		r.observers--
		r.mu.Unlock()
	}), nil
}

// observe shows an envelope to its observers. The partition's lock is held.
func (p *partition) observe(v *envelope.View, position int64) {
	for _, o := range p.observers[string(v.Topic)] {
		if !o.filter.Match(v.Subject) {
			continue
		}
		o.put(Observed{Envelope: bytes.Clone(v.Raw()), Position: uint64(position)})
	}
}

func (o *Observer) put(m Observed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) > 0 && (len(o.queue) >= maxObserved || o.bytes+len(m.Envelope) > maxObservedBytes) {
		o.bytes -= len(o.queue[0].Envelope)
		o.queue[0] = Observed{}
		o.queue = o.queue[1:]
		o.dropped++
	}
	o.queue = append(o.queue, m)
	o.bytes += len(m.Envelope)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Next waits for the next message. dropped is how many are missing before it.
// It is called by one goroutine.
func (o *Observer) Next(ctx context.Context) (m Observed, dropped uint64, err error) {
	for {
		o.mu.Lock()
		if len(o.queue) > 0 {
			m, o.queue[0] = o.queue[0], Observed{}
			o.queue = o.queue[1:]
			o.bytes -= len(m.Envelope)
			dropped, o.dropped = o.dropped, 0
			o.mu.Unlock()
			return m, dropped, nil
		}
		o.queue = nil
		o.mu.Unlock()
		select {
		case <-o.wake:
		case <-ctx.Done():
			return Observed{}, 0, ctx.Err()
		}
	}
}
