package router

import (
	"context"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// sendFor sends a message with a time to live.
func (s *session) sendFor(to, text string, ttl time.Duration) {
	s.w.t.Helper()
	err := s.sender.Send(&aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), RequestId: text, TtlMs: ttl.Milliseconds()})
	if err != nil {
		s.w.t.Fatal(err)
	}
}

// gateway.md 5.7: a message that is older than its time to live is not
// delivered on any way, and counts as done.
func TestTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	for name, run := range map[string]func(w *world, c *clock){
		"from the log": func(w *world, c *clock) { // before its receiver comes
			a := w.agent("a", client(0))
			a.sendFor("ag::w::i::b", "old", ttl)
			a.sendFor("ag::w::i::b", "new", 10*ttl)
			a.receipts(2)
			c.add(2 * ttl)
			b := w.agent("b", client(0))
			b.wants("new")
			b.ack(1)
		},
		"from the reader": func(w *world, c *clock) { // beyond the ring
			a, other := w.agent("a", client(0)), w.agent("other", client(0))
			a.sendFor("ag::w::i::b", "old", ttl)
			a.receipts(1)
			w.traffic(a, other, 50)
			a.sendFor("ag::w::i::b", "new", 10*ttl)
			a.receipts(1)
			w.traffic(a, other, 50)
			c.add(2 * ttl)
			b := w.agent("b", client(0))
			b.wants("new")
			b.ack(1)
		},
		"from the tail": func(w *world, c *clock) { // while it is on its way
			a, b := w.agent("a", client(0)), w.agent("b", client(0))
			w.log.Stall(true) // nothing has come back from the log: it is not live
			a.sendFor(b.name, "old", ttl)
			a.sendFor(b.name, "new", 10*ttl)
			c.add(2 * ttl)
			w.log.Stall(false)
			b.wants("new")
			b.ack(1)
		},
		"again": func(w *world, c *clock) { // nacked in time, due again too late
			a, b := w.agent("a", client(0)), w.agent("b", client(0))
			a.sendFor(b.name, "old", ttl)
			a.receipts(1)
			m := b.message()
			w.settled()
			c.add(2 * ttl)
			b.nack(m.GetDeliveryId())
			w.eventually(func() bool { _, _, open := b.box.PositionOf(m.GetDeliveryId()); return !open })
			a.sendFor(b.name, "new", 10*ttl)
			b.wants("new")
			b.ack(2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			w := setup(t, func(o *Options) { o.Now, o.RingBytes = clock.now, 100_000 })
			if name == "from the reader" {
				w.r.parts[0].mu.Lock()
				w.r.parts[0].recent.limit = 500
				w.r.parts[0].mu.Unlock()
			}
			run(w, clock)
			w.settled()
			at := w.inLog("ag::w::i::b")
			w.eventually(func() bool {
				w.r.commit(context.Background())
				row := w.store.at("ag::w::i::b")
				return row != nil && row.Position >= at[len(at)-1]
			})
			if w.r.stats.Expired.Load() == 0 {
				t.Error("nothing has expired: the test shows nothing")
			}
		})
	}
}

// The same for workers: at once, when one has room again, and given back.
func TestTTLOfWorkers(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	clock := newClock()
	w := setup(t, func(o *Options) { o.Now = clock.now })
	a, one := w.agent("a", client(0)), w.worker("1", client(1))
	a.sendFor("tb::w::i", "first", ttl)
	m := one.message()
	a.sendFor("tb::w::i", "waits too long", ttl)
	a.sendFor("tb::w::i", "waits", 10*ttl)
	a.receipts(3)
	w.settled()
	clock.add(2 * ttl)
	one.nack(m.GetDeliveryId()) // too old to come again
	one.wants("waits")
	one.ack(2)
	w.eventually(func() bool { return w.r.stats.Expired.Load() == 2 })
	one.quiet()
}
