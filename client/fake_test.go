package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come. Tests run in a bubble
// with a clock of its own, so it costs nothing.
const patience = 10 * time.Second

// bubble runs a test with a fake gateway under a fake clock; every goroutine
// must have ended at its end.
func bubble(t *testing.T, test func(t *testing.T, g *gateway)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		defer g.stop()
		test(t, g)
	})
}

// gateway is a scripted peer: the test plays its part, frame by frame.
type gateway struct {
	aetherv1.UnimplementedAetherGatewayServer
	t       *testing.T
	lis     *bufconn.Listener
	srv     *grpc.Server
	streams chan *peer
	served  chan struct{}

	mu    sync.Mutex
	conns []net.Conn
	down  bool // refuse new connections
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{
		t: t, lis: bufconn.Listen(1 << 20), srv: grpc.NewServer(),
		streams: make(chan *peer, 64), served: make(chan struct{}),
	}
	aetherv1.RegisterAetherGatewayServer(g.srv, g)
	go func() {
		defer close(g.served)
		if err := g.srv.Serve(g.lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	return g
}

func (g *gateway) stop() {
	g.srv.Stop()
	<-g.served
}

func (g *gateway) dial(ctx context.Context, _ string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return nil, errors.New("connection refused")
	}
	conn, err := g.lis.DialContext(ctx)
	if err == nil {
		g.conns = append(g.conns, conn)
	}
	return conn, err
}

// cut breaks all connections, as a pulled cable that is noticed would.
func (g *gateway) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

func (g *gateway) refuse(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
}

// Connect is one stream; it lives until the test ends it or the client does.
func (g *gateway) Connect(s grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]) error {
	p := &peer{t: g.t, stream: s, in: make(chan *aetherv1.UpstreamMessage, 4096), end: make(chan error, 1), eof: make(chan struct{})}
	g.streams <- p
	go func() {
		for {
			f, err := s.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					close(p.eof)
				}
				return
			}
			p.in <- f
		}
	}()
	select {
	case err := <-p.end:
		return err
	case <-s.Context().Done():
		return s.Context().Err()
	}
}

// accept waits for the next stream and its init frame.
func (g *gateway) accept() *peer {
	g.t.Helper()
	select {
	case p := <-g.streams:
		p.init = p.next().GetInit()
		if p.init == nil {
			g.t.Fatal("the first frame is not init")
		}
		return p
	case <-time.After(2 * time.Minute):
		g.t.Fatal("no stream was opened")
		return nil
	}
}

// welcome accepts the next stream as a gateway with the extension does.
func (g *gateway) welcome() *peer {
	g.t.Helper()
	p := g.accept()
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: &aetherv1.ConnectionAck{
		SessionId: "session-" + p.init.GetResumeSessionId(), Resumed: p.init.GetResumeSessionId() != "",
		MaxPayloadBytes: 1_000_000, HeartbeatIntervalMs: 15_000, Epoch: 1,
	}}})
	return p
}

// greet accepts it as one without does.
func (g *gateway) greet() *peer {
	g.t.Helper()
	p := g.accept()
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: &aetherv1.ConnectionAck{SessionId: "old"}}})
	return p
}

// options are those of an agent that talks to g.
func (g *gateway) options() Options {
	return Options{
		Addr: "passthrough:///localhost:1", Token: "secret-token", Identity: Agent("demo", "echo", "1"),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(g.dial)},
	}
}

// connect connects a client while script plays the gateway.
func (g *gateway) connect(o Options, script func() *peer) (*Client, *peer) {
	g.t.Helper()
	type result struct {
		c   *Client
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := Connect(g.t.Context(), o)
		done <- result{c, err}
	}()
	p := script()
	r := <-done
	if r.err != nil {
		g.t.Fatal(r.err)
	}
	return r.c, p
}

// close ends a client in order, the gateway playing along.
func (g *gateway) close(c *Client, p *peer) {
	g.t.Helper()
	go func() {
		select {
		case <-p.eof:
		case <-p.stream.Context().Done():
		}
		p.finish(nil)
	}()
	if err := c.Close(context.Background()); err != nil {
		g.t.Errorf("Close: %v", err)
	}
}

// peer is the gateway's end of one stream.
type peer struct {
	t      *testing.T
	stream grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]
	init   *aetherv1.InitConnection
	in     chan *aetherv1.UpstreamMessage // bounded by the tests' traffic
	end    chan error
	eof    chan struct{} // closed when the client half-closes
}

func (p *peer) finish(err error) {
	select {
	case p.end <- err:
	default:
	}
}

func (p *peer) send(f *aetherv1.DownstreamMessage) {
	p.t.Helper()
	if err := p.stream.Send(f); err != nil {
		p.t.Errorf("gateway send: %v", err)
	}
}

// next is the client's next frame.
func (p *peer) next() *aetherv1.UpstreamMessage {
	p.t.Helper()
	select {
	case f := <-p.in:
		return f
	case <-time.After(patience):
		p.t.Fatal("the client sent no frame")
		return nil
	}
}

// quiet checks that the client has nothing to say now.
func (p *peer) quiet() {
	p.t.Helper()
	pass(time.Second)
	synctest.Wait()
	select {
	case f := <-p.in:
		p.t.Errorf("unexpected frame: %v", f)
	default:
	}
}

func (p *peer) nextSend() *aetherv1.SendMessage {
	p.t.Helper()
	f := p.next()
	if f.GetSend() == nil {
		p.t.Fatalf("not a send: %v", f)
	}
	return f.GetSend()
}

func (p *peer) nextAck() *aetherv1.DeliveryAck {
	p.t.Helper()
	f := p.next()
	if f.GetAck() == nil {
		p.t.Fatalf("not an ack: %v", f)
	}
	return f.GetAck()
}

func (p *peer) receipt(s *aetherv1.SendMessage) {
	p.t.Helper()
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{
		RequestId: s.GetRequestId(), MessageId: s.GetMessageId(), Status: aetherv1.SendReceipt_STATUS_STORED,
	}}})
}

func (p *peer) refusal(requestID, code string, retryable bool) {
	p.t.Helper()
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{
		Code: code, Message: "because", Retryable: retryable, RequestId: requestID, RetryAfterMs: 250,
		Details: map[string]string{"topic": "x"},
	}}})
}

func (p *peer) signal(s *aetherv1.Signal) {
	p.t.Helper()
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Signal{Signal: s}})
}

// deliver sends a message that is to be acknowledged; id 0 makes it a shared one.
func (p *peer) deliver(id uint64, messageID, payload string) {
	p.t.Helper()
	p.deliverFrom("ag::demo::other::1", id, messageID, payload)
}

func (p *peer) deliverFrom(source string, id uint64, messageID, payload string) {
	p.t.Helper()
	topic := "ag::demo::echo::1"
	if id == 0 {
		topic = "ga::demo"
	}
	p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
		SourceTopic: source, Topic: topic, MessageId: messageID, DeliveryId: id, Payload: []byte(payload),
		Workspace: "demo", TimestampMs: 1_700_000_000_000,
	}}})
}

// pass lets time pass on the bubble's clock, which goes on when all is idle.
func pass(d time.Duration) { <-time.After(d) }

// expect waits for a value from a channel of the test.
func expect[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// noneOf checks that nothing comes.
func noneOf[T any](t *testing.T, ch <-chan T) {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-ch:
		t.Errorf("unexpected: %v", v)
	default:
	}
}
