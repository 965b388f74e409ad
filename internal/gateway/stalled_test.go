package gateway_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// stall connects an agent that reads nothing and has more waiting for it than
// all buffers hold.
func (p *pair) stall(t *testing.T, init *aetherv1.InitConnection) *gatewaytest.Peer {
	t.Helper()
	if init.Delivery != nil {
		init.Delivery.MaxUnacked = 10_000
	}
	stuck := gatewaytest.MustDial(t, p.g.Addr, p.token, init)
	big := strings.Repeat("x", 200_000)
	for i := range 20 {
		p.user.Send(send("ag::w::echo::1", fmt.Sprintf("%d %s", i, big), "r"))
		p.user.Receipt()
	}
	return stuck
}

func number(m *aetherv1.IncomingMessage) string {
	n, _, _ := strings.Cut(string(m.GetPayload()), " ")
	return n
}

// A session that resumes one that reads nothing waited for more than two
// seconds until that had been flushed.
func TestResumeOfStalled(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	stuck := p.stall(t, gatewaytest.AgentInit("w", "echo", "1"))
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.ResumeSessionId = stuck.Ack.GetSessionId()
	began := time.Now()
	agent := gatewaytest.MustDial(t, p.g.Addr, p.token, init)
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if got := number(agent.Message()); got != "0" {
		t.Fatalf("it begins at %s", got)
	}
}

// Delivery rule A: who half-closes and then does not read to the end has not
// taken what was written.
func TestAutoHalfCloseStalled(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Delivery = nil
	stuck := p.stall(t, init)
	stuck.CloseSend()
	agent := p.auto(t)
	if got := number(agent.Message()); got != "0" {
		t.Fatalf("it begins at %s", got)
	}
}

// A client that never reads keeps nothing but what the transport holds of its
// stream: when its session has ended, its goroutines have too, although its
// connection is open.
func TestStalledLeavesNoGoroutines(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(o *gateway.Options) { o.WriteTimeout = time.Second })
	p.stall(t, gatewaytest.AgentInit("w", "echo", "1"))
	p.user.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for p.g.Sessions.Count() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the session does not end")
		}
	}
	if err := p.g.Sessions.Close(ctx); err != nil { // waits for them
		t.Fatalf("the session's goroutines do not end: %v", err)
	}
}

// A client that read nothing kept the gateway from stopping for three quarters
// of its time.
func TestStopBesideStalled(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.stall(t, gatewaytest.AgentInit("w", "echo", "1"))
	began := time.Now()
	p.g.Stop()
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("it took %v", took)
	}
}

// scripted is a stream by hand.
type scripted struct {
	token string
	auto  bool
	ctx   context.Context
	recv  func(n int) (*aetherv1.UpstreamMessage, error)
	send  func(frame []byte) error

	mu sync.Mutex
	n  int
}

func (s *scripted) Context() context.Context  { return s.ctx }
func (s *scripted) Lost() bool                { return false }
func (s *scripted) Authorization() []string   { return []string{"Bearer " + s.token} }
func (s *scripted) Peer() string              { return "a test" }
func (s *scripted) Transport() auth.Transport { return auth.Transport{} }
func (s *scripted) Send(frame []byte) error   { return s.send(frame) }

func (s *scripted) Recv() (*aetherv1.UpstreamMessage, error) {
	s.mu.Lock()
	s.n++
	n := s.n
	s.mu.Unlock()
	if n == 1 && s.auto {
		init := gatewaytest.AgentInit("w", "echo", "1")
		init.Delivery = nil
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}}, nil
	}
	if n == 1 {
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: gatewaytest.AgentInit("w", "echo", "1")}}, nil
	}
	return s.recv(n)
}

