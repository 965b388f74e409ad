package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// autoReader is an agent in AUTO mode, which the SDK has not: it reads all that
// comes, comes back when the connection breaks, and leaves only by half-closing
// and reading to the end.
type autoReader struct {
	check.Receiver
	wire     *wire
	token    string
	identity *aetherv1.AgentIdentity
	rng      *rand.Rand
	restless bool
	// doubting readers take up a new session when nothing has come for a while,
	// and go on reading the old stream: what a gateway that was cut off, or
	// stopped, still sends to it is seen.
	doubting bool
}

// silence makes a doubting reader doubt; heartbeats come every second.
const silence = 3 * time.Second

// visit is one stream of an autoReader.
type visit struct {
	resume     string
	leave      chan struct{} // closed: half-close
	stop       <-chan struct{}
	connected  func()
	suspicious chan struct{} // closed after a silence

	id   string // set before suspicious or the end
	left bool   // the gateway has ended it in order after the half-close
	err  error
}

// run reads until stop is closed.
func (r *autoReader) run(ctx context.Context, settle, stop <-chan struct{}, connected func()) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	resume := ""
	for {
		v := &visit{resume: resume, leave: make(chan struct{}), stop: stop, connected: connected, suspicious: make(chan struct{})}
		stay := time.AfterFunc(2*time.Second+time.Duration(r.rng.Int64N(int64(8*time.Second))), func() {
			select {
			case <-settle:
			default:
				if r.restless {
					close(v.leave)
				}
			}
		})
		over := make(chan struct{})
		streams.Go(func() {
			defer close(over)
			v.err = r.read(ctx, v)
		})
		select {
		case <-v.suspicious:
			resume = v.id
			stay.Stop()
			continue
		case <-over:
		}
		stay.Stop()
		if v.id != "" {
			resume = v.id
		}
		if v.left {
			resume = ""
		}
		select {
		case <-stop:
			return nil
		default:
		}
		switch status.Code(v.err) {
		case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
			return v.err
		}
		if !wait(ctx, 50*time.Millisecond+time.Duration(r.rng.Int64N(int64(500*time.Millisecond)))) {
			return nil
		}
	}
}

// read opens a stream and reads it to its end.
func (r *autoReader) read(ctx context.Context, v *visit) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := append(r.wire.options(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}))
	conn, err := grpc.NewClient("passthrough:///gateway", options...)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing depends on it any more
	first := time.AfterFunc(5*time.Second, cancel)
	defer first.Stop()
	stream, err := aetherv1.NewAetherGatewayClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	init := &aetherv1.InitConnection{
		Identity:        &aetherv1.InitConnection_Agent{Agent: r.identity},
		Credentials:     map[string]string{"authorization": "Bearer " + r.token},
		ResumeSessionId: v.resume,
		Delivery:        &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_AUTO},
	}
	err = stream.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	frames := make(chan struct{})
	defer close(frames)
	closed := make(chan struct{})
	go func() {
		select {
		case <-v.leave:
		case <-v.stop:
		case <-frames:
			return
		}
		close(closed)
		_ = stream.CloseSend()
		t := time.NewTimer(10 * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-frames:
		}
	}()
	doubt := time.AfterFunc(time.Hour, func() { close(v.suspicious) })
	defer doubt.Stop()
	for {
		m, err := stream.Recv()
		if err != nil {
			select {
			case <-closed:
				v.left = errors.Is(err, io.EOF)
			default:
			}
			return err
		}
		if ack := m.GetConnectionAck(); ack != nil {
			first.Stop()
			v.id = ack.GetSessionId()
			v.connected()
		}
		if r.doubting && doubt.Stop() { // not after it has fired
			doubt.Reset(silence)
		}
		in := m.GetMsg()
		if in == nil {
			continue
		}
		msg, err := parse(in.GetSourceTopic(), in.GetTopic(), in.GetMessageId(), in.GetPayload())
		if err == nil {
			r.wire.rec.note(check.Event{Kind: check.Processed, Who: r.Name, Sender: msg.Sender, To: msg.To, Seq: msg.Seq})
		}
	}
}
