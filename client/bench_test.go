package client

import (
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// mirror is a gateway that stores nothing: it gives each send its receipt and
// delivers it back to its sender.
type mirror struct {
	aetherv1.UnimplementedAetherGatewayServer
	deliver bool
}

func (m *mirror) Connect(s grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	err := s.Send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: &aetherv1.ConnectionAck{MaxPayloadBytes: 1000}}})
	for id := uint64(1); err == nil; {
		var f *aetherv1.UpstreamMessage
		if f, err = s.Recv(); err != nil {
			break
		}
		send := f.GetSend()
		if send == nil {
			continue
		}
		if m.deliver {
			err = s.Send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
				SourceTopic: "ag::demo::echo::1", Topic: send.GetTargetTopic(), MessageId: send.GetMessageId(), DeliveryId: id, Payload: send.GetPayload(),
			}}})
			id++
		}
		if err == nil && send.GetRequestId() != "" {
			err = s.Send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{
				RequestId: send.GetRequestId(), MessageId: send.GetMessageId(), Status: aetherv1.SendReceipt_STATUS_STORED,
			}}})
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func mirrored(b *testing.B, m *mirror, o Options) *Client {
	b.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := grpc.NewServer()
	aetherv1.RegisterAetherGatewayServer(srv, m)
	go srv.Serve(lis) //nolint:errcheck // ends with Stop
	o.Addr, o.Identity = lis.Addr().String(), Agent("demo", "echo", "1")
	c, err := Connect(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(b.Context()); err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
		srv.Stop()
	})
	return c
}

// BenchmarkSend is the cost of a confirmed send, pipelined.
func BenchmarkSend(b *testing.B) {
	c := mirrored(b, &mirror{}, Options{})
	payload := make([]byte, 256)
	b.ReportAllocs()
	pending := make(chan *Pending, DefaultMaxPending)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range pending {
			if _, err := p.Wait(b.Context()); err != nil {
				b.Error(err)
			}
		}
	}()
	for b.Loop() {
		p, err := c.SendAsync(b.Context(), "ag::demo::x::1", payload)
		if err != nil {
			b.Fatal(err)
		}
		pending <- p
	}
	close(pending)
	<-done
}

// BenchmarkReceive is the cost of a message that comes, is handled and is
// acknowledged, with a Post for each.
func BenchmarkReceive(b *testing.B) {
	c := mirrored(b, &mirror{deliver: true}, Options{MaxUnacked: 1 << 16})
	payload := make([]byte, 256)
	b.ReportAllocs()
	done := make(chan struct{})
	window := make(chan struct{}, 1000)
	go func() {
		defer close(done)
		for m := range c.Messages(b.Context()) {
			m.Ack()
			<-window
		}
	}()
	for b.Loop() {
		window <- struct{}{}
		if _, err := c.Post(b.Context(), "ag::demo::echo::1", payload); err != nil {
			b.Fatal(err)
		}
	}
	for range cap(window) {
		window <- struct{}{}
	}
}
