package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestHandlerInOrderAndAcksTogether(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		got := make(chan *Message, 200)
		o.Handler = func(_ context.Context, m *Message) error { got <- m; return nil }
		c, p := g.connect(o, g.welcome)
		for i := range 100 {
			p.deliver(uint64(i+1), fmt.Sprint("m", i), fmt.Sprint(i))
		}
		for i := range 100 {
			m := expect(t, got)
			if string(m.Payload) != fmt.Sprint(i) || m.Source != "ag::demo::other::1" || m.Topic != "ag::demo::echo::1" ||
				m.Type != Opaque || m.Workspace != "demo" || m.Time.UnixMilli() != 1_700_000_000_000 {
				t.Fatalf("message %d: %+v", i, m)
			}
		}
		frames, upTo := 0, uint64(0)
		for upTo < 100 {
			a := p.nextAck()
			if len(a.GetIds()) > 0 || a.GetUpTo() <= upTo {
				t.Errorf("ack: %v", a)
			}
			frames, upTo = frames+1, a.GetUpTo()
		}
		if frames > 3 {
			t.Errorf("%d frames for 100 acknowledgements", frames)
		}
		g.close(c, p)
	})
}

func TestAckWaitsBrieflyForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		p.deliver(1, "a", "")
		m, err := c.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.Ack()
		m.Nack("second thoughts do not count")
		if a := p.nextAck(); a.GetUpTo() != 1 || time.Since(began) != ackDelay {
			t.Errorf("%v after %s", a, time.Since(began))
		}
		m.Nack("nor do third ones")
		p.deliver(2, "a", "")
		if a := p.nextAck(); a.GetUpTo() != 2 {
			t.Errorf("%v", a)
		}
		p.quiet()
		g.close(c, p)
	})
}

func TestFailedHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		o.Handler = func(_ context.Context, m *Message) error {
			switch string(m.Payload) {
			case "fail":
				return errors.New("not today")
			case "drop":
				return fmt.Errorf("wrapped: %w", Drop(errors.New("never")))
			case "panic":
				panic("the secret in the payload")
			case "own":
				m.Drop("decided here")
			}
			return nil
		}
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		for i, test := range []struct {
			payload, reason string
			requeue         bool
		}{
			{"fail", "not today", true},
			{"drop", "wrapped: never", false},
			{"panic", "the handler panicked", true},
			{"own", "decided here", false},
		} {
			id := uint64(i + 1)
			began := time.Now()
			p.deliver(id, test.payload, test.payload)
			n := p.nextAck().GetNack()
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: the nack waited %s", test.payload, took)
			}
			if len(n) != 1 || n[0].GetDeliveryId() != id || n[0].GetReason() != test.reason || n[0].GetRequeue() != test.requeue {
				t.Errorf("%s: %v", test.payload, n)
			}
			if test.payload != "own" {
				if h, ok := expect(t, notices).(HandlerFailed); !ok || h.Message.ID != test.payload || h.Err == nil {
					t.Errorf("%s: %v", test.payload, h)
				}
			}
		}
		p.deliver(5, "m", "fine") // the client lives on
		if a := p.nextAck(); a.GetUpTo() != 5 {
			t.Errorf("ack: %v", a)
		}
		g.close(c, p)
	})
}

func TestExplicitAcksOutOfOrder(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		got := make(chan *Message, 10)
		o.ExplicitAcks = true
		o.Handler = func(_ context.Context, m *Message) error { got <- m; return nil }
		c, p := g.connect(o, g.welcome)
		var ms []*Message
		for i := range 5 {
			p.deliver(uint64(i+1), fmt.Sprint("m", i), "")
			ms = append(ms, expect(t, got))
		}
		p.quiet()
		ms[2].Ack()
		ms[4].Ack()
		if a := p.nextAck(); a.GetUpTo() != 0 || !slices.Equal(a.GetIds(), []uint64{3, 5}) {
			t.Errorf("ack: %v", a)
		}
		ms[0].Ack()
		ms[1].Nack("later")
		if a := p.nextAck(); len(a.GetNack()) != 1 || a.GetNack()[0].GetDeliveryId() != 2 || a.GetUpTo() != 0 {
			t.Errorf("the nack goes first and alone: %v", a)
		}
		if a := p.nextAck(); a.GetUpTo() != 3 || len(a.GetIds()) != 0 {
			t.Errorf("ack: %v", a)
		}
		ms[3].Ack()
		if a := p.nextAck(); a.GetUpTo() != 5 {
			t.Errorf("ack: %v", a)
		}
		g.close(c, p)
	})
}

