package session

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
)

// stillStream is a stream of which there is only a context.
type stillStream struct {
	Stream
	ctx context.Context
}

func (s stillStream) Context() context.Context { return s.ctx }

// A question whose turn does not come in time is refused: it was answered that
// nothing is known of the message.
func TestWhereIsNotLookedFor(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	m := &Manager{o: Options{}.withDefaults(), refusals: newRefusals(), looking: make(chan struct{})} // nobody's turn comes
	s := &Session{m: m, st: stillStream{ctx: over}, box: delivery.NewMailbox(delivery.Options{}), ended: make(chan struct{})}
	s.look(&aetherv1.MessageStatusRequest{RequestId: "r", MessageId: "m"})
	var batch delivery.Batch
	if !s.box.Take(&batch) || len(batch.Frames) != 1 {
		t.Fatal("no answer")
	}
	var answer aetherv1.DownstreamMessage
	if err := proto.Unmarshal(batch.Frames[0], &answer); err != nil {
		t.Fatal(err)
	}
	if e := answer.GetError(); e.GetCode() != "ERR_UNAVAILABLE" || e.GetRequestId() != "r" {
		t.Errorf("answered %v", &answer)
	}
}