func (s *scripted) block(int) (*aetherv1.UpstreamMessage, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func script(t *testing.T, g *gatewaytest.Gateway) *scripted {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := &scripted{token: g.AgentToken("w", "echo"), ctx: ctx, send: func([]byte) error { return nil }}
	s.recv = s.block
	return s
}

// A client that did not even read the first frame could not be ended.
func TestEndBeforeGreeting(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	s := script(t, g)
	sending := make(chan struct{})
	s.send = func([]byte) error {
		close(sending)
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	served := make(chan error, 1)
	go func() { served <- g.Sessions.Serve(s) }()
	<-sending
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Sessions.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-served; status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v", err)
	}
}

// A panic in what a client sent, or was sent, ended the process: it happened
// beside the goroutine that catches it.
func TestPanicEndsTheStreamOnly(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	for name, s := range map[string]*scripted{"receive": script(t, g), "send": script(t, g)} {
		if name == "receive" {
			s.recv = func(int) (*aetherv1.UpstreamMessage, error) { panic("odd input") }
		} else {
			s.send = func([]byte) error { panic("odd output") }
		}
		if err := g.Sessions.Serve(s); status.Code(err) != codes.Internal {
			t.Fatalf("%s: got %v", name, err)
		}
	}
	gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
}

// A session whose pump always had something to send did not see its end: it
// went on delivering for two seconds.
func TestEndWhileBusy(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	s := script(t, g)
	sending, closing := make(chan struct{}), make(chan struct{})
	s.recv = func(int) (*aetherv1.UpstreamMessage, error) {
		<-closing
		return nil, io.EOF
	}
	sent := 0
	s.send = func([]byte) error {
		if sent++; sent == 1 {
			close(sending)
			<-closing
			return nil
		}
		<-time.After(2 * time.Millisecond)
		return nil
	}
	served := make(chan error, 1)
	go func() { served <- g.Sessions.Serve(s) }()
	<-sending
	for i := range 2000 {
		user.Send(send("ga::w", "x", fmt.Sprint(i)))
	}
	user.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt().GetRequestId() == "1999" })
	began := time.Now()
	close(closing)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Fatalf("it took %v", took)
	}
}

// Delivery rule A: what a cancelled stream is done with does not depend on who
// notices first that it is.
func TestAutoCancelWhileSending(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.send(t, "1")
	s := script(t, p.g)
	ctx, cancel := context.WithCancel(s.ctx)
	s.ctx = ctx
	s.auto = true
	hung := make(chan struct{}) // the receiver notices nothing
	t.Cleanup(func() { close(hung) })
	s.recv = func(int) (*aetherv1.UpstreamMessage, error) {
		<-hung
		return nil, io.EOF
	}
	wrote := make(chan struct{})
	s.send = func(frame []byte) error {
		var m aetherv1.DownstreamMessage
		if err := proto.Unmarshal(frame, &m); err != nil || m.GetMsg() == nil {
			return err
		}
		if string(m.GetMsg().GetPayload()) == "2" {
			cancel()
			return ctx.Err()
		}
		close(wrote)
		return nil
	}
	served := make(chan error, 1)
	go func() { served <- p.g.Sessions.Serve(s) }()
	<-wrote
	<-time.After(5 * time.Second) // a second of the gateway's time, and its ticks
	p.user.Send(send("ag::w::echo::1", "2", ""))
	if err := <-served; status.Code(err) != codes.Canceled {
		t.Fatalf("got %v", err)
	}
	wants(t, p.auto(t), "2")
}

// What an expired credential sends is not stored, also before the clock has
// looked.
func TestNothingAfterExpiry(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	s := script(t, g)
	expires := time.Now().Add(1200 * time.Millisecond).Truncate(time.Second).Add(time.Second)
	s.token = g.Token(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "1", ExpiresAt: expires})
	s.recv = func(n int) (*aetherv1.UpstreamMessage, error) {
		if n > 2 {
			return s.block(n)
		}
		<-time.After(time.Until(expires) + 10*time.Millisecond)
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: send("ag::w::echo::1", "late", "r")}}, nil
	}
	before := g.Router.Stats().Sends.Load()
	if err := g.Sessions.Serve(s); status.Code(err) != codes.Unauthenticated {
		t.Fatalf("got %v", err)
	}
	if g.Router.Stats().Sends.Load() != before {
		t.Fatal("it was sent")
	}
}

func TestLongExtension(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	init := gatewaytest.AgentInit("w", "echo", "1")
	init.Extensions = []*aetherv1.ExtensionDeclaration{{Uri: strings.Repeat("x", 100_000)}}
	if _, err := gatewaytest.Dial(t, g.Addr, g.AgentToken("w", "echo"), init); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("got %v", err)
	}
}