func TestRepeatsAreAcknowledgedUnhandled(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		got := make(chan *Message, 10)
		fail := make(chan error, 10)
		o.Handler = func(_ context.Context, m *Message) error { got <- m; return <-fail }
		c, p := g.connect(o, g.welcome)

		p.deliver(1, "a", "")
		expect(t, got)
		p.deliver(2, "a", "") // while the first is in the handler's hands
		noneOf(t, got)
		fail <- nil
		if a := p.nextAck(); a.GetUpTo() != 2 {
			t.Errorf("both copies are done: %v", a)
		}
		p.deliver(3, "a", "") // after it
		if a := p.nextAck(); a.GetUpTo() != 3 {
			t.Errorf("ack: %v", a)
		}
		noneOf(t, got)

		p.deliver(4, "b", "") // what failed is not seen
		expect(t, got)
		fail <- errors.New("no")
		p.nextAck()
		p.deliver(5, "b", "")
		expect(t, got)
		fail <- Drop(errors.New("no"))
		p.nextAck()
		p.deliver(6, "b", "") // what was dropped is
		if n := p.nextAck().GetNack(); len(n) != 1 || n[0].GetDeliveryId() != 6 || n[0].GetRequeue() {
			t.Errorf("nack: %v", n)
		}
		noneOf(t, got)

		// Ids belong to a sender and an address.
		p.deliverFrom("ag::demo::third::1", 7, "a", "")
		expect(t, got)
		fail <- nil
		p.deliverFrom("ag::demo::other::1", 0, "a", "")
		expect(t, got)
		fail <- nil
		p.deliverFrom("ag::demo::other::1", 0, "a", "")
		noneOf(t, got)
		p.nextAck()
		p.deliver(8, "", "") // without an id nothing is a repeat
		p.deliver(9, "", "")
		for range 2 {
			expect(t, got)
			fail <- nil
		}
		if a := p.nextAck(); a.GetUpTo() != 9 {
			t.Errorf("ack: %v", a)
		}
		g.close(c, p)
	})
}

// A handler that is busy stops no receipts, and a stuck one no other senders'.
func TestReceiveLoopNeverWaitsForHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.Concurrency = 2
		release := make(chan struct{})
		got := make(chan string, 600)
		o.Handler = func(_ context.Context, m *Message) error {
			if m.Source == "ag::demo::slow::1" {
				<-release
			}
			got <- string(m.Payload)
			return nil
		}
		c, p := g.connect(o, g.welcome)
		for i := range 250 {
			p.deliverFrom("ag::demo::slow::1", uint64(2*i+1), fmt.Sprint("s", i), fmt.Sprint("s", i))
			p.deliverFrom("ag::demo::fast::1", uint64(2*i+2), fmt.Sprint("f", i), fmt.Sprint("f", i))
		}
		for i := range 250 {
			if s := expect(t, got); s != fmt.Sprint("f", i) {
				t.Fatalf("%s instead of f%d", s, i)
			}
		}
		s := sendAsync(t, c, "ag::demo::x::1", "x")
		for {
			if f := p.next(); f.GetSend() != nil {
				p.receipt(f.GetSend())
				break
			}
		}
		if o := outcomeOf(t, s); o.err != nil {
			t.Error(o.err)
		}
		close(release)
		for i := range 250 {
			if s := expect(t, got); s != fmt.Sprint("s", i) {
				t.Fatalf("%s instead of s%d", s, i)
			}
		}
		g.close(c, p)
	})
}

func TestSharedMessagesDropTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.SharedBuffer = 4
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		p.deliver(1, "own", "own")
		for i := range 10 {
			p.deliver(0, fmt.Sprint("m", i), fmt.Sprint(i))
		}
		synctest.Wait()
		var got []string
		for range 5 {
			m, err := c.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m.Ack()
			got = append(got, string(m.Payload))
		}
		if !slices.Equal(got, []string{"own", "6", "7", "8", "9"}) {
			t.Errorf("got %v", got)
		}
		if n, ok := expect(t, notices).(Gap); !ok || n.Reason != "local" || n.Dropped != 6 {
			t.Errorf("notice: %v", n)
		}
		g.close(c, p)
	})
}

func TestOldGatewayIsHeldUpInsteadOfDropping(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.SharedBuffer = 4
		c, p := g.connect(o, g.greet)
		for i := range 50 {
			p.deliver(0, "", fmt.Sprint(i))
		}
		synctest.Wait()
		for i := range 50 {
			m, err := c.Receive(t.Context())
			if err != nil || string(m.Payload) != fmt.Sprint(i) {
				t.Fatalf("message %d: %v, %v", i, m, err)
			}
			m.Ack()
		}
		p.quiet() // no acks for such a gateway
		for range 9 {
			p.deliver(0, "", "unread")
		}
		synctest.Wait()
		// Unread messages: no orderly end, and no deadlock.
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case <-p.eof:
			t.Error("half-closed with unread messages")
		default:
		}
	})
}

func TestReceiveAndMessages(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Receive: %v", err)
		}
		for i := range 3 {
			p.deliver(uint64(i+1), fmt.Sprint(i), "")
		}
		n := 0
		for m := range c.Messages(t.Context()) {
			m.Ack()
			if n++; n == 3 {
				break
			}
		}
		ended := make(chan int, 1)
		go func() {
			n := 0
			for range c.Messages(t.Context()) {
				n++
			}
			ended <- n
		}()
		noneOf(t, ended)
		p.nextAck()
		g.close(c, p)
		if n := expect(t, ended); n != 0 {
			t.Errorf("%d messages", n)
		}
		if _, err := c.Receive(t.Context()); !errors.Is(err, ErrClosed) || CodeOf(err) != CodeClosed {
			t.Errorf("Receive after Close: %v", err)
		}
	})
}

func TestGatewayThatBreaksTheProtocolIsHungUpOn(t *testing.T) {
	for name, misbehave := range map[string]func(*peer){
		"falling delivery ids": func(p *peer) { p.deliver(2, "a", ""); p.deliver(1, "b", "") },
		"beyond max_unacked": func(p *peer) {
			for i := range 2*8 + ackBatch + 1 {
				p.deliver(uint64(i+1), fmt.Sprint(i), "")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *gateway) {
				o := g.options()
				o.MaxUnacked = 8
				c, p := g.connect(o, g.welcome)
				misbehave(p)
				p = g.welcome()
				g.close(c, p)
			})
		})
	}
}

func TestNoticesOfTheGateway(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Gap{Gap: &aetherv1.HistoryGap{
			Topic: "ag::demo::echo::1", Reason: aetherv1.HistoryGap_REASON_RETENTION, Dropped: 7,
		}}})
		if n := expect(t, notices); n != (Gap{Topic: "ag::demo::echo::1", Reason: "retention", Dropped: 7}) {
			t.Errorf("notice: %v", n)
		}
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{}}})
		p.quiet() // an answer would be answered
		noneOf(t, notices)
		g.close(c, p)
	})
}

func TestSlowOnNoticeDropsTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		release := make(chan struct{})
		got := make(chan Notice, 2*maxNotices)
		o.OnNotice = func(n Notice) { <-release; got <- n }
		c, p := g.connect(o, g.welcome)
		synctest.Wait() // Connected is in its hands
		for range maxNotices + 5 {
			p.refusal("", "ERR_INVALID_ARGUMENT", false)
		}
		synctest.Wait()
		close(release)
		expect(t, got)
		if n := expect(t, got); n != (Missed{Count: 5}) {
			t.Errorf("notice: %v", n)
		}
		for range maxNotices {
			if _, ok := expect(t, got).(Refused); !ok {
				t.Fatal("not a refusal")
			}
		}
		g.close(c, p)
	})
}
