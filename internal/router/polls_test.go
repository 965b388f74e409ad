package router

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	first = aetherv1.TrackingMode_TRACKING_MODE_FIRST
	all   = aetherv1.TrackingMode_TRACKING_MODE_ALL
)

// long is a timeout that no test waits for.
const long = 10 * time.Minute

func (s *session) track(to, request string, mode aetherv1.TrackingMode, timeout time.Duration) *wireerr.Error {
	return s.sender.Send(&aetherv1.SendMessage{
		TargetTopic: to, Payload: []byte(request), RequestId: request,
		Tracking: &aetherv1.Tracking{Mode: mode, TimeoutMs: timeout.Milliseconds()},
	})
}

func (s *session) tracked(to, request string, mode aetherv1.TrackingMode, timeout time.Duration) {
	s.w.t.Helper()
	if err := s.track(to, request, mode, timeout); err != nil {
		s.w.t.Fatal(err)
	}
}

// outcome wants the next answer to be a receipt, as text.
func (s *session) outcome(want string) {
	s.w.t.Helper()
	a := s.answer()
	r := a.GetReceipt()
	got := fmt.Sprintf("%s %s %d/%d %s", r.GetRequestId(), r.GetStatus().String()[len("STATUS_"):], r.GetAcked(), r.GetEligible(), r.GetReason())
	if r == nil || got != want {
		s.w.t.Fatalf("got %v (%s), want %s", a, got, want)
	}
}

// id waits for a message and returns its delivery id.
func (s *session) id(text string) uint64 {
	s.w.t.Helper()
	m := s.message()
	if string(m.GetPayload()) != text {
		s.w.t.Fatalf("%s got %q, want %q", s.name, m.GetPayload(), text)
	}
	if m.GetDeliveryId() == 0 {
		s.w.t.Fatalf("%q cannot be acknowledged", text)
	}
	return m.GetDeliveryId()
}

func (s *session) refuse(id uint64, requeue bool, reason string) {
	s.w.t.Helper()
	n, err := s.box.Nack(id, requeue, reason)
	if err != nil {
		s.w.t.Fatal(err)
	}
	if requeue && n.Inbox != nil {
		s.w.r.Nacked(n)
	}
}

// For an address of its own the receiver decides: live, later, by a nack, or not
// at all.
func TestFirstExclusive(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(100)), w.agent("b", client(100))
	w.warm(a, b)
	a.tracked(b.name, "1", first, long)
	b.ack(b.id("1"))
	a.outcome("1 ACKED 1/1 ")
	a.tracked(b.name, "2", first, long)
	b.refuse(b.id("2"), false, "not mine")
	a.outcome("2 NACKED 0/1 not mine")
	a.tracked(b.name, "3", first, long)
	b.refuse(b.id("3"), true, "later")
	a.outcome("3 NACKED 0/1 later")
	b.ack(b.id("3")) // it comes again, and the vote is over
	a.tracked(b.name, "4", first, time.Millisecond)
	a.outcome("4 TIMED_OUT 0/1 ")
	a.tracked("ag::w::i::away", "5", first, long)
	a.tracked("ag::w::i::away", "6", first, time.Millisecond)
	a.outcome("6 TIMED_OUT 0/1 ")
	away := w.agent("away", client(100))
	away.ack(away.id("5"))
	a.outcome("5 ACKED 1/1 ")
	if n := w.r.Polled(); n != 0 {
		t.Errorf("%d polls are left", n)
	}
}

