package gateway_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/store"
)

// refusesAll nacks messages until each was delivered as often as it is.
func refusesAll(agent *gatewaytest.Peer, messages int) {
	for range messages * 5 {
		agent.Acknowledge(&aetherv1.DeliveryAck{Nack: []*aetherv1.Nack{{DeliveryId: agent.Message().GetDeliveryId(), Requeue: true}}})
	}
}

// What a receiver at one gateway refuses an operator at the other one lists,
// sends again once, whichever gateway is asked, and lets go; not what its sender
// may not send any more (delivery rule S8).
func TestS8OperatorsOnTwoGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	agent, user := c.agent(t, c.a, nil), c.user(t, c.b)
	opA, opB := gatewaytest.Operator(t, c.a.Addr, c.a.OperatorToken("ops")), gatewaytest.Operator(t, c.b.Addr, c.b.OperatorToken("ops"))
	ctx := within(t, patience)
	list := func(op adminv1.AdminClient, want int) []*adminv1.DeadLetter {
		t.Helper()
		var all []*adminv1.DeadLetter
		for r := (&adminv1.ListDeadLettersRequest{PageSize: 2}); ; {
			page, err := op.ListDeadLetters(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page.GetDeadLetters()...)
			if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
				break
			}
		}
		if len(all) != want {
			t.Fatalf("%d dead letters, want %d: %v", len(all), want, all)
		}
		return all
	}
	list(opB, 0)
	user.Send(withID(send(echo, "1", "1"), "m1"))
	user.Receipt()
	sendAll(user, 2, 4)
	refusesAll(agent, 4)
	// They are done for their receiver when they are in the log of dead letters.
	where(t, user, "m1", aetherv1.MessageStatus_STATE_ACKED)
	eventually(t, "all are given up", func() bool { return c.a.Router.Stats().DeadLetters.Load() == 4 })
	all := list(opB, 4)
	at := map[string]*adminv1.DeadLetter{}
	for _, d := range all {
		at[string(d.GetMessage().GetPayload())] = d
	}
	if d := at["1"]; d.GetReason() != "rejected" || d.GetAttempts() != 5 || d.GetGivenUpAtMs() == 0 || d.GetMessage().GetMessageId() != "m1" ||
		d.GetMessage().GetSource() != "us::u::1" || d.GetMessage().GetTopic() != echo || len(d.GetMessage().GetMetadata()) != 0 {
		t.Errorf("got %v", d)
	}

	found, err := opB.FindMessage(ctx, &adminv1.FindMessageRequest{MessageId: "m1"})
	if err != nil || len(found.GetMessages()) != 1 || found.GetMessages()[0].GetState() != "given_up" {
		t.Errorf("where it is: %v, %v", found, err)
	}
	sent, err := opB.ReplayDeadLetter(ctx, &adminv1.ReplayDeadLetterRequest{Position: at["1"].GetPosition()})
	if err != nil {
		t.Fatal(err)
	}
	m := agent.Message()
	if string(m.GetPayload()) != "1" || m.GetMessageId() != sent.GetMessageId() || !m.GetRedelivered() || m.GetSourceTopic() != "us::u::1" ||
		m.GetMetadata()["aether-replay-of"] != "m1" {
		t.Errorf("replayed as %v", m)
	}
	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	if _, err := opA.ReplayDeadLetter(ctx, &adminv1.ReplayDeadLetterRequest{Position: at["1"].GetPosition()}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("replayed twice: %v", err)
	}
	list(opA, 3)

	// A rule of today counts, and so does where its sender is now.
	rule, err := opA.AddRule(ctx, &adminv1.AddRuleRequest{Rule: &adminv1.Rule{
		Effect: "deny", Principal: "us::u::*", Action: "send", Address: "ag::w::*::*", Grammar: "strict",
	}})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(says string) {
		t.Helper()
		_, err := opB.ReplayDeadLetter(ctx, &adminv1.ReplayDeadLetterRequest{Position: at["2"].GetPosition()})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	eventually(t, "the rule is known", func() bool { return len(c.b.Router.Rules().Set().Rules()) == 1 })
	refused("rule")
	if _, err := opA.RemoveRule(ctx, &adminv1.RemoveRuleRequest{Id: rule.GetRule().GetId()}); err != nil {
		t.Fatal(err)
	}
	if _, err := opA.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "w", User: "u", Ruling: store.RuledOut.String()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ruling is known", func() bool {
		return len(c.b.Router.Rules().Set().Rules()) == 0 && c.b.Router.Members().Barred("u", "w")
	})
	refused("no member")

	if done, err := opA.PurgeDeadLetters(ctx, &adminv1.PurgeDeadLettersRequest{
		Extent: &adminv1.PurgeDeadLettersRequest_Position{Position: at["3"].GetPosition()},
	}); err != nil || done.GetPurged() != 1 {
		t.Errorf("purged %v: %v", done, err)
	}
	list(opB, 2)
	if _, err := opB.ReplayDeadLetter(ctx, &adminv1.ReplayDeadLetterRequest{Position: at["3"].GetPosition()}); status.Code(err) != codes.NotFound {
		t.Errorf("replay of what was purged: %v", err)
	}
	if done, err := opB.PurgeDeadLetters(ctx, &adminv1.PurgeDeadLettersRequest{Extent: &adminv1.PurgeDeadLettersRequest_All{All: true}}); err != nil || done.GetPurged() != 2 {
		t.Errorf("purged %v: %v", done, err)
	}
	list(opA, 0)

	for _, r := range []*adminv1.PurgeDeadLettersRequest{{}, {Extent: &adminv1.PurgeDeadLettersRequest_All{}}} {
		if _, err := opA.PurgeDeadLetters(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("purged %v: %v", r, err)
		}
	}
	for _, r := range []*adminv1.ListDeadLettersRequest{{Reason: "nope"}, {PageToken: "-1"}} {
		if _, err := opA.ListDeadLetters(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("listed %v: %v", r, err)
		}
	}
}
