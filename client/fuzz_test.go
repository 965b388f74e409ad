package client

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// FuzzDispatch: whatever frames a gateway sends, the client neither panics nor
// keeps more than its bounds. The input is a frame of frames.
func FuzzDispatch(f *testing.F) {
	seed := func(frames ...*aetherv1.DownstreamMessage) {
		b, err := proto.Marshal(&aetherv1.DownstreamMessage{Batch: frames})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	msg := func(id uint64, name string) *aetherv1.DownstreamMessage {
		return &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
			SourceTopic: "s", Topic: "t", DeliveryId: id, MessageId: name, Metadata: map[string]string{CorrelationID: name},
		}}}
	}
	seed()
	seed(msg(1, "a"), msg(2, "a"), msg(0, "b"), msg(3, ""), msg(1, "c"))
	seed(msg(0, "a"), msg(0, "b"), msg(0, "c"), msg(0, "d"), msg(0, "a"))
	seed(
		&aetherv1.DownstreamMessage{},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{RequestId: "s1"}}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{RetryAfterMs: -1}}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Config{}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Gap{Gap: &aetherv1.HistoryGap{Reason: 99}}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_CredentialExpiring{}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Reauthenticated{}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_WorkspaceSwitched{}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ProgressUpdate{ProgressUpdate: &aetherv1.ProgressUpdate{TimestampMs: -1}}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Signal{Signal: &aetherv1.Signal{Type: 1, ReconnectAfterMs: 1 << 62}}},
		&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Signal{}},
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		var frames aetherv1.DownstreamMessage
		if proto.Unmarshal(data, &frames) != nil {
			return
		}
		c, err := newClient(Options{
			Addr: "x:1", Identity: Agent("w", "i", "s"), SharedBuffer: 3, MaxUnacked: 2, OnNotice: func(Notice) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		l := &link{renewals: newRenewals(nil), switches: newSwitches(), c: c, wakeup: make(chan struct{}, 1), session: Session{Extended: true}}
		l.ctx, l.cancel = context.WithCancelCause(c.ctx)
		c.sends.attach(l)
		c.recv.attach(l)
		for _, frame := range frames.GetBatch() {
			if l.dispatch(frame) != nil {
				break
			}
			if c.recv.shared > 3 || c.recv.acks.open > 2*2+ackBatch || len(c.notices.queue) > maxNotices {
				t.Fatalf("beyond the bounds: %d shared, %d open, %d notices", c.recv.shared, c.recv.acks.open, len(c.notices.queue))
			}
		}
		if m := c.recv.queue.head; m != nil {
			m.Ack()
		}
		c.recv.flush(l, true)
		c.recv.detach(l)
		for m := c.recv.queue.head; m != nil; m = m.next {
			if m.tracked {
				t.Fatal("an acknowledged message outlives its session")
			}
		}
		c.cancel()
		l.tasks.Wait()
	})
}