// Broadcasts: whoever listened when the message came by is in the set.
func TestBroadcasts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	from := w.agent("from", client(100))
	var to []*session
	for i := range 3 {
		to = append(to, w.agent(fmt.Sprint("to", i), client(100)))
	}
	each := func(text string, do func(i int, s *session, id uint64)) {
		t.Helper()
		for i, s := range to {
			do(i, s, s.id(text))
		}
	}
	from.tracked("ga::w", "all acked", all, long)
	each("all acked", func(_ int, s *session, id uint64) { s.ack(id) })
	from.outcome("all acked ACKED 3/3 ")

	from.tracked("ga::w", "one nack", all, long)
	each("one nack", func(i int, s *session, id uint64) {
		if i == 1 {
			s.refuse(id, true, "no room")
		} else {
			s.ack(id)
		}
	})
	from.outcome("one nack NACKED 1/3 no room")

	from.tracked("ga::w", "first", first, long)
	each("first", func(i int, s *session, id uint64) {
		if i == 2 {
			s.ack(id)
		}
	})
	from.outcome("first ACKED 1/3 ")

	from.tracked("ga::w", "first nack", first, long)
	each("first nack", func(i int, s *session, id uint64) {
		if i == 0 {
			s.refuse(id, false, "")
		}
	})
	from.outcome("first nack NACKED 0/3 nacked")

	from.tracked("ga::w", "late", all, long)
	w.settled()
	late := w.agent("late", client(100))
	each("late", func(_ int, s *session, id uint64) { s.ack(id) })
	from.outcome("late ACKED 3/3 ")
	late.quiet()
	late.leave()

	from.tracked("ga::w", "left", all, long)
	each("left", func(i int, s *session, id uint64) {
		if i != 0 {
			s.ack(id)
		}
	})
	to[1].leave() // it has acknowledged, and counts
	to[0].leave()
	from.outcome("left NACKED 2/3 subscriber_left")

	from.tracked("ga::w", "all left", first, long)
	w.settled()
	to[2].leave()
	from.outcome("all left NACKED 0/1 subscriber_left")

	from.tracked("ga::w", "none, all", all, long)
	from.outcome("none, all NACKED 0/0 no_eligible_subscribers")
	from.tracked("ga::w", "none, first", first, long)
	from.outcome("none, first NACKED 0/0 no_eligible_subscribers")
	if n := w.r.Polled(); n != 0 {
		t.Errorf("%d polls are left", n)
	}
}

// A client that acknowledges nothing votes when a frame is written; one that lags
// out is a nack.
func TestAutoReceiversVote(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Shared.RingBytes = 200 })
	from := w.agent("from", client(100))
	auto := w.agent("auto", delivery.Options{})
	from.tracked("ga::w", "written", all, long)
	if m := auto.message(); m.GetDeliveryId() != 0 {
		t.Errorf("got %v: it cannot acknowledge", m)
	}
	from.outcome("written ACKED 1/1 ")
	from.tracked(auto.name, "own", first, long)
	auto.wants("own")
	from.outcome("own ACKED 1/1 ")
	from.tracked("ga::w", "lost", all, long)
	for i := range 4 {
		from.send("ga::w", fmt.Sprint(i), "")
	}
	from.outcome("lost NACKED 0/1 lagged")
}

// Workers: the one that does it decides; a nack that leaves it to others only at
// the last attempt.
func TestFirstWorkers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	from := w.agent("from", client(100))
	from.tracked("tb::w::i", "nobody", first, long)
	from.outcome("nobody NACKED 0/0 no_eligible_subscribers")
	one := w.worker("1", client(100))
	from.tracked("tb::w::i", "done", first, long)
	one.ack(one.id("done"))
	from.outcome("done ACKED 1/1 ")
	from.tracked("tb::w::i", "dropped", first, long)
	one.refuse(one.id("dropped"), false, "bad")
	from.outcome("dropped NACKED 0/1 bad")
	from.tracked("tb::w::i", "handed on", first, long)
	one.refuse(one.id("handed on"), true, "busy")
	one.ack(one.id("handed on"))
	from.outcome("handed on ACKED 1/1 ")
	from.tracked("tb::w::i", "given up", first, long)
	for range groupAttempts {
		one.refuse(one.id("given up"), true, "busy")
	}
	from.outcome("given up NACKED 0/1 unfinished")
}

