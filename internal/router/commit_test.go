package router

import (
	"context"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
)

// A session that left while the store was busy with its position took that for
// done: when the store failed, the position was lost and its messages came
// again to a client that had acknowledged them.
func TestS7LeaveWhileCommitting(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	gate, gated := make(chan struct{}), make(chan struct{})
	w.store.mu.Lock()
	w.store.gate, w.store.gated = gate, gated
	w.store.mu.Unlock()
	b.ack(1)
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		w.r.commit(context.Background())
	}()
	<-gated
	b.leave()
	b = w.agent("b", client(0))
	b.pump()
	b.quiet()
	close(gate)
	<-committed
}

// A message that was acknowledged before the log showed it was not committed
// until the next one came.
func TestCommitAfterAnEarlyAck(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.Stall(true)
	a.send("ag::w::i::b", "x", "")
	b.wants("x")
	b.ack(2)
	w.r.commit(context.Background())
	before := w.store.at("ag::w::i::b")
	w.log.Stall(false)
	w.settled()
	w.r.commit(context.Background())
	if after := w.store.at("ag::w::i::b"); after.Position <= before.Position {
		t.Fatalf("it stays at %d", after.Position)
	}
}

// A session that had fallen back to reading the log when it left did not learn
// where its live deliveries stand: what it had acknowledged came again (S7).
func TestS7LeaveWhileBehind(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", delivery.Options{Mode: delivery.Client, QueueBytes: 400})
	w.warm(a, b)
	w.log.Stall(true)
	a.send("ag::w::i::b", "x", "")
	b.wants("x")
	b.ack(2)
	large := strings.Repeat("y", 300)
	a.send("ag::w::i::b", "1"+large, "")
	a.send("ag::w::i::b", "2"+large, "")
	if b.sub.inboxes[0].Fed() != delivery.FedByNobody {
		t.Fatal("it has not fallen back: the test shows nothing")
	}
	w.log.Stall(false)
	w.settled()
	b.leave()
	b = w.agent("b", client(0))
	b.wants("1"+large, "2"+large)
}
