package router

import (
	"sync"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
)

// owe and quit keep which polls a sender waits for. The lock of polls is held.
func (s *Sender) owe(o *poll) {
	s.owed.add()
	if s.polls == nil {
		s.polls = map[*poll]struct{}{}
	}
	s.polls[o] = struct{}{}
}

func (s *Sender) quit(o *poll) { delete(s.polls, o) }

// conclude tells a sender the outcome of a tracked send.
func (s *Sender) conclude(t told) {
	s.permits.Return()
	frame, err := proto.Marshal(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{
		RequestId: t.answer.requestID, MessageId: t.answer.messageID, Status: receiptStatus(t.outcome.State), Reason: t.outcome.Reason,
		Duplicate: t.duplicate, Acked: t.outcome.Acked, Eligible: t.outcome.Eligible,
	}}})
	if err == nil { // every text in it has been checked
		s.reply(frame)
	}
	s.owed.done()
}

// owed counts the outcomes that a session waits for.
type owed struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil if nobody asked
}

func (o *owed) add() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
}

func (o *owed) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n--
	o.announce()
}

func (o *owed) announce() {
	if o.n == 0 && o.none != nil {
		close(o.none)
		o.none = nil
	}
}

// Concluded returns a channel that is closed when every tracked send has its
// outcome. It is for a session that sends nothing more.
func (s *Sender) Concluded() <-chan struct{} {
	s.owed.mu.Lock()
	defer s.owed.mu.Unlock()
	c := make(chan struct{})
	s.owed.none = c
	s.owed.announce()
	return c
}

func receiptStatus(s tracker.State) aetherv1.SendReceipt_Status {
	switch s {
	case tracker.Acked:
		return aetherv1.SendReceipt_STATUS_ACKED
	case tracker.Nacked:
		return aetherv1.SendReceipt_STATUS_NACKED
	}
	return aetherv1.SendReceipt_STATUS_TIMED_OUT
}
