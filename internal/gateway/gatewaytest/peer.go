package gatewaytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Peer is a client that does nothing by itself: what a test does not send is
// not sent, what it does not read is not read.
type Peer struct {
	Ack  *aetherv1.ConnectionAck
	tb   testing.TB
	conn *grpc.ClientConn
	st   grpc.BidiStreamingClient[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]
	stop context.CancelFunc
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// Dial opens a stream and sends init with a token. The peer is closed when the
// test ends.
func Dial(tb testing.TB, addr, token string, init *aetherv1.InitConnection) (*Peer, error) {
	tb.Helper()
	p := Open(tb, addr)
	if token != "" {
		init.Credentials = map[string]string{"authorization": "Bearer " + token}
	}
	if err := p.st.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}}); err != nil {
		return nil, err
	}
	m, err := p.Recv()
	if err != nil {
		return nil, err
	}
	if p.Ack = m.GetConnectionAck(); p.Ack == nil {
		return nil, errors.New("the first frame is no ConnectionAck")
	}
	return p, nil
}

// Open opens a stream and sends nothing.
func Open(tb testing.TB, addr string) *Peer {
	tb.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(tb, err)
	ctx, stop := context.WithCancel(context.Background())
	p := &Peer{tb: tb, conn: conn, stop: stop}
	tb.Cleanup(p.Cut)
	p.st, err = aetherv1.NewAetherGatewayClient(conn).Connect(ctx)
	check(tb, err)
	return p
}

// MustDial is Dial that ends the test on an error.
func MustDial(tb testing.TB, addr, token string, init *aetherv1.InitConnection) *Peer {
	tb.Helper()
	p, err := Dial(tb, addr, token, init)
	check(tb, err)
	return p
}

// AgentInit is the init of an agent in CLIENT mode.
func AgentInit(workspace, implementation, specifier string) *aetherv1.InitConnection {
	return &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Agent{Agent: &aetherv1.AgentIdentity{Workspace: workspace, Implementation: implementation, Specifier: specifier}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	}
}

// UserInit is the init of a user's window in CLIENT mode.
func UserInit(user, window string) *aetherv1.InitConnection {
	return &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_User{User: &aetherv1.UserIdentity{UserId: user, WindowId: window}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	}
}

// Up sends a frame.
func (p *Peer) Up(m *aetherv1.UpstreamMessage) {
	p.tb.Helper()
	check(p.tb, p.st.Send(m))
}

// Send sends a message.
func (p *Peer) Send(m *aetherv1.SendMessage) {
	p.tb.Helper()
	p.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: m}})
}

// Acknowledge sends an acknowledgement.
func (p *Peer) Acknowledge(a *aetherv1.DeliveryAck) {
	p.tb.Helper()
	p.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Ack{Ack: a}})
}

// Recv returns the next frame. It gives up after a while.
func (p *Peer) Recv() (*aetherv1.DownstreamMessage, error) {
	timer := time.AfterFunc(patience, p.stop)
	defer timer.Stop()
	return p.st.Recv()
}

// Until reads frames until want takes one, which it returns. What want does
// not take is passed over. It gives up after a while, whatever comes meanwhile.
func (p *Peer) Until(want func(*aetherv1.DownstreamMessage) bool) *aetherv1.DownstreamMessage {
	p.tb.Helper()
	timer := time.AfterFunc(patience, p.stop)
	defer timer.Stop()
	for {
		m, err := p.st.Recv()
		if err != nil {
			p.tb.Fatalf("waiting for a frame: %v", err)
		}
		if want(m) {
			return m
		}
	}
}

// Message returns the next message.
func (p *Peer) Message() *aetherv1.IncomingMessage {
	p.tb.Helper()
	return p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetMsg() != nil }).GetMsg()
}

// Receipt returns the next receipt.
func (p *Peer) Receipt() *aetherv1.SendReceipt {
	p.tb.Helper()
	return p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil }).GetReceipt()
}

// Error returns the next error.
func (p *Peer) Error() *aetherv1.ErrorResponse {
	p.tb.Helper()
	return p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetError() != nil }).GetError()
}

// Reauthenticate shows a new token and returns the answer: when it expires, or
// the refusal.
func (p *Peer) Reauthenticate(token string) (*aetherv1.Reauthenticated, *aetherv1.ErrorResponse) {
	p.tb.Helper()
	p.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Reauthenticate{
		Reauthenticate: &aetherv1.Reauthenticate{Credentials: map[string]string{"authorization": "Bearer " + token}},
	}})
	m := p.Until(func(m *aetherv1.DownstreamMessage) bool {
		return m.GetReauthenticated() != nil || m.GetError().GetDetails()["frame"] == "reauthenticate"
	})
	return m.GetReauthenticated(), m.GetError()
}

// Ended reads to the end of the stream and returns its status; what comes before
// is handed to seen, which may be nil.
func (p *Peer) Ended(seen func(*aetherv1.DownstreamMessage)) error {
	p.tb.Helper()
	timer := time.AfterFunc(patience, p.stop)
	defer timer.Stop()
	for {
		m, err := p.st.Recv()
		if err != nil {
			return err
		}
		if seen != nil {
			seen(m)
		}
	}
}

// SessionID returns the id of the peer's session; empty for no peer.
func (p *Peer) SessionID() string {
	if p == nil {
		return ""
	}
	return p.Ack.GetSessionId()
}

// Heartbeat sends a heartbeat and waits for the answer: what was sent before
// has been acted on. What else comes meanwhile is passed over.
func (p *Peer) Heartbeat() {
	p.tb.Helper()
	p.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{}}})
	p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetHeartbeat() != nil })
}

// Leave half-closes the stream and reads to its end; it returns the status.
func (p *Peer) Leave() error {
	_ = p.st.CloseSend()
	for {
		if _, err := p.Recv(); err != nil {
			return err
		}
	}
}

// End reads to the end of the stream, which the gateway makes; it returns the
// status.
func (p *Peer) End() error {
	timer := time.AfterFunc(patience, p.stop)
	defer timer.Stop()
	for {
		if _, err := p.st.Recv(); err != nil {
			return err
		}
	}
}

// CloseSend half-closes the stream.
func (p *Peer) CloseSend() { _ = p.st.CloseSend() }

// Cancel cancels the stream on a live connection.
func (p *Peer) Cancel() { p.stop() }

// Cut closes the connection.
func (p *Peer) Cut() {
	_ = p.conn.Close()
	p.stop()
}
