package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// mailbox is somebody who is away, and an operator.
type mailbox struct {
	t    *testing.T
	g    *gatewaytest.Gateway
	op   adminv1.AdminClient
	user *gatewaytest.Peer
}

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	g := gatewaytest.Start(t)
	return &mailbox{
		t: t, g: g, op: gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops")),
		user: gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1")),
	}
}

func (m *mailbox) agent() *gatewaytest.Peer {
	m.t.Helper()
	return gatewaytest.MustDial(m.t, m.g.Addr, m.g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
}

// peek wants the payloads of what waits, read in pages.
func (m *mailbox) peek(from, to int) (all []*adminv1.StoredMessage) {
	m.t.Helper()
	for r := (&adminv1.PeekMailRequest{Address: echo, PageSize: 3}); ; {
		page, err := m.op.PeekMail(within(m.t, patience), r)
		if err != nil || page.GetIncomplete() {
			m.t.Fatalf("%v, %v", page, err)
		}
		all = append(all, page.GetMessages()...)
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	var want, got []string
	for i := from; i <= to; i++ {
		want = append(want, fmt.Sprint(i))
	}
	for _, x := range all {
		got = append(got, string(x.GetPayload()))
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("waiting: %q, want %q", got, want)
	}
	return all
}

func (m *mailbox) skip(r *adminv1.SkipMailRequest) *adminv1.SkipMailResponse {
	m.t.Helper()
	r.Address = echo
	done, err := m.op.SkipMail(within(m.t, patience), r)
	if err != nil {
		m.t.Fatal(err)
	}
	return done
}

// reads has the agent get exactly these, acknowledges them and sends it away.
func (m *mailbox) reads(from, to int) {
	m.t.Helper()
	agent := m.agent()
	m.user.Send(send(echo, "end", "end"))
	if from <= to {
		reads(m.t, agent, from, to)
	}
	last := agent.Message()
	if string(last.GetPayload()) != "end" {
		m.t.Errorf("got %q behind %d", last.GetPayload(), to)
	}
	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: last.GetDeliveryId()})
	agent.Heartbeat()
	_ = agent.Leave()
	m.user.Receipt()
}

// Mail can be looked at without taking it, passed over one by one, up to a
// position and as a whole; what was not passed over is delivered. It is so
// whether the reader was never there, or has been.
func TestMail(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"never there", "has left"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			m := newMailbox(t)
			if before == "has left" {
				m.reads(1, 0)
			}
			m.peek(1, 0)
			sendAll(m.user, 1, 10)
			m.peek(1, 10)
			all := m.peek(1, 10) // and again: nothing was taken
			if done := m.skip(&adminv1.SkipMailRequest{Extent: &adminv1.SkipMailRequest_Count{Count: 2}}); done.GetSkipped() != 2 {
				t.Errorf("skipped %v", done)
			}
			m.peek(3, 10)
			m.skip(&adminv1.SkipMailRequest{Extent: &adminv1.SkipMailRequest_ToPosition{ToPosition: all[4].GetPosition()}})
			m.peek(6, 10)
			m.reads(6, 10)
			sendAll(m.user, 11, 15)
			m.skip(&adminv1.SkipMailRequest{Extent: &adminv1.SkipMailRequest_All{All: true}})
			m.peek(1, 0)
			_, err := m.op.SkipMail(within(t, patience), &adminv1.SkipMailRequest{Address: echo, Extent: &adminv1.SkipMailRequest_Count{Count: 1}})
			if status.Code(err) != codes.NotFound {
				t.Errorf("skipped nothing: %v", err)
			}
			sendAll(m.user, 16, 20)
			m.peek(16, 20)
			m.reads(16, 20)
		})
	}
}

// What was acknowledged can be had again, by position and by time.
func TestMailReplay(t *testing.T) {
	t.Parallel()
	m := newMailbox(t)
	sendAll(m.user, 1, 5)
	all := m.peek(1, 5)
	agent := m.agent()
	last := reads(t, agent, 1, 5)
	agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: last.GetDeliveryId()})
	agent.Heartbeat()
	_, err := m.op.ReplayMail(within(t, patience), &adminv1.ReplayMailRequest{Address: echo, Start: &adminv1.ReplayMailRequest_FromPosition{FromPosition: 1}})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("under a reader that is there: %v", err)
	}
	_ = agent.Leave()
	m.peek(1, 0)
	done, err := m.op.ReplayMail(within(t, patience), &adminv1.ReplayMailRequest{
		Address: echo, Start: &adminv1.ReplayMailRequest_FromPosition{FromPosition: all[2].GetPosition()},
	})
	if err != nil || done.GetPosition() != all[2].GetPosition() {
		t.Fatalf("%v, %v", done, err)
	}
	m.peek(3, 5)
	done, err = m.op.ReplayMail(within(t, patience), &adminv1.ReplayMailRequest{
		Address: echo, Start: &adminv1.ReplayMailRequest_SinceMs{SinceMs: time.Now().Add(-time.Hour).UnixMilli()},
	})
	if err != nil || done.GetPosition() != all[0].GetPosition() {
		t.Fatalf("%v, %v", done, err)
	}
	m.reads(1, 5)
	_, err = m.op.ReplayMail(within(t, patience), &adminv1.ReplayMailRequest{
		Address: "ag::w::echo::nobody", Start: &adminv1.ReplayMailRequest_SinceMs{SinceMs: time.Now().Add(-time.Hour).UnixMilli()},
	})
	if status.Code(err) != codes.NotFound {
		t.Errorf("of nobody: %v", err)
	}
}

