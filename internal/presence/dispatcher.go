package presence

import "sync"

// Dispatcher hands notices to their listeners, one after the other. Its
// goroutine lives only while notices wait. The zero value is ready. It is a
// part of the implementations.
type Dispatcher struct {
	mu        sync.Mutex
	listeners map[string]*listener
	// queue is bounded: past maxQueued notices are dropped and counted.
	queue   []Notice
	running bool
	closed  bool
	dropped uint64
	wg      sync.WaitGroup
}

const maxQueued = 4096

type listener struct{ f func(Notice) }

// Listen is [Notices].Listen.
func (d *Dispatcher) Listen(kind string, f func(Notice)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listeners == nil {
		d.listeners = map[string]*listener{}
	}
	l := &listener{f}
	d.listeners[kind] = l
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.listeners[kind] == l {
			delete(d.listeners, kind)
		}
	}
}

// Put takes a notice. What nobody listens to is dropped.
func (d *Dispatcher) Put(n Notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.listeners[n.Kind] == nil {
		return
	}
	if len(d.queue) >= maxQueued {
		d.dropped++
		return
	}
	d.queue = append(d.queue, n)
	if !d.running {
		d.running = true
		d.wg.Go(d.run)
	}
}

func (d *Dispatcher) run() {
	for {
		d.mu.Lock()
		batch := d.queue
		d.queue = nil
		if len(batch) == 0 {
			d.running = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		for _, n := range batch {
			d.mu.Lock()
			l := d.listeners[n.Kind]
			d.mu.Unlock()
			if l != nil {
				l.f(n)
			}
		}
	}
}

// Dropped returns how many notices found no room.
func (d *Dispatcher) Dropped() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dropped
}

// Close drops what waits and returns when no listener is called any more.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed, d.queue, d.listeners = true, nil, nil
	d.mu.Unlock()
	d.wg.Wait()
}
