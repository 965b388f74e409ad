package e2e

import (
	"fmt"
	"slices"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func (p *peer) acknowledgeFrame(a *aetherv1.DeliveryAck) {
	p.tb.Helper()
	check(p.tb, p.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Ack{Ack: a}}))
}

func (p *peer) nacks(id uint64, requeue bool) {
	p.tb.Helper()
	p.acknowledgeFrame(&aetherv1.DeliveryAck{Nack: []*aetherv1.Nack{{DeliveryId: id, Reason: "not now", Requeue: requeue}}})
}

// Delivery stops at max_unacked and goes on as acknowledgements come.
func testWindow(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	sent := numbered("m", 1, 50)
	sender.stored(to.name, sent[:30]...)
	receiver := connect(t, g, to, client(10))
	var got []*aetherv1.IncomingMessage
	take := func(n int) {
		t.Helper()
		for range n {
			got = append(got, receiver.read())
		}
	}
	// A broadcast passes the closed window: what comes before it is all that
	// was let out.
	closed := func() {
		t.Helper()
		sender.stored("ga::"+ws, "pass")
		if extra := receiver.until("pass"); len(extra) > 0 {
			t.Fatalf("%q came past a window of 10, after %d deliveries", texts(extra), len(got))
		}
	}
	take(10)
	closed()
	sender.stored(to.name, sent[30:]...) // while it is connected
	closed()
	receiver.acks(4)
	take(4)
	closed()
	// Single acknowledgements open the window as well.
	receiver.acknowledgeFrame(&aetherv1.DeliveryAck{Ids: []uint64{14, 9, 6}})
	take(3)
	closed()
	receiver.nacks(5, false) // without requeue it is done
	take(1)
	closed()
	receiver.acks(18)
	take(10)
	closed()
	for len(got) < len(sent) {
		receiver.acks(uint64(len(got)))
		take(min(10, len(sent)-len(got)))
	}
	wantTexts(t, got, sent)
	wantFresh(t, got)
}

// The committed position stays below what is not acknowledged: single
// acknowledgements beyond a hole do not lose it.
func testHoles(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	sent := numbered("m", 1, 10)
	sender.stored(to.name, sent...)
	receiver := connect(t, g, to)
	for range sent {
		receiver.read()
	}
	receiver.acknowledgeFrame(&aetherv1.DeliveryAck{UpTo: 3, Ids: []uint64{5, 6, 10}})
	receiver.leaves()
	receiver = connect(t, g, to)
	sender.stored(to.name, "last")
	var again []string
	for _, m := range receiver.until("last") {
		again = append(again, string(m.GetPayload()))
	}
	// Number 4 is not done; what lies above it may come again, below it not.
	for _, text := range []string{"m 4", "m 7", "m 8", "m 9"} {
		if !slices.Contains(again, text) {
			t.Errorf("%q was not acknowledged and does not come again: %q", text, again)
		}
	}
	for _, text := range again {
		if slices.Contains(sent[:3], text) {
			t.Errorf("%q comes again", text)
		}
	}
	if !slices.IsSortedFunc(again, byNumber) {
		t.Errorf("they come in the order %q", again)
	}
}

// A nacked message comes again, flagged, with growing pauses, at most five
// times; then it is done. Others do not wait for it.
func testNack(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	receiver := connect(t, g, to, client(10))
	sender.stored(to.name, "bad", "good 1")
	deliveries, id := 0, uint64(0)
	good := 0
	sender.stored(to.name, numbered("good", 2, 20)...)
	for deliveries < 5 || good < 20 {
		m := receiver.read()
		if m.GetDeliveryId() != id+1 {
			t.Errorf("delivery id %d after %d", m.GetDeliveryId(), id)
		}
		id = m.GetDeliveryId()
		if string(m.GetPayload()) != "bad" {
			good++
			if want := fmt.Sprintf("good %d", good); string(m.GetPayload()) != want {
				t.Errorf("got %q, want %q", m.GetPayload(), want)
			}
			receiver.acknowledgeFrame(&aetherv1.DeliveryAck{Ids: []uint64{id}})
			continue
		}
		deliveries++
		if m.GetRedelivered() != (deliveries > 1) {
			t.Errorf("delivery %d of it is flagged %v", deliveries, m.GetRedelivered())
		}
		receiver.nacks(id, true)
	}
	// Five deliveries are all: it counts as done, so that also the next session
	// does not get it.
	sender.stored(to.name, "after")
	m := receiver.read()
	if string(m.GetPayload()) != "after" {
		t.Fatalf("got %q after five deliveries", m.GetPayload())
	}
	receiver.acknowledgeFrame(&aetherv1.DeliveryAck{Ids: []uint64{m.GetDeliveryId()}})
	receiver.leaves()
	receiver = connect(t, g, to)
	sender.stored(to.name, "last")
	wantTexts(t, receiver.until("last"), nil)
}