// What an operator has passed over is not said to be acknowledged, neither to an
// operator nor to its sender, until it was replayed and read.
func TestWherePassedOver(t *testing.T) {
	t.Parallel()
	m := newMailbox(t)
	state := func(id, want string) *adminv1.MessagePlace {
		t.Helper()
		var place *adminv1.MessagePlace
		eventually(t, id+" is "+want, func() bool {
			found, err := m.op.FindMessage(within(t, patience), &adminv1.FindMessageRequest{MessageId: id})
			if err != nil || len(found.GetMessages()) != 1 {
				return false
			}
			place = found.GetMessages()[0]
			return place.GetState() == want
		})
		return place
	}
	for i, id := range []string{"m1", "m2", "m3"} {
		m.user.Send(withID(send(echo, fmt.Sprint(i+1), id), id))
		m.user.Receipt()
	}
	m.skip(&adminv1.SkipMailRequest{Extent: &adminv1.SkipMailRequest_Count{Count: 1}})
	if p := state("m1", "skipped"); !strings.Contains(p.GetReason(), "ops has passed over it") {
		t.Errorf("skipped: %v", p)
	}
	state("m2", "stored")
	m.skip(&adminv1.SkipMailRequest{Extent: &adminv1.SkipMailRequest_All{All: true}})
	state("m2", "skipped")
	state("m3", "skipped")
	if s := where(t, m.user, "m3", aetherv1.MessageStatus_STATE_EXPIRED); !strings.Contains(s.GetReason(), "passed over") || strings.Contains(s.GetReason(), "ops") {
		t.Errorf("for its sender: %v", s)
	}
	_, err := m.op.ReplayMail(within(t, patience), &adminv1.ReplayMailRequest{
		Address: echo, Start: &adminv1.ReplayMailRequest_FromPosition{FromPosition: state("m2", "skipped").GetPosition()},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.reads(2, 3)
	state("m1", "skipped")
	state("m2", "acked")
	state("m3", "acked")
}

// Requests that make no sense are refused, and change nothing.
func TestMailRefusals(t *testing.T) {
	t.Parallel()
	m := newMailbox(t)
	ctx := within(t, patience)
	for _, a := range []string{"", "ga::w", "tb::w::i", "'; drop table positions; --", "../../etc"} {
		if _, err := m.op.PeekMail(ctx, &adminv1.PeekMailRequest{Address: a}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("peek %q: %v", a, err)
		}
		r := &adminv1.SkipMailRequest{Address: a, Extent: &adminv1.SkipMailRequest_All{All: true}}
		if _, err := m.op.SkipMail(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("purge %q: %v", a, err)
		}
	}
	for _, r := range []*adminv1.SkipMailRequest{
		{},
		{Extent: &adminv1.SkipMailRequest_Count{}},
		{Extent: &adminv1.SkipMailRequest_Count{Count: -1}},
		{Extent: &adminv1.SkipMailRequest_Count{Count: 501}},
		{Extent: &adminv1.SkipMailRequest_All{}},
		{Extent: &adminv1.SkipMailRequest_ToPosition{ToPosition: 1 << 63}},
	} {
		r.Address = echo
		if _, err := m.op.SkipMail(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	// What had not been sent yet counted as done.
	sendAll(m.user, 1, 3)
	beyond := m.peek(1, 3)[2].GetPosition() + 1_000_000
	_, err := m.op.SkipMail(ctx, &adminv1.SkipMailRequest{Address: echo, Extent: &adminv1.SkipMailRequest_ToPosition{ToPosition: beyond}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("skipped behind the end: %v", err)
	}
	_, err = m.op.ReplayMail(ctx, &adminv1.ReplayMailRequest{Address: echo, Start: &adminv1.ReplayMailRequest_FromPosition{FromPosition: beyond}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("replayed from behind the end: %v", err)
	}
	m.peek(1, 3)
	if _, err := m.op.ReplayMail(ctx, &adminv1.ReplayMailRequest{Address: echo}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("replay from nowhere: %v", err)
	}
	if _, err := m.op.PeekMail(ctx, &adminv1.PeekMailRequest{Address: echo, PageToken: "-1"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a foreign token: %v", err)
	}
}
