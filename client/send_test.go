package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// outcome is what a Send in the background returned.
type outcome struct {
	receipt Receipt
	err     error
}

func sendAsync(t *testing.T, c *Client, to, payload string, opts ...SendOption) *Pending {
	t.Helper()
	p, err := c.SendAsync(t.Context(), to, []byte(payload), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func outcomeOf(t *testing.T, p *Pending) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := p.Wait(ctx)
	return outcome{r, err}
}

func TestSendWaitsForTheReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		done := make(chan outcome, 1)
		payload := []byte("hi")
		go func() {
			r, err := c.Send(t.Context(), "ag::demo::x::1", payload, WithType(Chat), WithSubject("a.b"),
				WithMetadata(map[string]string{"k": "v"}), WithTTL(1500*time.Microsecond), WithWorkspace("demo"))
			done <- outcome{r, err}
		}()
		s := p.nextSend()
		payload[0] = 'X' // the caller's again
		if s.GetTargetTopic() != "ag::demo::x::1" || string(s.GetPayload()) != "hi" || s.GetSubject() != "a.b" ||
			s.GetMessageType() != aetherv1.MessageType_MESSAGE_TYPE_CHAT || s.GetMetadata()["k"] != "v" ||
			s.GetTtlMs() != 2 || s.GetAppWorkspace() != "demo" || s.GetRequestId() == "" || len(s.GetMessageId()) != 36 {
			t.Errorf("frame: %v", s)
		}
		noneOf(t, done)
		p.receipt(s)
		got := expect(t, done)
		if got.err != nil || !got.receipt.Confirmed || got.receipt.MessageID != s.GetMessageId() || got.receipt.To != "ag::demo::x::1" {
			t.Errorf("%+v", got)
		}
		g.close(c, p)
	})
}

func TestSendsArePipelinedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		var sent []*Pending
		for i := range 500 {
			sent = append(sent, sendAsync(t, c, "ag::demo::x::1", fmt.Sprint(i)))
		}
		var frames []*aetherv1.SendMessage
		for i := range 500 {
			s := p.nextSend()
			if string(s.GetPayload()) != fmt.Sprint(i) {
				t.Fatalf("send %d carries %s", i, s.GetPayload())
			}
			frames = append(frames, s)
		}
		for i := len(frames) - 1; i >= 0; i-- { // receipts are matched, not counted
			p.receipt(frames[i])
		}
		for i, s := range sent {
			if got := outcomeOf(t, s); got.err != nil || got.receipt.MessageID != frames[i].GetMessageId() {
				t.Fatalf("send %d: %+v", i, got)
			}
		}
		g.close(c, p)
	})
}

// One bad message among many: exactly one answer each, matched by id, and the
// stream stays open.
func TestRefusalsAreMatched(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices) // Connected
		var sent []*Pending
		for i := range 100 {
			sent = append(sent, sendAsync(t, c, "ag::demo::x::1", fmt.Sprint(i)))
		}
		for i := range 100 {
			s := p.nextSend()
			switch {
			case i%10 == 3:
				p.refusal(s.GetRequestId(), "ERR_PERMISSION_DENIED", false)
			case i == 50:
				p.refusal(s.GetRequestId(), "ERR_UNAVAILABLE", true)
			case i == 51:
				p.refusal(s.GetRequestId(), "ERR_PUBLISH_FAILED", true)
			default:
				p.receipt(s)
			}
		}
		for i, s := range sent {
			got := outcomeOf(t, s)
			e, _ := errors.AsType[*Error](got.err)
			switch {
			case i%10 == 3:
				if !IsPermission(got.err) || SafeToRetry(got.err) || !NotStored(got.err) || e.MessageID != s.MessageID ||
					e.To != "ag::demo::x::1" || e.Details["topic"] != "x" || !strings.Contains(got.err.Error(), "because") {
					t.Errorf("send %d: %+v", i, got)
				}
			case i == 50:
				if CodeOf(got.err) != CodeUnavailable || !SafeToRetry(got.err) || !NotStored(got.err) || e.RetryAfter != 250*time.Millisecond {
					t.Errorf("send %d: %+v", i, got)
				}
			case i == 51:
				if CodeOf(got.err) != CodePublishFailed || !SafeToRetry(got.err) || NotStored(got.err) {
					t.Errorf("send %d: %+v", i, got)
				}
			default:
				if got.err != nil {
					t.Errorf("send %d: %+v", i, got)
				}
			}
		}
		// One that nobody waits for is told.
		id, err := c.Post(t.Context(), "sv::x::1", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if s := p.nextSend(); s.GetRequestId() != "" || s.GetMessageId() != id || id == "" {
			t.Errorf("post %q: %v", id, s)
		}
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{
			Code: "ERR_PERMISSION_DENIED", Message: "because", Details: map[string]string{"topic": "sv::x::1", "message_id": id},
		}}})
		n, ok := expect(t, notices).(Refused)
		if !ok || n.Err.Code != CodePermissionDenied || n.Err.To != "sv::x::1" || n.Err.MessageID != id {
			t.Errorf("notice: %v", n)
		}
		for _, want := range []string{"sv::x::1", id, "because"} {
			if !strings.Contains(fmt.Sprint(n), want) {
				t.Errorf("the notice does not name %q: %v", want, n)
			}
		}
		p.refusal("", "ERR_INTERNAL", false) // of something that nothing names
		if n, ok := expect(t, notices).(Refused); !ok || n.Err.MessageID != "" || strings.Contains(fmt.Sprint(n), "message id") {
			t.Errorf("notice: %v", n)
		}
		g.close(c, p)
	})
}

