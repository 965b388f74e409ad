package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
)

// BenchmarkForeign is what a message costs at the tail that concerns nobody on
// this gateway: with an id that the gateway drew, with a client's, and with a
// client's when the memory is full.
func BenchmarkForeign(b *testing.B) {
	for _, c := range []struct {
		name  string
		drawn bool
		limit int
	}{{"drawn", true, 0}, {"client", false, 1 << 30}, {"full", false, 1 << 16}} {
		b.Run(c.name, func(b *testing.B) {
			r := &Router{origin: 1}
			p := &partition{r: r, targets: map[string]*target{}}
			p.ids.limit = c.limit
			var list [][]byte
			for i := range 1 << 17 {
				e := envelope.Envelope{
					Source: fmt.Sprint("ag::w::i::s", i%500), Topic: fmt.Sprint("ag::w::i::r", i%700), Payload: make([]byte, 256),
					MessageID: fmt.Sprintf("0192f0c1-2b3c-7d4e-8f90-%012d", i), Origin: 2, Seq: uint64(i), TimestampMS: 1, Drawn: c.drawn,
				}
				list = append(list, e.Append(nil))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if p.view.Parse(list[i%len(list)]) != nil {
					b.Fatal("malformed")
				}
				p.show(&p.view, int64(i))
			}
		})
	}
}

// second is another gateway on the same log.
func (w *world) second(change ...func(*Options)) *world {
	w.t.Helper()
	other := &world{t: w.t, log: w.log, store: w.store}
	other.start(change...)
	return other
}

// Two gateways take the same message at the same time, and both store it. It is
// delivered once, to a receiver of either, however that reads.
func TestP6SecondCopyIsNotDelivered(t *testing.T) {
	t.Parallel()
	w1 := setup(t, func(o *Options) { o.RingBytes = 3000 })
	w2 := w1.second(func(o *Options) { o.RingBytes = 3000 })
	a1, a2 := w1.agent("a", client(0)), w2.agent("a", client(0))
	b, c := w1.agent("b", client(0)), w2.agent("c", client(0))
	worker, listener := w2.worker("1", client(0)), w1.agent("l", client(0))
	a1.sendAs("ag::w::i::warm", "warm", "warm1")
	a2.sendAs("ag::w::i::warm", "warm", "warm2")
	a1.receipts(1)
	a2.receipts(1)
	w1.warm(a1, b)
	w2.warm(a2, c)
	both := func(to, text string) {
		a1.sendAs(to, text, text)
		a2.sendAs(to, text, text)
	}
	w1.log.Stall(true)
	for i := range 5 {
		text := fmt.Sprint(i)
		both("ag::w::i::b", text)
		both("ag::w::i::c", text)
		both("ag::w::i::late", text)
		both("tb::w::i", text)
		both("ga::w", text)
	}
	// Each gateway has to have numbered its own before one sees the other's.
	for _, a := range []*session{a1, a2} {
		w1.until(func() (bool, <-chan struct{}) {
			return a.sender.waiting.Load() == 25 && a.sender.heldSends.Load() == 0, tick()
		})
	}
	w1.log.Stall(false)
	for range 25 {
		for _, a := range []*session{a1, a2} {
			if a.answer().GetReceipt() == nil {
				t.Fatal("a send has no receipt")
			}
		}
	}
	for _, s := range []*session{a1, a2} {
		s.send("ag::w::i::b", "end", "end")
		s.send("ag::w::i::c", "end", "end")
		s.send("tb::w::i", "end", "end")
		s.send("ga::w", "end", "end")
		s.send("ag::w::i::late", "end", "end")
		s.receipts(5)
	}
	w1.settled()
	w2.settled()
	b.expectOnce(b.name)
	c.expectOnce(c.name)
	worker.expectOnce("tb::w::i")
	listener.expectOnce("ga::w")
	if w1.r.stats.Copies.Load() != 25 || w2.r.stats.Copies.Load() != 25 {
		t.Fatalf("%d and %d copies were found: the test shows nothing", w1.r.stats.Copies.Load(), w2.r.stats.Copies.Load())
	}
	// What has left the ring, for one that comes later, and for a gateway that
	// starts later.
	for i := range 50 {
		a1.send("ag::w::i::nobody", fmt.Sprint(i), "")
	}
	w1.settled()
	late := w1.agent("late", client(0))
	late.expectOnce(late.name)
	if w1.r.stats.CatchUps.Load() == 0 {
		t.Fatal("nothing was read from the log: the test shows nothing")
	}
	late.leave()
	unread := newMemoryStore()
	unread.notes["ag::w::i::late"] = 0
	w3 := w1.second(func(o *Options) { o.RingBytes, o.Positions = 3000, unread })
	w3.agent("late", client(0)).expectOnce("ag::w::i::late")
}

// tick is for conditions that nothing tells of.
func tick() <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(time.Millisecond, func() { close(c) })
	return c
}

// expectOnce reads 0 to 4 of an address once each, in order, and then "end"
// twice.
func (s *session) expectOnce(topic string) {
	s.w.t.Helper()
	want := 0
	for ends := 0; ends < 2; {
		m := s.message()
		if m.GetDeliveryId() > 0 {
			s.ack(m.GetDeliveryId())
		}
		text := string(m.GetPayload())
		switch {
		case m.GetTopic() != topic || text == "warm":
		case text == "end":
			ends++
		case text != fmt.Sprint(want):
			s.w.t.Fatalf("%s got %q of %s, want %d", s.name, text, topic, want)
		default:
			want++
		}
	}
	if want != 5 {
		s.w.t.Fatalf("%s got %d of 5", s.name, want)
	}
}
