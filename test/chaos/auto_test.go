package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
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
}

// run reads until stop is closed.
func (r *autoReader) run(ctx context.Context, settle, stop <-chan struct{}, connected func()) error {
	resume := ""
	for {
		leave := make(chan struct{})
		stay := time.AfterFunc(2*time.Second+time.Duration(r.rng.Int64N(int64(8*time.Second))), func() {
			select {
			case <-settle:
			default:
				if r.restless {
					close(leave)
				}
			}
		})
		id, left, err := r.session(ctx, resume, leave, stop, connected)
		stay.Stop()
		if id != "" {
			resume = id
		}
		if left {
			resume = ""
		}
		select {
		case <-stop:
			return nil
		default:
		}
		switch status.Code(err) {
		case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
			return err
		}
		if !wait(ctx, 50*time.Millisecond+time.Duration(r.rng.Int64N(int64(500*time.Millisecond)))) {
			return nil
		}
	}
}

// session is one stream. It returns the session's id, and whether the gateway
// has ended it in order after the half-close.
func (r *autoReader) session(ctx context.Context, resume string, leave, stop <-chan struct{}, connected func()) (id string, left bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := append(r.wire.options(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
	conn, err := grpc.NewClient("passthrough:///gateway", options...)
	if err != nil {
		return "", false, err
	}
	defer conn.Close() //nolint:errcheck // nothing depends on it any more
	first := time.AfterFunc(5*time.Second, cancel)
	defer first.Stop()
	stream, err := aetherv1.NewAetherGatewayClient(conn).Connect(ctx)
	if err != nil {
		return "", false, err
	}
	init := &aetherv1.InitConnection{
		Identity:        &aetherv1.InitConnection_Agent{Agent: r.identity},
		Credentials:     map[string]string{"authorization": "Bearer " + r.token},
		ResumeSessionId: resume,
		Delivery:        &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_AUTO},
	}
	err = stream.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}})
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	frames := make(chan struct{})
	defer close(frames)
	closed := make(chan struct{})
	go func() {
		select {
		case <-leave:
		case <-stop:
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
	for {
		m, err := stream.Recv()
		if err != nil {
			select {
			case <-closed:
				left = errors.Is(err, io.EOF)
			default:
			}
			return id, left, err
		}
		if ack := m.GetConnectionAck(); ack != nil {
			first.Stop()
			id = ack.GetSessionId()
			connected()
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
