package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// The clients are agents of one kind.
const (
	workspace      = "bench"
	implementation = "load"
)

// address is where the agent of a name is reached.
func address(name string) string { return "ag::" + workspace + "::" + implementation + "::" + name }

var started = time.Now()

// now is the monotonic time in nanoseconds.
func now() int64 { return int64(time.Since(started)) }

func index(b, part []byte) int { return bytes.Index(b, part) }

// target is a server that clients connect to.
type target struct {
	addr  string
	token string // "" if it asks for none
	codec codec
}

// peer is one client on a connection of its own.
type peer struct {
	conn *grpc.ClientConn
	st   grpc.ClientStream
	stop context.CancelFunc
	left atomic.Bool // its end is wanted
}

// dial connects as the agent of a name, which takes up to unacked messages
// before it acknowledges.
func (t target) dial(ctx context.Context, name string, unacked int) (*peer, error) {
	conn, err := grpc.NewClient(t.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(t.codec)))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &peer{conn: conn, stop: stop}
	if err := p.open(ctx, t, name, unacked); err != nil {
		p.cut()
		return nil, fmt.Errorf("connect as %s: %w", name, err)
	}
	return p, nil
}

func (p *peer) open(ctx context.Context, t target, name string, unacked int) (err error) {
	p.st, err = p.conn.NewStream(ctx, &aetherv1.AetherGateway_ServiceDesc.Streams[0], aetherv1.AetherGateway_Connect_FullMethodName)
	if err != nil {
		return err
	}
	init := &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Agent{Agent: &aetherv1.AgentIdentity{Workspace: workspace, Implementation: implementation, Specifier: name}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT, MaxUnacked: uint32(unacked)},
	}
	if t.token != "" {
		init.Credentials = map[string]string{"authorization": "Bearer " + t.token}
	}
	b, err := proto.Marshal(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}})
	if err != nil {
		return err
	}
	if err := p.st.SendMsg(&frame{b}); err != nil && !errors.Is(err, io.EOF) {
		return err // io.EOF: the status tells more
	}
	var n notice
	if err := p.st.RecvMsg(&n); err != nil {
		return err
	}
	if n.kind != noticeAck {
		return errors.New("the first frame is no ConnectionAck")
	}
	return nil
}

// read calls f for each frame until the stream ends. It returns nil if the end
// was asked for.
func (p *peer) read(f func(*notice) error) error {
	var n notice
	for {
		if err := p.st.RecvMsg(&n); err != nil {
			if p.left.Load() {
				return nil
			}
			return fmt.Errorf("the stream ended: %w", err)
		}
		if err := f(&n); err != nil {
			return err
		}
	}
}

// leave half-closes the stream; read returns when the server has closed it
// too.
func (p *peer) leave() {
	p.left.Store(true)
	_ = p.st.CloseSend()
}

// cut closes the connection.
func (p *peer) cut() {
	p.left.Store(true)
	p.stop()
	p.conn.Close()
}
