package client

import (
	"context"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// receiver holds what has come and is not processed yet, recognises repeats and
// keeps the acknowledgements of the current session. Safe for concurrent use.
//
// Bounds: messages that are acknowledged are bounded by the gateway, which stops
// at MaxUnacked; one that does not stop is hung up on at twice that. Shared ones
// drop the oldest, and refuse it if it may be acknowledged. From a gateway without acknowledgements nothing may be
// dropped, so there the receive loop waits for room.
type receiver struct {
	client *Client
	keyed  bool // several handlers: one at a time per sender
	batch  int  // acknowledgements that travel at once

	mu      sync.Mutex
	arrived sync.Cond // a message may be ready, or the end
	room    sync.Cond // the queue may have room, or the end
	queue   messageList
	shared  int    // messages in queue that came to many
	lost    uint64 // of those, dropped since one was taken
	busy    map[string]struct{}
	own     window // messages that come again
	others  window
	link    *link // nil between sessions
	acks    ackLog
	end     error // no more is handed out
}

func newReceiver(c *Client) *receiver {
	r := &receiver{
		client: c,
		keyed:  c.opts.Concurrency > 1,
		batch:  min(max(c.opts.MaxUnacked/4, 1), ackBatch),
		busy:   make(map[string]struct{}),
		own:    newWindow(c.opts.DedupeWindow),
		others: newWindow(c.opts.DedupeWindow),
	}
	r.arrived.L, r.room.L = &r.mu, &r.mu
	return r
}

func (r *receiver) window(m *Message) *window {
	if m.shared() {
		return &r.others
	}
	return &r.own
}

// attach begins a session: its delivery ids start anew.
func (r *receiver) attach(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link, r.acks = l, ackLog{}
}

// detach ends a session. What waits and would have been acknowledged is
// forgotten: it could not be any more, and the gateway sends it again. What is
// in a handler's hands stays known, so that the repeat is recognised.
func (r *receiver) detach(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link == l {
		r.link, r.acks = nil, ackLog{}
	}
	for m := r.queue.head; m != nil; {
		next := m.next
		if !m.shared() {
			r.queue.remove(m)
			if m.ID != "" {
				r.own.forget(m.key)
			}
		}
		m = next
	}
	r.room.Broadcast()
}

// put takes what the receive loop read. Only without acknowledgements it waits.
func (r *receiver) put(l *link, in *aetherv1.IncomingMessage) error {
	m, id := newMessage(r.client, in), in.GetDeliveryId()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != l {
		return nil
	}
	if m.tracked {
		if !r.acks.received(id, m.voted) {
			return broken("the gateway sent delivery id %d after %d", id, r.acks.last)
		}
		if r.acks.open > 2*r.client.opts.MaxUnacked+ackBatch {
			return broken("the gateway sent %d messages beyond max_unacked %d", r.acks.open, r.client.opts.MaxUnacked)
		}
		m.link, m.deliveries = l, []uint64{id}
	}
	if m.ID != "" && r.repeated(l, m, id) {
		return nil
	}
	if r.claimed(m, id) {
		return nil
	}
	if m.shared() {
		if l.session.Extended {
			r.dropOldest()
		} else {
			r.waitForRoom(l)
		}
		r.shared++
	}
	r.queue.push(m)
	r.arrived.Signal()
	return nil
}

// waitForRoom holds the receive loop up until the queue has room, or the end.
func (r *receiver) waitForRoom(l *link) {
	if r.shared < r.client.opts.SharedBuffer {
		return
	}
	defer context.AfterFunc(l.ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.room.Broadcast()
	})()
	for r.shared >= r.client.opts.SharedBuffer && r.end == nil && l.ctx.Err() == nil {
		r.room.Wait()
	}
}

// waiting reports whether messages wait to be taken.
func (r *receiver) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.head != nil
}

