package router

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery/route"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
)

const (
	// maxObserved is how many messages of one source wait for an observer, and
	// maxObservedBytes what may wait in all: past them the oldest is dropped, and
	// counted. The largest message has room.
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
// its beginning on, and takes nothing: no position moves, nobody gets less. Sources
// take turns, so that one which floods does not hide the others.
type Observer struct {
	wake   chan struct{} // capacity 1
	filter *subject.Filter
	queue  *route.Route[Observed]
}

func newObserver(maxPayload int) *Observer {
	o := &Observer{wake: make(chan struct{}, 1)}
	o.queue = route.New[Observed](route.Options{
		Budget: max(maxObservedBytes, 2*maxPayload), PerPrincipal: maxObserved,
		Wake: func() {
			select {
			case o.wake <- struct{}{}:
			default:
			}
		},
	}, nil)
	return o
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
	o = newObserver(r.maxPayload)
	o.filter = filter
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
		if o.filter.Match(v.Subject) {
			o.put(v.Source, Observed{Envelope: bytes.Clone(v.Raw()), Position: uint64(position)})
		}
	}
}

func (o *Observer) put(source []byte, m Observed) {
	o.queue.Push(source, route.Cost(len(m.Envelope), 0), m)
}

// Next waits for the next message. dropped is how many are missing before it.
// It is called by one goroutine.
func (o *Observer) Next(ctx context.Context) (m Observed, dropped uint64, err error) {
	for {
		dropped += o.queue.Gap().Count
		if m, ok := o.queue.Pop(); ok {
			return m, dropped, nil
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return Observed{}, 0, ctx.Err()
		}
	}
}
