package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestUnansweredSendsAreRepeatedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		var sent []*Pending
		var ids []string
		for i := range 10 {
			sent = append(sent, sendAsync(t, c, "ag::demo::x::1", fmt.Sprint(i)))
			s := p.nextSend()
			ids = append(ids, s.GetMessageId())
			if i == 0 || i == 4 {
				p.receipt(s)
			}
		}
		synctest.Wait()
		g.cut()
		sent = append(sent, sendAsync(t, c, "ag::demo::x::1", "10")) // between two sessions
		p = g.welcome()
		if got := p.init.GetResumeSessionId(); got != "session-" {
			t.Errorf("resumes %q", got)
		}
		for i := range 11 {
			if i == 0 || i == 4 {
				continue
			}
			s := p.nextSend()
			if string(s.GetPayload()) != fmt.Sprint(i) || i < 10 && s.GetMessageId() != ids[i] {
				t.Errorf("repeat of %d: %v", i, s)
			}
			p.receipt(s)
		}
		for i, s := range sent {
			if got := outcomeOf(t, s); got.err != nil || !got.receipt.Confirmed {
				t.Errorf("send %d: %+v", i, got)
			}
		}
		if !c.Session().Resumed {
			t.Error("not resumed")
		}
		p.quiet()
		g.close(c, p)
	})
}

// What is received over a break: nothing is handled twice, nothing is left out.
func TestDeliveriesOverABreak(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		got := make(chan *Message, 10)
		release := make(chan error)
		o.Handler = func(_ context.Context, m *Message) error { got <- m; return <-release }
		c, p := g.connect(o, g.welcome)
		for i := range 4 { // 0 will be done, 1 in the handler's hands, 2 and 3 waiting
			p.deliver(uint64(i+1), fmt.Sprint("m", i), fmt.Sprint(i))
		}
		expect(t, got)
		release <- nil
		expect(t, got)
		p.nextAck()
		synctest.Wait()
		g.cut()
		p = g.welcome()
		p.quiet()
		for i := range 5 {
			p.deliver(uint64(i+1), fmt.Sprint("m", i), fmt.Sprint(i))
		}
		if a := p.nextAck(); a.GetUpTo() != 1 {
			t.Errorf("the acknowledgement that was lost is said again: %v", a)
		}
		noneOf(t, got)
		release <- nil
		if a := p.nextAck(); a.GetUpTo() != 2 {
			t.Errorf("what was in hand is acknowledged in the new session: %v", a)
		}
		for i := 2; i < 5; i++ {
			if m := expect(t, got); string(m.Payload) != fmt.Sprint(i) {
				t.Errorf("%s instead of %d", m.Payload, i)
			}
			release <- nil
		}
		if a := p.nextAck(); a.GetUpTo() != 5 {
			t.Errorf("ack: %v", a)
		}
		g.close(c, p)
	})
}

// Delivery ids belong to a session: what an old one was may be another message now.
func TestDeliveryIDsStartAnew(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		take := func() *Message {
			t.Helper()
			m, err := c.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		p.deliver(1, "a", "")
		take().Ack()
		p.nextAck()
		p.deliver(2, "b", "")
		b := take()
		g.cut()
		p = g.welcome()
		p.deliver(1, "b", "")
		p.deliver(2, "c", "")
		take()
		b.Ack()
		if a := p.nextAck(); a.GetUpTo() != 1 || len(a.GetIds()) > 0 {
			t.Errorf("ack: %v", a)
		}
		p.quiet()
		g.close(c, p)
	})
}

// A gateway that accepts and drops is not hammered.
func TestShortSessionsDoNotResetThePauses(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		sessions := 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; sessions++ {
			p.finish(status.Error(codes.Unavailable, "no"))
			p = g.welcome()
		}
		if sessions > 250 { // 120 on average; some 6000 if each began anew
			t.Errorf("%d sessions in ten minutes", sessions)
		}
		g.close(c, p)
	})
}

// Handled, failed or dropped while there was no session.
func TestVerdictsBetweenSessions(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		var ms []*Message
		for i := range 3 {
			p.deliver(uint64(i+1), fmt.Sprint("m", i), fmt.Sprint(i))
			m, err := c.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, m)
		}
		g.cut()
		synctest.Wait()
		ms[0].Ack()
		ms[1].Nack("failed")
		ms[2].Drop("hopeless")
		p = g.welcome()
		for i := range 3 {
			p.deliver(uint64(i+1), fmt.Sprint("m", i), fmt.Sprint(i))
		}
		m, err := c.Receive(t.Context())
		if err != nil || m.ID != "m1" {
			t.Errorf("%v, %v", m, err)
		}
		m.Ack()
		var nacked []uint64
		for upTo := uint64(0); upTo < 3; {
			a := p.nextAck()
			upTo = max(upTo, a.GetUpTo())
			for _, n := range a.GetNack() {
				if n.GetRequeue() {
					t.Errorf("asks for %d again", n.GetDeliveryId())
				}
				nacked = append(nacked, n.GetDeliveryId())
			}
		}
		if !slices.Equal(nacked, []uint64{3}) {
			t.Errorf("nacked: %v", nacked)
		}
		g.close(c, p)
	})
}

