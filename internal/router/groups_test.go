package router

import (
	"fmt"
	"testing"
)

// Delivery rule S8: what is nacked comes again, flagged, at most five times,
// and then counts as done.
func TestS8Attempts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send("ag::w::i::b", "bad", "")
	a.send("ag::w::i::b", "good", "")
	var seen []string
	for attempt := 1; attempt <= 5; attempt++ {
		m := b.message()
		for string(m.GetPayload()) == "good" {
			seen = append(seen, "good")
			if err := b.box.AckOne(m.GetDeliveryId()); err != nil {
				t.Fatal(err)
			}
			m = b.message()
		}
		if m.GetRedelivered() != (attempt > 1) {
			t.Fatalf("attempt %d: redelivered is %v", attempt, m.GetRedelivered())
		}
		n, err := b.box.Nack(m.GetDeliveryId(), true, "")
		if err != nil {
			t.Fatal(err)
		}
		w.r.Nacked(n)
	}
	if w.r.stats.GivenUp.Load() != 1 || len(seen) != 1 {
		t.Fatalf("given up %d, good ones %v", w.r.stats.GivenUp.Load(), seen)
	}
	b.leave()
	b = w.agent("b", client(0))
	w.settled()
	b.pump()
	b.quiet()
}

// Delivery rule T1: each message goes to one worker, within its credit; what a
// worker leaves unfinished goes to another.
func TestT1Workers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	one, two := w.worker("1", client(3)), w.worker("2", client(3))
	const n = 20
	for i := range n {
		a.send("tb::w::i", fmt.Sprint(i), "")
	}
	got := map[string]int{}
	take := func(s *session) {
		m := s.message()
		got[string(m.GetPayload())]++
		s.ack(m.GetDeliveryId())
	}
	for range 5 {
		take(one)
		take(two)
	}
	one.leave()
	for len(got) < n {
		take(two)
	}
	for text, times := range got {
		if times > 2 {
			t.Errorf("%s came %d times", text, times)
		}
	}
}

func TestWorkersNobodyListens(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	a.send("tb::w::i", "lost", "r")
	if a.answer().GetReceipt() == nil {
		t.Fatal("no receipt")
	}
	w.settled()
	one := w.worker("1", client(3))
	a.send("tb::w::i", "kept", "")
	one.wants("kept")
}

func TestShared(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("c", client(0))
	a.send("ga::w", "all", "r")
	a.answer()
	for _, s := range []*session{b, c} {
		if m := s.message(); string(m.GetPayload()) != "all" || m.GetDeliveryId() != 0 || m.Position == nil {
			t.Fatalf("got %v", m)
		}
	}
	w.settled()
	a.quiet()
	late := w.agent("d", client(0))
	w.settled()
	late.pump()
	late.quiet()
}
