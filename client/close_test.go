package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseWaitsForWork(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		started := make(chan *Message, 10)
		release := make(chan struct{})
		o.Handler = func(ctx context.Context, m *Message) error {
			started <- m
			<-release
			_, err := m.Reply(ctx, []byte("the last word")) // still possible
			return err
		}
		c, p := g.connect(o, g.welcome)
		p.deliver(1, "a", "")
		p.deliver(2, "b", "") // not begun, so left for the next session
		expect(t, started)
		under := sendAsync(t, c, "ag::demo::x::1", "under way")
		s := p.nextSend()

		closed := make(chan error, 2)
		go func() { closed <- c.Close(context.Background()) }()
		go func() { closed <- c.Close(context.Background()) }() // twice is fine
		noneOf(t, closed)
		close(release)
		reply := p.nextSend()
		if reply.GetTargetTopic() != "ag::demo::other::1" {
			t.Errorf("reply: %v", reply)
		}
		p.receipt(reply)
		if a := p.nextAck(); a.GetUpTo() != 1 {
			t.Errorf("ack: %v", a)
		}
		synctest.Wait()
		if _, err := c.Send(t.Context(), "ag::demo::x::1", nil); !errors.Is(err, ErrClosed) || !NotStored(err) {
			t.Errorf("Send while closing: %v", err)
		}
		noneOf(t, closed)
		p.receipt(s)
		if got := outcomeOf(t, under); got.err != nil {
			t.Errorf("%+v", got)
		}
		expect(t, p.eof)
		noneOf(t, closed) // until the gateway has said its last
		p.finish(nil)
		for range 2 {
			if err := expect(t, closed); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		noneOf(t, started)
		if c.Err() != nil {
			t.Errorf("Err: %v", c.Err())
		}
	})
}

// The acknowledgement of the last message must not be left behind by its delay.
func TestCloseWritesTheLastAcks(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		p.deliver(1, "a", "")
		m, err := c.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.Ack()
		g.close(c, p)
		if a := p.nextAck(); a.GetUpTo() != 1 {
			t.Errorf("ack: %v", a)
		}
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		ended := make(chan error, 1)
		started := make(chan *Message, 1)
		o.Handler = func(ctx context.Context, m *Message) error {
			started <- m
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
		c, p := g.connect(o, g.welcome)
		p.deliver(1, "a", "")
		expect(t, started)
		s := sendAsync(t, c, "ag::demo::x::1", "")
		p.nextSend()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		expect(t, ended)
		if got := outcomeOf(t, s); CodeOf(got.err) != CodeUnknownOutcome || !errors.Is(got.err, ErrClosed) {
			t.Errorf("%+v", got)
		}
		expect(t, c.Done())
		select {
		case <-p.eof:
			t.Error("half-closed: the gateway must see an unclean end")
		default:
		}
	})
}

func TestCloseOfAGatewayThatDoesNotEnd(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, _ := g.connect(g.options(), g.welcome)
		began := time.Now()
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took != leaveFor {
			t.Errorf("took %s", took)
		}
	})
}

func TestCloseWhileDisconnected(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, _ := g.connect(g.options(), g.welcome)
			g.refuse(true)
			g.cut()
			pass(time.Minute)
			began := time.Now()
			if err := c.Close(context.Background()); err != nil || time.Since(began) != 0 {
				t.Errorf("Close: %v after %s", err, time.Since(began))
			}
		})
	})
	t.Run("with sends", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *gateway) {
			c, _ := g.connect(g.options(), g.welcome)
			g.refuse(true)
			g.cut()
			s := sendAsync(t, c, "ag::demo::x::1", "")
			closed := make(chan error, 1)
			go func() { closed <- c.Close(context.Background()) }()
			pass(time.Minute)
			noneOf(t, closed)
			g.refuse(false)
			p := g.welcome()
			p.receipt(p.nextSend())
			expect(t, p.eof)
			p.finish(nil)
			if err := expect(t, closed); err != nil {
				t.Errorf("Close: %v", err)
			}
			if got := outcomeOf(t, s); got.err != nil {
				t.Errorf("%+v", got)
			}
		})
	})
}
