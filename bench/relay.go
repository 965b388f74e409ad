package main

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// relay is the first baseline: a server that hands each message to the stream
// of its receiver and a receipt to its sender, with the protobuf that gRPC
// comes with. It checks, stores and remembers nothing, and has no goroutine
// beside gRPC's own.
type relay struct {
	aetherv1.UnimplementedAetherGatewayServer
	mu    sync.RWMutex
	peers map[string]*relayed
}

type relayed struct {
	mu sync.Mutex
	st grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]
}

func newRelay() *grpc.Server {
	s := grpc.NewServer()
	aetherv1.RegisterAetherGatewayServer(s, &relay{peers: map[string]*relayed{}})
	return s
}

func (r *relayed) send(m *aetherv1.DownstreamMessage) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.st.Send(m)
}

// Connect serves one client.
func (r *relay) Connect(st grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	own := address(first.GetInit().GetAgent().GetSpecifier())
	self := &relayed{st: st}
	r.mu.Lock()
	r.peers[own] = self
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		if r.peers[own] == self {
			delete(r.peers, own)
		}
		r.mu.Unlock()
	}()
	ack := &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: &aetherv1.ConnectionAck{SessionId: own}}
	if err := self.send(&aetherv1.DownstreamMessage{Payload: ack}); err != nil {
		return err
	}
	for {
		up, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.pass(own, self, up.GetSend()); err != nil {
			return err
		}
	}
}

func (r *relay) pass(own string, self *relayed, m *aetherv1.SendMessage) error {
	r.mu.RLock()
	to := r.peers[m.GetTargetTopic()]
	r.mu.RUnlock()
	if to == nil {
		return nil
	}
	message := &aetherv1.IncomingMessage{SourceTopic: own, Payload: m.GetPayload(), MessageType: m.GetMessageType(), Workspace: workspace}
	if err := to.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: message}}); err != nil {
		return err
	}
	receipt := &aetherv1.SendReceipt{RequestId: m.GetRequestId(), Status: aetherv1.SendReceipt_STATUS_STORED}
	return self.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: receipt}})
}
