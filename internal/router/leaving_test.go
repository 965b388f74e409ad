package router

import (
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// What a session that ends has sent and the log has not been given must not be
// stored later, when the identity's next session has sent more (delivery rules
// P5, M2).
func TestM2LeaveDropsWhatWaits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	w.settled()
	w.log.Refuse(true)
	w.log.Drop()
	w.eventually(func() bool { return !w.r.parts[0].writer.Connected() })
	a.send("ag::w::i::b", "pending", "pending")
	a.sendAs("ag::w::i::c", "in line", "id")
	began := time.Now()
	a.sender.Leave(50 * time.Millisecond)
	if time.Since(began) < 50*time.Millisecond {
		t.Fatal("it did not wait for an outcome")
	}
	for range 2 {
		if e := a.answer().GetError(); e.GetCode() != "ERR_UNAVAILABLE" {
			t.Fatalf("got %v", e)
		}
	}
	if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::b"}); err == nil {
		t.Fatal("a session that is over sends")
	}
	<-a.sender.Settled()
	w.log.Refuse(false)
	next := w.agent("a2", client(0))
	next.send("ag::w::i::b", "next", "next")
	next.receipts(1)
	b, c := w.agent("b", client(0)), w.agent("c", client(0))
	b.wants("next")
	w.settled()
	b.quiet()
	c.quiet()
}

// A session that ends waits for what is on its way.
func TestM2LeaveWaitsForOutcomes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	w.settled()
	w.log.HoldConfirms(true)
	a.send("ag::w::i::b", "x", "x")
	left := make(chan struct{})
	go func() {
		defer close(left)
		a.sender.Leave(patience)
	}()
	w.log.HoldConfirms(false)
	<-left
	a.receipts(1)
}