// A nacked message that has not come again when the session ends comes in the
// next one.
func testNackAndLeave(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	sender.stored(to.name, "one", "two", "three")
	receiver := connect(t, g, to)
	for range 3 {
		receiver.read()
	}
	receiver.acknowledgeFrame(&aetherv1.DeliveryAck{Ids: []uint64{1, 3}, Nack: []*aetherv1.Nack{{DeliveryId: 2, Requeue: true}}})
	receiver.leaves()
	receiver = connect(t, g, to)
	sender.stored(to.name, "last")
	again := texts(receiver.until("last"))
	if !slices.Contains(again, "two") || slices.Contains(again, "one") {
		t.Errorf("after a nack and a new connection %q came", again)
	}
}

// Acknowledgements that make no sense are refused, one by one, and the stream
// goes on.
func testBadAcks(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	receiver := connect(t, g, to)
	const code = "ERR_INVALID_ARGUMENT"
	bad := func(a *aetherv1.DeliveryAck) {
		t.Helper()
		receiver.acknowledgeFrame(a)
		if e := receiver.errorOf(code); e.GetRetryable() {
			t.Errorf("%v is called retryable", e)
		}
	}
	nack := func(id uint64) *aetherv1.DeliveryAck {
		return &aetherv1.DeliveryAck{Nack: []*aetherv1.Nack{{DeliveryId: id, Requeue: true}}}
	}
	// Nothing has been delivered yet.
	bad(&aetherv1.DeliveryAck{})
	bad(&aetherv1.DeliveryAck{UpTo: 1})
	bad(&aetherv1.DeliveryAck{Ids: []uint64{1}})
	bad(nack(1))
	bad(&aetherv1.DeliveryAck{Ids: []uint64{0}})
	sent := numbered("m", 1, 6)
	sender.stored(to.name, sent...)
	for range sent {
		receiver.read()
	}
	// From the future.
	bad(&aetherv1.DeliveryAck{UpTo: 7})
	bad(&aetherv1.DeliveryAck{UpTo: 1 << 63})
	bad(&aetherv1.DeliveryAck{Ids: []uint64{7}})
	bad(nack(1_000_000))
	// Twice.
	receiver.acks(2)
	bad(&aetherv1.DeliveryAck{UpTo: 2})
	bad(&aetherv1.DeliveryAck{UpTo: 1})
	bad(&aetherv1.DeliveryAck{Ids: []uint64{2}})
	bad(nack(1))
	receiver.acknowledgeFrame(&aetherv1.DeliveryAck{Ids: []uint64{4}})
	bad(&aetherv1.DeliveryAck{Ids: []uint64{4}})
	bad(nack(4))
	receiver.nacks(5, false)
	bad(nack(5))
	bad(&aetherv1.DeliveryAck{Ids: []uint64{5}})
	// None of that counted as an acknowledgement: 3 and 6 come again.
	receiver.leaves()
	receiver = connect(t, g, to)
	sender.stored(to.name, "last")
	again := texts(receiver.until("last"))
	for _, text := range []string{"m 3", "m 6"} {
		if !slices.Contains(again, text) {
			t.Errorf("%q was not acknowledged and does not come again: %q", text, again)
		}
	}

	// Who chose AUTO has nothing to acknowledge.
	for name, mode := range map[string]option{"auto": auto, "plain": plain} {
		p := connect(t, g, agent(ws, "i", name), mode)
		sender.stored(p.name(), "m")
		if m := p.read(); string(m.GetPayload()) != "m" {
			t.Errorf("%s got %v", name, m)
		}
		p.acknowledgeFrame(&aetherv1.DeliveryAck{UpTo: 1})
		p.errorOf(code)
		sender.stored(p.name(), "n")
		if m := p.read(); string(m.GetPayload()) != "n" {
			t.Errorf("%s got %v", name, m)
		}
	}
}