func TestDeadGatewayIsFound(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		for range 4 { // heartbeats keep it alive
			pass(15 * time.Second)
			p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{}}})
		}
		heard := time.Now()
		synctest.Wait()
		p = g.welcome() // a new connection, although the old one never ended
		if silent := time.Since(heard); silent < 45*time.Second || silent > 46*time.Second {
			t.Errorf("reconnected after %s of silence", silent)
		}
		if n, ok := expect(t, notices).(Disconnected); !ok || n.Final || CodeOf(n.Err) != CodeConnection {
			t.Errorf("notice: %v", n)
		}
		if _, ok := expect(t, notices).(Connected); !ok {
			t.Error("no Connected notice")
		}
		g.close(c, p)
	})
}

func TestKeepsTryingWhileTheGatewayIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, _ := g.connect(g.options(), g.welcome)
		g.refuse(true)
		g.cut()
		synctest.Wait()
		pending := sendAsync(t, c, "ag::demo::x::1", "patient")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Send(ctx, "ag::demo::x::1", []byte("impatient")); CodeOf(err) != CodeNotSent || !NotStored(err) {
			t.Errorf("error: %v", err)
		}
		pass(time.Hour)
		if c.Err() != nil {
			t.Errorf("gave up: %v", c.Err())
		}
		g.refuse(false)
		p := g.welcome()
		p.receipt(p.nextSend())
		if got := outcomeOf(t, pending); got.err != nil {
			t.Errorf("%+v", got)
		}
		g.close(c, p)
	})
}

// A repeat is only safe while the gateway remembers the id, and only with a
// gateway that knows ids; a send that breaks every session must not do so for ever.
func TestRepeatsThatAreNotSafe(t *testing.T) {
	unknown := func(t *testing.T, s *Pending, safe bool) {
		t.Helper()
		if got := outcomeOf(t, s); CodeOf(got.err) != CodeUnknownOutcome || NotStored(got.err) || SafeToRetry(got.err) != safe {
			t.Errorf("%+v", got)
		}
	}
	t.Run("too late", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, p := g.connect(g.options(), g.welcome)
			s := sendAsync(t, c, "ag::demo::x::1", "")
			p.nextSend()
			g.refuse(true)
			g.cut()
			pass(repeatFor + time.Second)
			g.refuse(false)
			p = g.welcome()
			unknown(t, s, false)
			p.quiet()
			g.close(c, p)
		})
	})
	t.Run("older gateway", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, p := g.connect(g.options(), g.welcome)
			s := sendAsync(t, c, "ag::demo::x::1", "")
			p.nextSend()
			g.cut()
			p = g.greet()
			unknown(t, s, false)
			p.quiet()
			g.close(c, p)
		})
	})
	t.Run("too often", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, p := g.connect(g.options(), g.welcome)
			s := sendAsync(t, c, "ag::demo::x::1", "")
			for range maxWrites {
				p.nextSend()
				p.finish(status.Error(codes.Internal, "it hurts"))
				p = g.welcome()
			}
			unknown(t, s, true)
			g.close(c, p)
		})
	})
}

func TestReconnectTerminal(t *testing.T) {
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Aborted} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, g *gateway) {
				o := g.options()
				notices := make(chan Notice, 10)
				o.OnNotice = func(n Notice) { notices <- n }
				c, p := g.connect(o, g.welcome)
				expect(t, notices)
				s := sendAsync(t, c, "ag::demo::x::1", "")
				p.nextSend()
				p.finish(status.Error(code, "enough"))
				expect(t, c.Done())
				if status.Code(errors.Unwrap(c.Err())) != code {
					t.Errorf("Err: %v", c.Err())
				}
				if got := outcomeOf(t, s); CodeOf(got.err) != CodeUnknownOutcome {
					t.Errorf("%+v", got)
				}
				if n, ok := expect(t, notices).(Disconnected); !ok || !n.Final {
					t.Errorf("notice: %v", n)
				}
				_, err := c.Send(t.Context(), "ag::demo::x::1", nil)
				if CodeOf(err) != CodeOf(c.Err()) || !NotStored(err) {
					t.Errorf("Send afterwards: %v", err)
				}
				if _, err := c.Receive(t.Context()); CodeOf(err) != CodeOf(c.Err()) {
					t.Errorf("Receive afterwards: %v", err)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Errorf("Close afterwards: %v", err)
				}
			})
		})
	}
}

func TestForceDisconnectIsFinal(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		p.signal(&aetherv1.Signal{Type: aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT, Reason: "kicked", Code: "SUPERSEDED"})
		expect(t, c.Done())
		e, _ := errors.AsType[*Error](c.Err())
		if e == nil || e.Code != CodeDisconnected || e.Details["code"] != "SUPERSEDED" {
			t.Errorf("Err: %v", c.Err())
		}
	})
}

