package gateway_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// where asks a session until a message is in a state, because gateways learn of
// each other's doings a moment later.
func where(t *testing.T, peer *gatewaytest.Peer, id string, want aetherv1.MessageStatus_State) *aetherv1.MessageStatus {
	t.Helper()
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		peer.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_WhereIs{
			WhereIs: &aetherv1.MessageStatusRequest{RequestId: "where", MessageId: id},
		}})
		m := peer.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetMessageStatus() != nil || m.GetError() != nil })
		s := m.GetMessageStatus()
		if s.GetState() == want && s != nil {
			if s.GetRequestId() != "where" || s.GetMessageId() != id {
				t.Errorf("another answer: %v", s)
			}
			return s
		}
		if e := m.GetError(); e != nil && e.GetCode() != "ERR_RATE_LIMITED" || time.Now().After(deadline) {
			t.Fatalf("%s is %v, want %v", id, m, want)
		}
	}
}

func withID(m *aetherv1.SendMessage, id string) *aetherv1.SendMessage {
	m.MessageId = id
	return m
}

// Where a message is, asked by its sender and its receiver on different
// gateways, from its refusal to its acknowledgement; to others it does not
// exist.
func TestWhereIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	user, stranger := c.user(t, c.a), gatewaytest.MustDial(t, c.a.Addr, c.token, gatewaytest.AgentInit("w", "echo", "stranger"))
	op := gatewaytest.Operator(t, c.b.Addr, c.b.OperatorToken("ops"))
	operator := func(id, state string) *adminv1.MessagePlace {
		t.Helper()
		found, err := op.FindMessage(within(t, patience), &adminv1.FindMessageRequest{MessageId: id})
		if err != nil || len(found.GetMessages()) != 1 || found.GetMessages()[0].GetState() != state {
			t.Fatalf("%s for the operator: %v, %v; want %s", id, found, err, state)
		}
		return found.GetMessages()[0]
	}

	user.Send(withID(send("sv::i::s", "1", "1"), "refused"))
	user.Error()
	if s := where(t, user, "refused", aetherv1.MessageStatus_STATE_REFUSED); s.GetReason() == "" || s.GetStoredAtMs() != 0 {
		t.Errorf("refused: %v", s)
	}
	operator("refused", "refused")

	user.Send(withID(send(echo, "1", "1"), "m1"))
	user.Receipt()
	if s := where(t, user, "m1", aetherv1.MessageStatus_STATE_STORED); s.GetTopic() != echo || s.GetStoredAtMs() == 0 {
		t.Errorf("stored: %v", s)
	}
	operator("m1", "stored")

	agent := c.agent(t, c.b, nil)
	got := agent.Message()
	if s := where(t, user, "m1", aetherv1.MessageStatus_STATE_DELIVERED); s.GetDeliveries() != 1 {
		t.Errorf("delivered: %v", s)
	}
	where(t, agent, "m1", aetherv1.MessageStatus_STATE_DELIVERED)
	operator("m1", "delivered")
	where(t, stranger, "m1", aetherv1.MessageStatus_STATE_UNKNOWN)
	where(t, stranger, "refused", aetherv1.MessageStatus_STATE_UNKNOWN)
	where(t, stranger, "no such message", aetherv1.MessageStatus_STATE_UNKNOWN)

	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: got.GetDeliveryId()})
	where(t, user, "m1", aetherv1.MessageStatus_STATE_ACKED)
	operator("m1", "acked")
	_ = agent.Leave()
	where(t, user, "m1", aetherv1.MessageStatus_STATE_ACKED) // by what the store has

	late := withID(send(echo, "2", "2"), "late")
	late.TtlMs = 1
	user.Send(late)
	user.Receipt()
	where(t, user, "late", aetherv1.MessageStatus_STATE_EXPIRED)
	operator("late", "expired")

	many := withID(send("ga::w", "3", "3"), "many")
	user.Send(many)
	user.Receipt()
	if s := where(t, stranger, "many", aetherv1.MessageStatus_STATE_STORED); s.GetReason() == "" {
		t.Errorf("to many: %v", s)
	}
	if _, err := op.FindMessage(within(t, patience), &adminv1.FindMessageRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no id: %v", err)
	}
}

// A message that is in no gateway's memory any more is found in the log: by the
// time in an id that the gateway drew, and, for another id, from a time on.
func TestWhereInTheLog(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.RingBytes = 64 << 10 })
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	user.Send(send(echo, "1", "1"))
	drawn := user.Receipt().GetMessageId()
	user.Send(withID(send(echo, "2", "2"), "own"))
	user.Receipt()
	for i := range 10 { // push them out of memory
		user.Send(send(echo, string(make([]byte, 100_000)), fmt.Sprint(i)))
		user.Receipt()
	}
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	find := func(id string, since int64) *adminv1.FindMessageResponse {
		t.Helper()
		found, err := op.FindMessage(within(t, patience), &adminv1.FindMessageRequest{MessageId: id, SinceMs: since})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(drawn, 0); len(found.GetMessages()) != 1 || found.GetMessages()[0].GetTopic() != echo {
		t.Errorf("drawn: %v", found)
	}
	if found := find("own", 0); len(found.GetMessages()) != 0 || !found.GetIncomplete() {
		t.Errorf("without a time: %v", found)
	}
	if found := find("own", time.Now().Add(-time.Hour).UnixMilli()); len(found.GetMessages()) != 1 || found.GetIncomplete() {
		t.Errorf("since an hour: %v", found)
	}
}
