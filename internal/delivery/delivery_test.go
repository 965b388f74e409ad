package delivery_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// bench is a mailbox with one inbox, fed by hand.
type bench struct {
	t     *testing.T
	box   *delivery.Mailbox
	in    *delivery.Inbox
	batch delivery.Batch
	now   int64
}

func setup(t *testing.T, o delivery.Options) *bench {
	t.Helper()
	b := &bench{t: t, box: delivery.NewMailbox(o)}
	b.in = b.box.NewInbox("ag::w::i::s", "ag::w::i::s", 0, false)
	b.in.Now = func() int64 { return b.now }
	b.in.Feed(delivery.FedByTail)
	return b
}

func message(text string, seq uint64) (*envelope.View, []byte) {
	e := envelope.Envelope{Source: "us::u::1", Payload: []byte(text), Type: 1, Topic: "ag::w::i::s", Origin: 1, Seq: seq}
	raw := e.Append(nil)
	var v envelope.View
	if v.Parse(raw) != nil {
		panic("malformed")
	}
	return &v, raw
}

func (b *bench) stored(text string, position uint64) bool {
	v, _ := message(text, position)
	return b.in.Stored(v, position, false)
}

func (b *bench) live(text string, seq, fence, seen uint64) bool {
	v, raw := message(text, seq)
	return b.in.Live(v, raw, fence, seen)
}

// show is the tail showing an own message.
func (b *bench) show(text string, seq, position uint64) bool {
	v, _ := message(text, seq)
	return b.in.Stored(v, position, true)
}

// take returns what goes out now: texts of messages, other frames as "#name".
func (b *bench) take() []string {
	b.t.Helper()
	var got []string
	for b.box.Take(&b.batch) {
		for _, g := range b.batch.Gaps {
			got = append(got, fmt.Sprintf("gap %s %d", g.Topic, g.Dropped))
		}
		for _, f := range b.batch.Frames {
			got = append(got, read(b.t, f))
		}
		for range b.batch.Feed {
			got = append(got, "feed")
		}
		if len(b.batch.Frames) == 0 {
			break
		}
	}
	return got
}

func read(t *testing.T, frame []byte) string {
	t.Helper()
	var m aetherv1.DownstreamMessage
	if err := proto.Unmarshal(frame, &m); err != nil {
		t.Fatal(err)
	}
	if in := m.GetMsg(); in != nil {
		return string(in.GetPayload())
	}
	return "#" + m.GetError().GetCode()
}

func control(code string) []byte {
	b, _ := proto.Marshal(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{Code: code}}})
	return b
}

func (b *bench) want(got []string, want string) {
	b.t.Helper()
	if s := strings.Join(got, " "); s != want {
		b.t.Fatalf("got %q, want %q", s, want)
	}
}

func (b *bench) watermark(at, want int64) {
	b.t.Helper()
	if got := b.in.Watermark(at); got != want {
		b.t.Fatalf("the watermark is %d, want %d", got, want)
	}
}

func TestControlGoesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.stored("m", 0)
	publish := b.follow(0)
	publish("s")
	b.box.Reply(control("reply"))
	b.box.Urgent(control("urgent"))
	b.want(b.take(), "#urgent #reply m s")
}

// follow has the mailbox follow a ring of so many bytes, and returns what
// publishes in it.
func (b *bench) follow(bytes int) (publish func(text string)) {
	r := delivery.NewRing(0, bytes, nil)
	b.box.NewCursor("ga::w").Follow(r, ring.Join{Class: ring.Every})
	return func(text string) {
		f := sharedFrame(text)
		r.Publish(ring.Message[delivery.Shared]{Item: delivery.Shared{Frame: f}, Size: len(f)})
	}
}

func sharedFrame(text string) []byte {
	v, _ := message(text, 1)
	return v.AppendFrame(nil, envelope.Delivery{})
}

// Own mail once waited until every broadcast and every answer before it had
// gone, so that a busy topic kept it back for ever.
func TestNoLaneStarves(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	publish := b.follow(0)
	for range 500 {
		publish("s")
		b.box.Reply(control("r"))
	}
	b.stored("m", 0)
	b.box.Take(&b.batch)
	got := map[string]int{}
	for _, f := range b.batch.Frames {
		got[read(t, f)]++
	}
	if got["m"] != 1 || got["s"] == 0 || got["#r"] == 0 {
		t.Fatalf("the first batch is %v", got)
	}
}

func TestControlOverflow(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{ControlBytes: 100})
	for range 5 {
		if !b.box.Reply(make([]byte, 20)) {
			t.Fatal("refused too early")
		}
	}
	if b.box.Urgent(make([]byte, 1)) {
		t.Fatal("accepted more than is allowed")
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 2})
	for want := range 2 {
		if load, willing := b.box.Load(0); load != want || !willing {
			t.Fatalf("%d %v", load, willing)
		}
		b.stored("m", uint64(want))
	}
	b.take()
	if load, willing := b.box.Load(0); load != 2 || willing {
		t.Fatalf("%d %v", load, willing)
	}
	_ = b.box.Ack(1)
	if load, willing := b.box.Load(0); load != 1 || !willing {
		t.Fatalf("%d %v", load, willing)
	}
}

func TestOfferTakeAllocations(t *testing.T) {
	b := setup(t, delivery.Options{Mode: delivery.Client})
	v, _ := message(strings.Repeat("x", 256), 1)
	id := uint64(0)
	n := testing.AllocsPerRun(2000, func() {
		b.in.Stored(v, id, false)
		b.box.Take(&b.batch)
		id++
		if err := b.box.Ack(id); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 {
		t.Fatalf("%v allocations for each delivery", n)
	}
}

func BenchmarkOfferTake(b *testing.B) {
	box := delivery.NewMailbox(delivery.Options{Mode: delivery.Client})
	in := box.NewInbox("a", "a", 0, false)
	in.Feed(delivery.FedByTail)
	v, _ := message(strings.Repeat("x", 256), 1)
	var batch delivery.Batch
	b.ReportAllocs()
	for id := uint64(1); b.Loop(); id++ {
		in.Stored(v, id, false)
		box.Take(&batch)
		_ = box.Ack(id)
	}
}
