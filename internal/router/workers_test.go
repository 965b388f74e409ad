package router

import (
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
)

// soon is for a condition that no event announces.
func soon() <-chan time.Time { return time.After(5 * time.Millisecond) }

// eventually waits for a condition that no event announces.
func (w *world) eventually(cond func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !cond(); <-soon() {
		if time.Now().After(deadline) {
			w.t.Fatal("waited in vain")
		}
	}
}

// The last worker left a message unfinished; its group was forgotten with it,
// and the next worker never got the message.
func TestT3LastWorkerLeaves(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, one := w.agent("a", client(0)), w.worker("1", client(0))
	a.send("tb::w::i", "x", "")
	one.wants("x")
	one.leave()
	two := w.worker("2", client(0))
	m := two.message()
	if string(m.GetPayload()) != "x" || !m.GetRedelivered() {
		t.Fatalf("got %v", m)
	}
	two.ack(m.GetDeliveryId())
	two.leave()
	w.eventually(func() bool {
		p := w.r.parts[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.targets["tb::w::i"] == nil
	})
}

// What waited for credit when the last worker left was lost with its group.
// What comes while nobody listens is not kept.
func TestT1BacklogOutlivesWorkers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, one := w.agent("a", client(0)), w.worker("1", client(1))
	for _, text := range []string{"1", "2", "3"} {
		a.send("tb::w::i", text, text)
		a.answer()
	}
	one.wants("1")
	w.settled()
	one.leave()
	a.send("tb::w::i", "nobody listens", "r")
	a.answer()
	w.settled()
	two := w.worker("2", client(10))
	a.send("tb::w::i", "4", "")
	got := map[string]*aetherv1.IncomingMessage{}
	for range 4 {
		m := two.message()
		got[string(m.GetPayload())] = m
	}
	for _, text := range []string{"1", "2", "3", "4"} {
		if m := got[text]; m == nil || m.GetRedelivered() != (text == "1") {
			t.Errorf("%s: got %v", text, m)
		}
	}
	two.quiet()
}

// A worker that was leaving was the least loaded and took nothing: the group
// offered it everything, again and again, until it had left.
func TestT1LeavingWorkerStopsNobody(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, one, two := w.agent("a", client(0)), w.worker("1", client(3)), w.worker("2", client(3))
	one.box.OnlyAnswers()
	for _, text := range []string{"1", "2", "3"} {
		a.send("tb::w::i", text, text)
	}
	two.wants("1", "2", "3")
}

// Workers that left before they were sent a message used up its attempts: it
// was given up without ever having been delivered.
func TestT3UnsentIsNoAttempt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	one := w.worker("0", client(0))
	a.send("tb::w::i", "x", "")
	for _, id := range []string{"1", "2", "3", "4"} {
		w.eventually(func() bool {
			load, _ := one.box.Load(0)
			return load == 1
		})
		one.leave()
		one = w.worker(id, client(0))
	}
	m := one.message()
	if string(m.GetPayload()) != "x" || m.GetRedelivered() {
		t.Fatalf("got %v", m)
	}
}

// Delivery rule T3: a nack that meets the end of its session gives the message
// back once. It was lost: the one took it for given back by the other.
func TestT3NackMeetsTheEnd(t *testing.T) {
	t.Parallel()
	for name, nacked := range map[string]func(w *world, one *session, n delivery.Nacked){
		"before": func(w *world, one *session, n delivery.Nacked) {
			w.r.Nacked(n)
			one.leave()
		},
		"during": func(w *world, one *session, n delivery.Nacked) {
			one.box.Close()
			w.r.Nacked(n)
			one.leave()
		},
		"after": func(w *world, one *session, n delivery.Nacked) {
			one.leave()
			w.r.Nacked(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			a, one := w.agent("a", client(0)), w.worker("1", client(0))
			a.send("tb::w::i", "x", "")
			n, err := one.box.Nack(one.message().GetDeliveryId(), true, "")
			if err != nil {
				t.Fatal(err)
			}
			nacked(w, one, n)
			two := w.worker("2", client(0))
			a.send("tb::w::i", "y", "")
			got := map[string]bool{}
			for range 2 {
				m := two.message()
				got[string(m.GetPayload())] = m.GetRedelivered()
			}
			if again, ok := got["x"]; !ok || !again || got["y"] {
				t.Errorf("got %v", got)
			}
			two.quiet()
		})
	}
}