// Refusals cost no permit, and say why; past the permits a send is refused, and
// the permit comes back with the outcome.
func TestTrackingRefusals(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MaxInFlight = 2 })
	a := w.agent("a", client(100))
	for name, c := range map[string]struct {
		to, request string
		tracking    *aetherv1.Tracking
	}{
		"an unknown mode":    {"ga::w", "r", &aetherv1.Tracking{Mode: 9}},
		"no request id":      {"ga::w", "", &aetherv1.Tracking{Mode: all}},
		"ALL for one":        {"ag::w::i::b", "r", &aetherv1.Tracking{Mode: all}},
		"ALL for workers":    {"tb::w::i", "r", &aetherv1.Tracking{Mode: all}},
		"ALL for metrics":    {"metric::w", "r", &aetherv1.Tracking{Mode: all}},
		"a negative timeout": {"ga::w", "r", &aetherv1.Tracking{Mode: all, TimeoutMs: -1}},
		"a timeout of years": {"ga::w", "r", &aetherv1.Tracking{Mode: first, TimeoutMs: 1 << 62}},
	} {
		msg := &aetherv1.SendMessage{TargetTopic: c.to, RequestId: c.request, Tracking: c.tracking}
		if c.to == "metric::w" {
			msg.MessageType = aetherv1.MessageType_MESSAGE_TYPE_METRIC
			msg.Payload = metricPayload(t)
		}
		if err := a.sender.Send(msg); err == nil || err.Code != wireerr.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.tracked("ag::w::i::away", "1", first, 0)
	a.tracked("ag::w::i::away", "2", first, 200*time.Millisecond)
	err := a.track("ag::w::i::away", "3", first, 0)
	if err == nil || err.Code != wireerr.RateLimited || !err.Retryable {
		t.Fatalf("past the permits: %v", err)
	}
	a.send("ag::w::i::away", "untracked", "4") // takes none
	a.answer()
	a.outcome("2 TIMED_OUT 0/1 ")
	a.tracked("ag::w::i::away", "5", first, 0)
	if n := w.r.Polled(); n != 2 {
		t.Errorf("%d polls are open", n)
	}
	a.sender.Drop() // its session is over
	if n := w.r.Polled(); n != 0 {
		t.Errorf("%d polls are left", n)
	}
}

// A repeat under the same message id gets the same outcome, while it is open and
// afterwards, also in the sender's next session.
func TestTrackedRepeats(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(100)), w.agent("b", client(100))
	w.warm(a, b)
	again := func(request string) *aetherv1.SendMessage {
		return &aetherv1.SendMessage{
			TargetTopic: b.name, Payload: []byte("x"), MessageId: "m", RequestId: request, Tracking: &aetherv1.Tracking{Mode: first},
		}
	}
	send := func(s *session, request string) {
		t.Helper()
		if err := s.sender.Send(again(request)); err != nil {
			t.Fatal(err)
		}
	}
	send(a, "1")
	send(a, "2")
	id := b.id("x")
	w.settled()
	a.leave()
	a.sender.Drop()
	a = w.agent("a", client(100))
	send(a, "3")
	b.ack(id)
	a.outcome("3 ACKED 1/1 ")
	send(a, "4")
	if r := a.answer().GetReceipt(); r.GetStatus() != aetherv1.SendReceipt_STATUS_ACKED || !r.GetDuplicate() {
		t.Errorf("afterwards: %v", r)
	}
	b.quiet()
	if n := a.sender.permits.Available(); n != maxInFlight {
		t.Errorf("%d permits are left", n)
	}
}

// What is not stored has no outcome but the error.
func TestTrackedNotStored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(100)), w.agent("b", client(100))
	w.warm(a, b)
	w.log.HoldConfirms(true)
	a.tracked(b.name, "1", first, long)
	b.ack(b.id("1"))
	if n := w.r.Polled(); n != 1 {
		t.Fatalf("%d polls are open before the confirm", n)
	}
	w.log.HoldConfirms(false)
	a.outcome("1 ACKED 1/1 ")
	w.log.HoldConfirms(true)
	a.tracked(b.name, "2", first, long)
	a.sender.Drop()
	w.log.HoldConfirms(false)
	if n := w.r.Polled(); n != 0 {
		t.Errorf("%d polls are left", n)
	}
}

func metricPayload(t *testing.T) []byte {
	t.Helper()
	b, err := proto.Marshal(&aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "n", Qty: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzVotes: no question makes a gateway panic.
func FuzzVotes(f *testing.F) {
	r := &Router{}
	r.polls = newPolls(r)
	q := appendText(nil, "gateway")
	q = appendReport(q, pollKey{1, 2}, report{eligible: 3, acked: 1, state: voteNacked, reason: "no"})
	f.Add(q)
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) { r.TakeVotes(context.Background(), b) })
}