// repeated reports whether the message is known, after taking note of its new
// delivery id: a done one is acknowledged again, one in a handler's hands is
// acknowledged when the handler is done.
func (r *receiver) repeated(l *link, m *Message, id uint64) bool {
	w := r.window(m)
	first, v := w.find(m.key)
	switch {
	case v != open:
		r.endOne(id, v, "seen before")
	case first == nil:
		w.begin(m.key, m)
		if m.shared() {
			w.finish(m.key, acked)
		}
		return false
	case !m.shared():
		if first.link != l {
			first.link, first.deliveries = l, nil
		}
		first.deliveries = append(first.deliveries, id)
	}
	return true
}

// claimed reports whether the message is an answer to a Request, which is then
// done here.
func (r *receiver) claimed(m *Message, id uint64) bool {
	if !r.client.requests.claim(m) {
		return false
	}
	m.verdict = acked
	if m.ID != "" {
		r.window(m).finish(m.key, acked)
	}
	r.endOne(id, acked, "")
	return true
}

// dropOldest makes room for a shared message.
func (r *receiver) dropOldest() {
	if r.shared < r.client.opts.SharedBuffer {
		return
	}
	for m := r.queue.head; m != nil; m = m.next {
		if m.shared() {
			r.queue.remove(m)
			r.shared--
			r.lost++
			r.endAll(m, dropped, "the receiver is behind")
			return
		}
	}
}

// take waits for the next message whose sender is not being served.
func (r *receiver) take(ctx context.Context) (*Message, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.arrived.Broadcast()
		})()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.end != nil {
			return nil, r.end
		}
		if err := ctx.Err(); err != nil {
			r.arrived.Signal() // the signal may have been meant for another
			return nil, gaveUp("no message", err)
		}
		if m := r.ready(); m != nil {
			r.queue.remove(m)
			if m.shared() {
				r.shared--
				r.room.Signal()
				if r.lost > 0 {
					r.client.notices.put(Gap{Reason: "local", Dropped: r.lost})
					r.lost = 0
				}
			}
			if r.keyed {
				r.busy[m.Source] = struct{}{}
			}
			return m, nil
		}
		r.arrived.Wait()
	}
}

func (r *receiver) ready() *Message {
	m := r.queue.head
	if r.keyed {
		for m != nil {
			if _, taken := r.busy[m.Source]; !taken {
				break
			}
			m = m.next
		}
	}
	return m
}

// done frees the message's sender for the next handler.
func (r *receiver) done(m *Message) {
	if !r.keyed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, m.Source)
	r.arrived.Signal()
}

// settle ends a delivery, once.
func (r *receiver) settle(m *Message, v verdict, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.verdict != open || !m.tracked {
		return
	}
	m.verdict = v
	if m.ID != "" {
		r.window(m).finish(m.key, v)
	}
	r.endAll(m, v, reason)
}

// endAll ends the deliveries of a message that the current session has made.
func (r *receiver) endAll(m *Message, v verdict, reason string) {
	if m.link != r.link {
		return
	}
	for _, id := range m.deliveries {
		r.endOne(id, v, reason)
	}
}

// endOne ends one delivery id of the current session.
func (r *receiver) endOne(id uint64, v verdict, reason string) {
	if id != 0 && r.link != nil && r.acks.settle(id, v, reason, r.batch, time.Now()) {
		r.link.kick()
	}
}

// flush returns the acknowledgements that are due, or after how long some will be.
func (r *receiver) flush(l *link, force bool) ([]*aetherv1.DeliveryAck, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != l {
		return nil, 0
	}
	due, wait := r.acks.due(r.batch, time.Now())
	if due || force && r.acks.fresh > 0 {
		return r.acks.flush(), 0
	}
	return nil, wait
}

// stop hands nothing out any more; the first reason counts.
func (r *receiver) stop(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end == nil {
		r.end = reason
	}
	r.arrived.Broadcast()
	r.room.Broadcast()
}

// messageList is a queue of messages; one is in at most one list.
type messageList struct{ head, tail *Message }

func (q *messageList) push(m *Message) {
	m.prev, m.next = q.tail, nil
	if q.tail == nil {
		q.head = m
	} else {
		q.tail.next = m
	}
	q.tail = m
}

func (q *messageList) remove(m *Message) {
	if m.prev == nil {
		q.head = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.tail = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
}
