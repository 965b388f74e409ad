package router

import (
	"fmt"
	"testing"
)

func TestBacklogThenLive(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	const n = 2500
	for i := range n {
		a.send("ag::w::i::b", fmt.Sprint(i), "")
	}
	b := w.agent("b", client(100))
	for i := range n {
		m := b.message()
		if string(m.GetPayload()) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.GetPayload())
		}
		b.ack(m.GetDeliveryId())
	}
	b.quiet()
}

// A backlog that has left the ring is read from the log, by one reader for
// all, while live traffic goes on, without overtaking (delivery rules C8, S1).
func TestC8CatchUpBesideTraffic(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 20_000 })
	a := w.agent("a", client(0))
	const n, readers = 600, 5
	for i := range n {
		for r := range readers {
			a.send(fmt.Sprintf("ag::w::i::r%d", r), fmt.Sprint(i), "")
		}
	}
	w.settled()
	var list []*session
	for r := range readers {
		list = append(list, w.agent(fmt.Sprintf("r%d", r), client(7)))
	}
	for i := range n {
		a.send("ag::w::i::r0", fmt.Sprint(n+i), "")
		for _, s := range list {
			m := s.message()
			if string(m.GetPayload()) != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %q", s.name, i, m.GetPayload())
			}
			s.ack(m.GetDeliveryId())
		}
	}
	for i := range n {
		m := list[0].message()
		if string(m.GetPayload()) != fmt.Sprint(n+i) {
			t.Fatalf("live message %d is %q", i, m.GetPayload())
		}
		list[0].ack(m.GetDeliveryId())
	}
	if w.r.stats.CatchUps.Load() == 0 {
		t.Fatal("nothing was read from the log: the test shows nothing")
	}
}

// Delivery rule S3: a live delivery does not wait for the confirm, the receipt
// does.
func TestS3LiveBeforeConfirm(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.HoldConfirms(true)
	a.send("ag::w::i::b", "live", "r")
	m := b.message()
	if m.Position != nil {
		t.Fatal("a live delivery has a position")
	}
	a.quiet()
	if len(a.queue) > 0 {
		t.Fatalf("an answer before the confirm: %v", a.queue)
	}
	w.log.HoldConfirms(false)
	if a.answer().GetReceipt().GetRequestId() != "r" {
		t.Fatal("no receipt")
	}
	w.settled()
	b.quiet()
}

// Delivery rule S2: a session that joins while messages are on their way gets
// those by the tail first.
func TestS2JoinFence(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	b := w.agent("b", client(0))
	w.warm(a, b)
	b.ack(1)
	b.leave()
	w.log.Stall(true)
	a.send("ag::w::i::b", "before", "")
	b = w.agent("b", client(0))
	b.pump() // joins the tail: the log's end is reached
	a.send("ag::w::i::b", "after", "")
	b.quiet()
	w.log.Stall(false)
	b.wants("before", "after")
	w.settled()
	b.quiet()
}

// Delivery rule M2: the first message of a sender's session goes by the tail,
// later ones wait for it.
func TestM2Eligible(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.agent("b", client(0))
	b.pump()
	a := w.agent("a", client(0))
	w.log.Stall(true)
	a.send("ag::w::i::b", "first", "")
	a.send("ag::w::i::b", "second", "")
	b.quiet()
	w.log.Stall(false)
	b.wants("first", "second")
	w.settled()
	before := w.r.stats.Live.Load()
	a.send("ag::w::i::b", "third", "")
	if w.r.stats.Live.Load() != before+1 {
		t.Fatal("the sender does not become eligible")
	}
	b.wants("third")
}

// Delivery rule M3: while the tail is down nobody is handed anything live, and
// nothing is lost, repeated or overtaken.
func TestM3TailDown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(10_000))
	w.warm(a, b)
	p := w.r.parts[0]
	want := 0
	for round := range 20 {
		for range 20 {
			a.send("ag::w::i::b", fmt.Sprint(want), "")
			want++
		}
		if round%4 == 1 {
			w.log.Drop()
		}
	}
	for i := range want {
		b.wants(fmt.Sprint(i))
	}
	w.until(func() (bool, <-chan struct{}) {
		shown := p.nextEntry()
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.handover, shown
	})
	w.settled()
	b.quiet()
	live := w.r.stats.Live.Load()
	a.send("ag::w::i::b", "x", "")
	b.wants("x")
	if w.r.stats.Live.Load() == live {
		t.Fatal("live delivery does not come back")
	}
}