func TestRefusedBeforeSending(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		many := make(map[string]string)
		for i := range 65 {
			many[fmt.Sprint(i)] = ""
		}
		for name, test := range map[string]struct {
			to      string
			payload []byte
			opt     SendOption
			want    Code
		}{
			"too large":           {"ag::a::b::c", make([]byte, 1_000_001), nil, CodePayloadTooLarge},
			"no address":          {"", nil, nil, CodeInvalidTopic},
			"address not UTF-8":   {"ag::\xff", nil, nil, CodeInvalidTopic},
			"long message id":     {"a", nil, WithMessageID(strings.Repeat("x", 65)), CodeInvalidArgument},
			"no message id":       {"a", nil, WithMessageID(""), CodeInvalidArgument},
			"other workspace":     {"a", nil, WithWorkspace("other"), CodePermissionDenied},
			"no event":            {"event::demo", nil, WithType(Chat), CodeInvalidArgument},
			"no metric":           {"metric::*", nil, WithType(Event), CodeInvalidArgument},
			"message id":          {"a", nil, WithMessageID("\xff"), CodeInvalidArgument},
			"subject":             {"a", nil, WithSubject("\xff"), CodeInvalidTopic},
			"workspace":           {"a", nil, WithWorkspace("\xff"), CodeInvalidArgument},
			"TTL":                 {"a", nil, WithTTL(0), CodeInvalidArgument},
			"metadata keys":       {"a", nil, WithMetadata(many), CodeInvalidArgument},
			"metadata size":       {"a", nil, WithMetadata(map[string]string{"k": strings.Repeat("x", 16<<10)}), CodeInvalidArgument},
			"metadata not UTF-8":  {"a", nil, WithMetadata(map[string]string{"k": "\xff"}), CodeInvalidArgument},
			"reserved metadata":   {"a", nil, WithMetadata(map[string]string{"aether-x": ""}), CodeInvalidArgument},
			"reserved metadata 2": {"a", nil, WithMetadata(map[string]string{"aether-": ""}), CodeInvalidArgument},
		} {
			var opts []SendOption
			if test.opt != nil {
				opts = append(opts, test.opt)
			}
			_, err := c.Send(t.Context(), test.to, test.payload, opts...)
			if CodeOf(err) != test.want || !NotStored(err) || SafeToRetry(err) {
				t.Errorf("%s: %v", name, err)
			}
			for _, foreign := range []string{"app_workspace", "MESSAGE_TYPE"} {
				if strings.Contains(fmt.Sprint(err), foreign) {
					t.Errorf("%s: not in words of this package: %v", name, err)
				}
			}
		}
		p.quiet()
		g.close(c, p)
	})
}

func TestDefaultTypes(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		for to, want := range map[string]Type{"event::demo": Event, "metric::*": Metric, "ag::a::b::c": Opaque} {
			if _, err := c.Post(t.Context(), to, nil); err != nil {
				t.Fatal(err)
			}
			if got := Type(p.nextSend().GetMessageType()); got != want {
				t.Errorf("%s: %s", to, got)
			}
		}
		g.close(c, p)
	})
}

func TestSendContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Send(ctx, "ag::demo::x::1", []byte("unanswered"))
		if CodeOf(err) != CodeUnknownOutcome || NotStored(err) || !SafeToRetry(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		s := p.nextSend()
		p.receipt(s) // too late, and ignored

		_, err = c.Send(ctx, "ag::demo::x::1", []byte("never begun"))
		if CodeOf(err) != CodeNotSent || !NotStored(err) || !SafeToRetry(err) {
			t.Errorf("error: %v", err)
		}
		p.quiet()
		g.close(c, p)
	})
}

func TestPendingIsBounded(t *testing.T) {
	for name, bound := range map[string]func(*Options){
		"messages": func(o *Options) { o.MaxPending = 3 },
		"bytes":    func(o *Options) { o.PendingBytes = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *gateway) {
				o := g.options()
				bound(&o)
				c, p := g.connect(o, g.welcome)
				payload := strings.Repeat("x", 16)
				to := "ag::demo::x::1" // 14 bytes
				for range 3 {
					sendAsync(t, c, to, payload)
				}
				order := make(chan string, 2)
				for _, id := range []string{"first", "second"} {
					go func() {
						s, err := c.SendAsync(t.Context(), to, []byte(payload), WithMessageID(id))
						if err != nil {
							t.Error(err)
							return
						}
						order <- s.MessageID
					}()
					noneOf(t, order) // and let it queue up
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.SendAsync(ctx, to, []byte(payload)); CodeOf(err) != CodeNotSent {
					t.Errorf("third in the queue: %v", err)
				}
				for _, want := range []string{"first", "second"} {
					p.receipt(p.nextSend())
					if got := expect(t, order); got != want {
						t.Errorf("%s came in", got)
					}
				}
				for range 3 {
					p.receipt(p.nextSend())
				}
				g.close(c, p)
			})
		})
	}
}

// Whoever waits for more room than there is must not hold up others when it
// gives up.
func TestLeavingTheQueueForRoom(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.PendingBytes = 100
		c, p := g.connect(o, g.welcome)
		to := "ag::demo::x::1"
		first := sendAsync(t, c, to, "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large := make(chan error, 1)
		go func() {
			_, err := c.SendAsync(ctx, to, make([]byte, 99))
			large <- err
		}()
		noneOf(t, large)
		small := make(chan *Pending, 1)
		go func() { small <- sendAsync(t, c, to, "2") }()
		noneOf(t, small)
		if err := expect(t, large); CodeOf(err) != CodeNotSent {
			t.Errorf("error: %v", err)
		}
		second := expect(t, small)
		for _, s := range []*Pending{first, second} {
			p.receipt(p.nextSend())
			if got := outcomeOf(t, s); got.err != nil {
				t.Error(got.err)
			}
		}
		g.close(c, p)
	})
}

func TestOldGatewayConfirmsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.greet)
		if c.Session().Extended {
			t.Error("taken for a gateway with the extension")
		}
		r, err := c.Send(t.Context(), "ag::demo::x::1", []byte("hi"))
		if err != nil || r.Confirmed || r.MessageID == "" {
			t.Errorf("%+v, %v", r, err)
		}
		p.nextSend()
		if _, err := c.Request(t.Context(), "ag::demo::x::1", nil); CodeOf(err) != CodeInvalidPrincipal {
			t.Errorf("Request: %v", err)
		}
		g.close(c, p)
	})
}

func TestSendFrame(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		notices := make(chan Notice, 10)
		o.OnNotice = func(n Notice) { notices <- n }
		c, p := g.connect(o, g.welcome)
		expect(t, notices)
		err := c.SendFrame(t.Context(), &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_KvOp{KvOp: &aetherv1.KVOperation{Key: "k"}}})
		if err != nil || p.next().GetKvOp().GetKey() != "k" {
			t.Errorf("SendFrame: %v", err)
		}
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Kv{Kv: &aetherv1.KVResponse{Success: true}}})
		if n, ok := expect(t, notices).(Frame); !ok || !n.Frame.GetKv().GetSuccess() {
			t.Errorf("notice: %v", n)
		}
		for _, f := range []*aetherv1.UpstreamMessage{
			nil, {}, {Payload: &aetherv1.UpstreamMessage_Init{}}, {Payload: &aetherv1.UpstreamMessage_Send{}}, {Payload: &aetherv1.UpstreamMessage_Ack{}},
		} {
			if err := c.SendFrame(t.Context(), f); CodeOf(err) != CodeInvalidArgument {
				t.Errorf("%v: %v", f, err)
			}
		}
		g.close(c, p)
	})
}
