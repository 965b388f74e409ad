package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func (p *peer) reply(to *aetherv1.SendMessage, deliveryID uint64, messageID, payload string) {
	p.t.Helper()
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
		SourceTopic: to.GetTargetTopic(), Topic: to.GetMetadata()[ReplyTo], DeliveryId: deliveryID, MessageId: messageID,
		Payload: []byte(payload), Metadata: map[string]string{CorrelationID: to.GetMetadata()[CorrelationID]},
	}}})
}

func TestRequestAndReply(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		handled := make(chan *Message, 10)
		o.Handler = func(_ context.Context, m *Message) error { handled <- m; return nil }
		c, p := g.connect(o, g.welcome)
		type answer struct {
			m   *Message
			err error
		}
		done := make(chan answer, 1)
		go func() {
			m, err := c.Request(t.Context(), "ag::demo::x::1", []byte("?"), WithMetadata(map[string]string{"k": "v"}))
			done <- answer{m, err}
		}()
		s := p.nextSend()
		if s.GetMetadata()[ReplyTo] != "ag::demo::echo::1" || s.GetMetadata()["k"] != "v" || len(s.GetMetadata()[CorrelationID]) != 36 {
			t.Errorf("request: %v", s)
		}
		p.deliver(1, "unrelated", "")
		expect(t, handled)
		p.reply(s, 2, "answer", "!") // before the receipt, which is fine
		got := expect(t, done)
		if got.err != nil || string(got.m.Payload) != "!" || got.m.Source != "ag::demo::x::1" {
			t.Errorf("%+v", got)
		}
		if a := p.nextAck(); a.GetUpTo() != 2 {
			t.Errorf("answers are acknowledged: %v", a)
		}
		p.reply(s, 3, "second", "!!")
		if a := p.nextAck(); a.GetUpTo() != 3 {
			t.Errorf("ack: %v", a)
		}
		noneOf(t, handled)
		p.receipt(s)
		g.close(c, p)
	})
}

func TestRequestEnds(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		errs := make(chan error, 1)
		request := func(ctx context.Context) {
			go func() {
				_, err := c.Request(ctx, "ag::demo::x::1", nil)
				errs <- err
			}()
		}
		request(t.Context())
		p.refusal(p.nextSend().GetRequestId(), "ERR_PERMISSION_DENIED", false)
		if err := expect(t, errs); !IsPermission(err) {
			t.Errorf("refused: %v", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		request(ctx)
		s := p.nextSend()
		p.receipt(s)
		if err := expect(t, errs); CodeOf(err) != CodeNoReply || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unanswered: %v", err)
		}
		p.reply(s, 1, "late", "") // is not taken for a message of its own
		if n, ok := expect(t, notices).(LateReply); !ok || n.Message.ID != "late" {
			t.Errorf("notice: %v", n)
		}
		p.nextAck()

		request(t.Context())
		p.receipt(p.nextSend())
		p.signal(&aetherv1.Signal{Type: aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT})
		if err := expect(t, errs); CodeOf(err) != CodeDisconnected {
			t.Errorf("disconnected: %v", err)
		}
	})
}

func TestRequestToOneself(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.Handler = func(ctx context.Context, m *Message) error {
			_, err := m.Reply(ctx, append([]byte("re: "), m.Payload...))
			return err
		}
		c, p := g.connect(o, g.welcome)
		done := make(chan string, 1)
		go func() {
			m, err := c.Request(t.Context(), c.Address(), []byte("me"))
			if err != nil {
				t.Error(err)
				return
			}
			done <- string(m.Payload)
		}()
		for i := range 2 { // the gateway hands each send back
			s := p.nextSend()
			p.receipt(s)
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
				SourceTopic: c.Address(), Topic: s.GetTargetTopic(), DeliveryId: uint64(i + 1), MessageId: s.GetMessageId(),
				Payload: s.GetPayload(), Metadata: s.GetMetadata(),
			}}})
			if i == 0 {
				continue
			}
		}
		if got := expect(t, done); got != "re: me" {
			t.Errorf("got %q", got)
		}
		g.close(c, p)
	})
}

func TestReplyGoesWhereItShould(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		for i, test := range []struct {
			metadata   map[string]string
			to, wanted string
		}{
			{nil, "us::u::w", "id0"},
			{map[string]string{CorrelationID: "c"}, "us::u::w", "c"},
			{map[string]string{CorrelationID: "c", ReplyTo: "uw::u::demo"}, "uw::u::demo", "c"},
		} {
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
				SourceTopic: "us::u::w", Topic: c.Address(), DeliveryId: uint64(i + 1), MessageId: fmt.Sprint("id", i),
				Metadata: test.metadata, MessageType: aetherv1.MessageType_MESSAGE_TYPE_CHAT,
			}}})
			m, err := c.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 1)
			go func() {
				_, err := m.Reply(t.Context(), nil, WithSubject("s"))
				errs <- err
			}()
			s := p.nextSend()
			if s.GetTargetTopic() != test.to || s.GetMetadata()[CorrelationID] != test.wanted || Type(s.GetMessageType()) != Chat || s.GetSubject() != "s" {
				t.Errorf("reply %d: %v", i, s)
			}
			p.receipt(s)
			if err := expect(t, errs); err != nil {
				t.Error(err)
			}
		}
		g.close(c, p)
	})
}

func TestRequestNeedsAnAddress(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.Identity = Orchestrator("k8s", "1", "*")
		c, p := g.connect(o, g.welcome)
		if _, err := c.Request(t.Context(), "ag::demo::x::1", nil); CodeOf(err) != CodeInvalidPrincipal {
			t.Errorf("error: %v", err)
		}
		g.close(c, p)
	})
}

func TestMessageMadeByATest(t *testing.T) {
	t.Parallel()
	m := &Message{Source: "us::u::w"}
	m.Ack()
	m.Nack("")
	m.Drop("")
	if _, err := m.Reply(t.Context(), nil); err == nil {
		t.Error("Reply without a client")
	}
}
