package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

type (
	down = aetherv1.DownstreamMessage
	up   = aetherv1.UpstreamMessage
)

// wire is a connection that does nothing by itself: what a test does not send
// is not sent, and what it does not read is not read. One goroutine may send
// while another receives. Its methods return errors; those of [peer] fail the
// test instead.
type wire struct {
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[up, down]
	cancel context.CancelFunc
	ack    *aetherv1.ConnectionAck
	// kept are frames that were read while another was waited for, oldest
	// first.
	kept     []*down
	requests int
	acked    uint64
}

// open opens a stream without sending anything. md is sent beside it.
func open(tb testing.TB, addr string, md ...string) *wire {
	tb.Helper()
	w, err := tryOpen(addr, md...)
	check(tb, err)
	tb.Cleanup(w.cut)
	return w
}

// tryOpen is open, which must be cut, where a gateway may be away.
func tryOpen(addr string, md ...string) (*wire, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), md...))
	w := &wire{conn: conn, cancel: cancel}
	if w.stream, err = aetherv1.NewAetherGatewayClient(conn).Connect(ctx); err != nil {
		w.cut()
		return nil, err
	}
	return w, nil
}

// greet sends the init frame and reads the ConnectionAck.
func (w *wire) greet(init *aetherv1.InitConnection) error {
	if err := w.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Init{Init: init}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	first, err := w.recv()
	if err != nil {
		return err
	}
	if w.ack = first.GetConnectionAck(); w.ack == nil {
		return fmt.Errorf("the first frame is no ConnectionAck: %v", first)
	}
	return nil
}

// dial connects as an identity. The error is the status with which the gateway
// refused.
func dial(tb testing.TB, g *gateway, id identity, options ...option) (*wire, error) {
	tb.Helper()
	init, err := id.frame(options...)
	check(tb, err)
	w := open(tb, g.grpc)
	if err := w.greet(init); err != nil {
		w.cut()
		return nil, err
	}
	return w, nil
}

// recv returns the next frame, or an error after [patience].
func (w *wire) recv() (*down, error) {
	late := time.AfterFunc(patience, w.cancel)
	m, err := w.stream.Recv()
	if !late.Stop() && err != nil {
		return nil, fmt.Errorf("no frame came within %v", patience)
	}
	return m, err
}

// await returns the oldest frame that want takes. Others are kept.
func (w *wire) await(want func(*down) bool) (*down, error) {
	for i, m := range w.kept {
		if want(m) {
			w.kept = append(w.kept[:i], w.kept[i+1:]...)
			return m, nil
		}
	}
	for deadline := time.Now().Add(patience); ; {
		m, err := w.recv()
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, w.summary())
		}
		if want(m) {
			return m, nil
		}
		if m.GetHeartbeat() == nil {
			w.kept = append(w.kept, m)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the frame did not come within %v%s", patience, w.summary())
		}
	}
}

func (w *wire) summary() string {
	if len(w.kept) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "; %d frames are kept, the last:", len(w.kept))
	for _, m := range w.kept[max(0, len(w.kept)-3):] {
		fmt.Fprintf(&b, " {%.300v}", m)
	}
	return b.String()
}

func (w *wire) send(m *aetherv1.SendMessage) error {
	return w.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Send{Send: m}})
}

// request returns a request id that this connection has not used.
func (w *wire) request() string {
	w.requests++
	return fmt.Sprintf("r%d", w.requests)
}

// answer waits for the receipt or the error of a send.
func (w *wire) answer(request string) (*aetherv1.SendReceipt, *aetherv1.ErrorResponse, error) {
	m, err := w.await(func(m *down) bool {
		return m.GetReceipt().GetRequestId() == request && m.GetReceipt() != nil ||
			m.GetError().GetRequestId() == request && m.GetError() != nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("waiting for the answer to %s: %w", request, err)
	}
	return m.GetReceipt(), m.GetError(), nil
}

// store sends texts to an address, many on their way at once, and waits until
// all are stored.
func (w *wire) store(to string, texts ...string) error {
	requests := make([]string, len(texts))
	for i := range texts {
		requests[i] = w.request()
	}
	sent := make(chan error, 1)
	go func() {
		for i, text := range texts {
			m := chat(to, text)
			m.RequestId = requests[i]
			if err := w.send(m); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i, request := range requests {
		receipt, refusal, err := w.answer(request)
		if err != nil {
			w.cancel()
			return errors.Join(err, <-sent)
		}
		if refusal != nil {
			w.cancel()
			return errors.Join(fmt.Errorf("message %d (%.40s) was refused: %v", i, texts[i], refusal), <-sent)
		}
		if receipt.GetStatus() != aetherv1.SendReceipt_STATUS_STORED || receipt.GetMessageId() == "" {
			return errors.Join(fmt.Errorf("message %d has the receipt %v", i, receipt), <-sent)
		}
	}
	return <-sent
}

// message waits for the next message.
func (w *wire) message() (*aetherv1.IncomingMessage, error) {
	m, err := w.await(func(m *down) bool { return m.GetMsg() != nil })
	return m.GetMsg(), err
}

// acknowledge acknowledges everything up to a delivery id.
func (w *wire) acknowledge(upTo uint64) error {
	w.acked = upTo
	return w.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Ack{Ack: &aetherv1.DeliveryAck{UpTo: upTo}}})
}

// leave half-closes the stream and reads it to its end.
func (w *wire) leave() error {
	if err := w.stream.CloseSend(); err != nil {
		return err
	}
	for {
		m, err := w.recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.GetHeartbeat() == nil {
			w.kept = append(w.kept, m)
		}
	}
}

// end reads the stream to its end and returns the status.
func (w *wire) end() *status.Status {
	_, err := w.await(func(*down) bool { return false })
	if errors.Is(err, io.EOF) {
		return status.New(codes.OK, "")
	}
	return statusOf(err)
}

// cut closes the connection, without a word on the stream.
func (w *wire) cut() {
	_ = w.conn.Close()
	w.cancel()
}

// statusOf returns the status that an error wraps.
func statusOf(err error) *status.Status {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus()
	}
	if err == nil {
		return status.New(codes.OK, "")
	}
	return status.New(codes.Unknown, err.Error())
}

func chat(to, text string) *aetherv1.SendMessage {
	return &aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), MessageType: aetherv1.MessageType_MESSAGE_TYPE_CHAT}
}

// numbered returns texts that tell who sent them and in which order.
func numbered(who string, from, to int) []string {
	texts := make([]string, 0, to-from+1)
	for i := from; i <= to; i++ {
		texts = append(texts, fmt.Sprintf("%s %d", who, i))
	}
	return texts
}