func TestGatewayThatIsGoing(t *testing.T) {
	t.Run("ends the stream", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, p := g.connect(g.options(), g.welcome)
			under := sendAsync(t, c, "ag::demo::x::1", "under way")
			s := p.nextSend()
			began := time.Now()
			p.signal(&aetherv1.Signal{Type: aetherv1.Signal_SIGNAL_TYPE_GRACEFUL_DISCONNECT, ReconnectAfterMs: 3000})
			synctest.Wait()
			later := sendAsync(t, c, "ag::demo::x::1", "later")
			p.quiet() // a new send would be refused here
			p.receipt(s)
			if got := outcomeOf(t, under); got.err != nil {
				t.Errorf("%+v", got)
			}
			p.finish(status.Error(codes.Unavailable, "going"))
			p = g.welcome()
			if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
				t.Errorf("came back after %s", took)
			}
			p.receipt(p.nextSend())
			if got := outcomeOf(t, later); got.err != nil {
				t.Errorf("%+v", got)
			}
			g.close(c, p)
		})
	})
	t.Run("lingers", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, p := g.connect(g.options(), g.welcome)
			began := time.Now()
			p.signal(&aetherv1.Signal{Type: aetherv1.Signal_SIGNAL_TYPE_GRACEFUL_DISCONNECT, ReconnectAfterMs: 3000})
			next := g.welcome()
			if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
				t.Errorf("came back after %s", took)
			}
			select {
			case <-p.eof:
				t.Error("half-closed: for a task that means that it is completed")
			default:
			}
			g.close(c, next)
		})
	})
}

// After a break the old session may still hold the identity for a while.
func TestOwnIdentityIsHeldForAWhile(t *testing.T) {
	t.Run("then free", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, _ := g.connect(g.options(), g.welcome)
			g.cut()
			for range 5 {
				g.accept().finish(status.Error(codes.AlreadyExists, "DuplicateIdentityError: identity (…)"))
			}
			g.close(c, g.welcome())
		})
	})
	t.Run("for good", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, _ := g.connect(g.options(), g.welcome)
			g.cut()
			began := time.Now()
			for {
				select {
				case p := <-g.streams:
					p.finish(status.Error(codes.AlreadyExists, "held"))
					continue
				case <-c.Done():
				}
				break
			}
			if took := time.Since(began); took < heldFor || took > heldFor+2*DefaultMaxBackoff {
				t.Errorf("gave up after %s", took)
			}
			if !IsDuplicateIdentity(c.Err()) {
				t.Errorf("Err: %v", c.Err())
			}
		})
	})
}

// Whether a gateway said so, or the connection broke.
func TestCodesOfABreak(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, _ := g.connect(o, g.welcome)
		expect(t, notices)
		g.cut()
		p := g.welcome()
		if n, ok := expect(t, notices).(Disconnected); !ok || CodeOf(n.Err) != CodeConnection {
			t.Errorf("notice: %v", n)
		}
		expect(t, notices)
		p.finish(status.Error(codes.Unavailable, "draining"))
		if n, ok := expect(t, notices).(Disconnected); !ok || CodeOf(n.Err) != CodeUnavailable {
			t.Errorf("notice: %v", n)
		}
		g.close(c, g.welcome())
	})
}

// The end of a token is no trouble for a client that has a source of them.
func TestExpiredTokenIsReplacedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o, n := g.options(), 0
		o.Token, o.MinBackoff = "", time.Minute
		o.MaxBackoff = o.MinBackoff
		o.TokenSource = func(context.Context) (string, error) { n++; return fmt.Sprint("token", n), nil }
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		for i := 2; i < 5; i++ {
			pass(20 * time.Second)
			began := time.Now()
			p.finish(status.Error(codes.Unauthenticated, "expired"))
			p = g.welcome()
			if got := p.init.GetCredentials()["authorization"]; got != fmt.Sprint("Bearer token", i) || p.init.GetResumeSessionId() == "" {
				t.Errorf("init: %v", p.init)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("came back after %s", took)
			}
			if n, ok := expect(t, notices).(Connected); !ok {
				t.Errorf("notice: %v", n)
			}
		}
		// A gateway that ends each session so is not hammered.
		p.finish(status.Error(codes.Unauthenticated, "expired"))
		if n, ok := expect(t, notices).(Disconnected); !ok || n.Final || !IsUnauthenticated(n.Err) {
			t.Errorf("notice: %v", n)
		}
		g.close(c, g.welcome())
	})
}

func TestTokenIsFetchedAgainAfterExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o, n := g.options(), 0
		o.Token = ""
		failing := errors.New("down for an hour")
		o.TokenSource = func(context.Context) (string, error) {
			if n++; n > 1 && n < 10 {
				return "", failing
			}
			return fmt.Sprint("token", n), nil
		}
		c, p := g.connect(o, g.welcome)
		p.finish(status.Error(codes.Unauthenticated, "expired"))
		p = g.welcome()
		if got := p.init.GetCredentials()["authorization"]; got != "Bearer token10" {
			t.Errorf("credential: %q", got)
		}
		g.close(c, p)
	})
}
