package e2e

import (
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// tracked is a message whose outcome decides, as ALL or FIRST.
func tracked(to, text string, mode aetherv1.TrackingMode) *aetherv1.SendMessage {
	m := chat(to, text)
	m.Tracking = &aetherv1.Tracking{Mode: mode, TimeoutMs: (2 * time.Minute).Milliseconds()}
	return m
}

// votes acknowledges the next message, which must be this one, or refuses it.
func (p *peer) votes(text, refusal string) {
	p.tb.Helper()
	m := p.read()
	if string(m.GetPayload()) != text || m.GetDeliveryId() == 0 {
		p.tb.Fatalf("got %v, want %q with a delivery id", m, text)
	}
	a := &aetherv1.DeliveryAck{Ids: []uint64{m.GetDeliveryId()}}
	if refusal != "" {
		a = &aetherv1.DeliveryAck{Nack: []*aetherv1.Nack{{DeliveryId: m.GetDeliveryId(), Reason: refusal}}}
	}
	check(p.tb, p.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Ack{Ack: a}}))
}

// Three subscribers on two gateways, and a sender that wants all of them: acked by
// all, one nack, one killed, none present, one that comes late; then the first one
// that votes, and one that is not there.
func testTracked(t *testing.T, d *two) {
	const all, first = aetherv1.TrackingMode_TRACKING_MODE_ALL, aetherv1.TrackingMode_TRACKING_MODE_FIRST
	ws := workspace(t)
	to := "ga::" + ws
	sender := connect(t, d.a, agent(ws, "i", "sender"))
	one := connect(t, d.a, agent(ws, "i", "1"), client(100))
	two := connect(t, d.b, agent(ws, "i", "2"), client(100))
	three := connect(t, d.b, agent(ws, "i", "3"), client(100))

	outcome := sender.asks(tracked(to, "acked by all", all))
	one.votes("acked by all", "")
	two.votes("acked by all", "")
	three.votes("acked by all", "")
	wantOutcome(t, outcome(), aetherv1.SendReceipt_STATUS_ACKED, "", 3, 3)

	outcome = sender.asks(tracked(to, "one nack", all))
	one.votes("one nack", "")
	two.votes("one nack", "")
	three.votes("one nack", "no room")
	r := outcome()
	wantOutcome(t, r, aetherv1.SendReceipt_STATUS_NACKED, "no room", r.GetAcked(), 3)

	outcome = sender.asks(tracked(to, "one late", all))
	two.votes("one late", "")
	one.votes("one late", "") // so this gateway, too, has the message in its order: who comes now is late
	late := connect(t, d.a, agent(ws, "i", "late"), client(100))
	three.votes("one late", "")
	wantOutcome(t, outcome(), aetherv1.SendReceipt_STATUS_ACKED, "", 3, 3)
	late.leaves()

	outcome = sender.asks(tracked(to, "first", first))
	one.read()
	two.votes("first", "")
	three.read()
	wantOutcome(t, outcome(), aetherv1.SendReceipt_STATUS_ACKED, "", 1, 3)

	outcome = sender.asks(tracked(to, "one killed", all))
	one.votes("one killed", "")
	two.votes("one killed", "")
	three.read()
	three.cut()
	r = outcome()
	wantOutcome(t, r, aetherv1.SendReceipt_STATUS_NACKED, "subscriber_left", r.GetAcked(), 3)

	one.leaves()
	two.leaves()
	begun := time.Now()
	wantOutcome(t, sender.asks(tracked(to, "none present", all))(), aetherv1.SendReceipt_STATUS_NACKED, "no_eligible_subscribers", 0, 0)
	within(t, time.Second, begun, "the outcome of an empty set")

	outcome = sender.asks(tracked(two.name(), "later", first))
	two = connect(t, d.b, two.id, client(100))
	two.votes("later", "")
	wantOutcome(t, outcome(), aetherv1.SendReceipt_STATUS_ACKED, "", 1, 1)
}

// asks sends a message and returns what waits for its only answer, a receipt.
func (p *peer) asks(m *aetherv1.SendMessage) (outcome func() *aetherv1.SendReceipt) {
	p.tb.Helper()
	m.RequestId = p.request()
	check(p.tb, p.send(m))
	return func() *aetherv1.SendReceipt {
		p.tb.Helper()
		r, refusal, err := p.answer(m.GetRequestId())
		check(p.tb, err)
		if refusal != nil {
			p.tb.Fatalf("%q is refused: %v", m.GetPayload(), refusal)
		}
		return r
	}
}

func wantOutcome(tb testing.TB, r *aetherv1.SendReceipt, status aetherv1.SendReceipt_Status, reason string, acked, eligible uint32) {
	tb.Helper()
	if r.GetStatus() != status || r.GetReason() != reason || r.GetAcked() != acked || r.GetEligible() != eligible {
		tb.Errorf("got %v, want %s %q %d/%d", r, status, reason, acked, eligible)
	}
}
