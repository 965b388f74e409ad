package delivery_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// urn takes votes and keeps them as text.
type urn struct{ votes []string }

func (u *urn) Vote(id uint64, v delivery.Verdict, reason string) {
	u.votes = append(u.votes, fmt.Sprint(id, " ", [...]string{"", "ack", "nack", "gone"}[v], " ", reason))
}

func (u *urn) has(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(u.votes, want) {
		t.Fatalf("the votes are %q, want %q", u.votes, want)
	}
	u.votes = nil
}

// voting is a mailbox with an inbox and a topic.
type voting struct {
	t     *testing.T
	box   *delivery.Mailbox
	in    *delivery.Inbox
	ring  *delivery.Ring
	topic *delivery.Cursor
	urn   urn
	next  uint64
	batch delivery.Batch
}

// ringBytes is room for a few frames.
const ringBytes = 200

func newVoting(t *testing.T, o delivery.Options) *voting {
	v := &voting{t: t, box: delivery.NewMailbox(o), ring: delivery.NewRing(0, ringBytes, nil)}
	v.topic = v.box.NewCursor("ga::w")
	v.topic.Follow(v.ring, ring.Join{Class: ring.Every})
	v.in = v.box.NewInbox("ag::w::i::s", "ag::w::i::s", 0, false)
	v.in.Feed(delivery.FedByTail)
	v.in.Ballot = func(m *envelope.View) delivery.Ballot { return delivery.Ballot{Box: &v.urn, ID: m.Seq} }
	return v
}

func (v *voting) view(topic string, tracked bool) *envelope.View {
	v.next++
	e := envelope.Envelope{Source: "ag::w::i::x", Topic: topic, Payload: []byte(fmt.Sprint(v.next)), Origin: 1, Seq: v.next}
	if tracked {
		e.Tracking = 2
	}
	var view envelope.View
	if err := view.Parse(e.Append(nil)); err != nil {
		v.t.Fatal(err)
	}
	return &view
}

// own delivers to the inbox, shared to the topic; both return the vote's id.
func (v *voting) own(tracked bool) uint64 {
	m := v.view("ag::w::i::s", tracked)
	v.in.Stored(m, v.next, false)
	return v.next
}

func (v *voting) share(tracked bool) uint64 {
	m := v.view("ga::w", tracked)
	shared := delivery.Shared{Frame: m.AppendFrame(nil, envelope.Delivery{})}
	if tracked {
		shared.Ballots = map[*delivery.Cursor]delivery.Ballot{v.topic: {Box: &v.urn, ID: v.next}}
	}
	v.ring.Publish(ring.Message[delivery.Shared]{Item: shared, Size: len(shared.Frame), Tracked: tracked})
	return v.next
}

// take returns payload and delivery id of what goes out.
func (v *voting) take() (out []string) {
	v.t.Helper()
	for v.box.Take(&v.batch) {
		for _, f := range v.batch.Frames {
			var m aetherv1.DownstreamMessage
			if err := proto.Unmarshal(f, &m); err != nil {
				v.t.Fatal(err)
			}
			out = append(out, fmt.Sprint(string(m.GetMsg().GetPayload()), ":", m.GetMsg().GetDeliveryId()))
		}
		v.box.Written(&v.batch, 1)
	}
	return out
}

// Ids rise by one over both lanes, also when a shared delivery overtakes one that
// was queued before it.
func TestIdsOverBothLanes(t *testing.T) {
	t.Parallel()
	v := newVoting(t, delivery.Options{Mode: delivery.Client})
	v.own(false)
	v.share(true)
	v.own(true)
	v.share(false)
	v.share(true)
	if got, want := v.take(), []string{"1:1", "3:2", "2:3", "4:0", "5:4"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	v.own(true)
	if got, want := v.take(), []string{"6:5"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if _, err := v.box.Nack(4, true, "no"); err != nil {
		t.Fatal(err)
	}
	v.urn.has(t, "5 nack no")
	if err := v.box.Ack(4); err != nil {
		t.Fatal(err)
	}
	v.urn.has(t, "2 ack ", "3 ack ")
	if at := v.in.Watermark(10); at != 5 {
		t.Fatalf("the watermark is %d: only the last is open", at)
	}
	for _, bad := range []uint64{0, 6} {
		if v.box.AckOne(bad) == nil {
			t.Errorf("delivery %d is taken", bad)
		}
	}
	for _, twice := range []uint64{1, 2, 3, 4} {
		if v.box.AckOne(twice) == nil {
			t.Errorf("delivery %d is taken twice", twice)
		}
	}
	if err := v.box.AckOne(5); err != nil {
		t.Fatal(err)
	}
	v.urn.has(t, "6 ack ")
}

// However many go by, in whatever order they are acknowledged, each id means what
// went out with it.
func TestIdsStayTheirOwn(t *testing.T) {
	t.Parallel()
	v := newVoting(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 1000})
	votes := map[uint64]uint64{} // by id on the wire
	next := uint64(1)
	for round := range 200 {
		var order []uint64
		for i := range 5 {
			if (round+i)%3 == 0 {
				votes[next+uint64(len(order))] = v.share(true)
			} else {
				votes[next+uint64(len(order))] = v.own(true)
			}
			order = append(order, next+uint64(len(order)))
			v.take()
		}
		next += uint64(len(order))
		for i := range order {
			id := order[(i*3+round)%len(order)]
			if err := v.box.AckOne(id); err != nil {
				t.Fatal(err)
			}
			v.urn.has(t, fmt.Sprint(votes[id], " ack "))
		}
	}
}

// A receiver in Auto mode votes when a frame is written, and no sooner; what it
// loses for being slow is gone.
func TestAutoVotesWhenWritten(t *testing.T) {
	t.Parallel()
	v := newVoting(t, delivery.Options{QueueBytes: 200})
	v.share(true)
	v.own(true)
	if !v.box.Take(&v.batch) {
		t.Fatal("nothing goes out")
	}
	v.urn.has(t)
	v.box.Written(&v.batch, 1)
	v.urn.has(t, "1 ack ", "2 ack ")
	for range 10 {
		if v.share(true); len(v.urn.votes) > 0 {
			break
		}
	}
	v.urn.has(t, "3 gone lagged")
}

// A worker's nack with requeue is no vote: another may do the work.
func TestWorkersVote(t *testing.T) {
	t.Parallel()
	v := newVoting(t, delivery.Options{Mode: delivery.Client})
	v.in.Worker = true
	v.own(true)
	v.own(true)
	v.take()
	if _, err := v.box.Nack(1, true, "busy"); err != nil {
		t.Fatal(err)
	}
	v.urn.has(t)
	if _, err := v.box.Nack(2, false, ""); err != nil {
		t.Fatal(err)
	}
	v.urn.has(t, "2 nack nacked")
}
