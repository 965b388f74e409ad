package delivery_test

import (
	"errors"
	"fmt"
	"math"
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

// A shared topic drops the oldest for a slow reader, who is told how many.
func TestSharedDropsOldest(t *testing.T) {
	t.Parallel()
	size := len(sharedFrame("0"))
	b := setup(t, delivery.Options{})
	publish := b.follow(3 * size)
	for i := range 7 {
		publish(fmt.Sprint(i))
	}
	b.want(b.take(), "gap ga::w 4 4 5 6")
	publish("7")
	b.want(b.take(), "7")
}

// The window holds deliveries back, and acknowledgements let them out.
func TestWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 2})
	for i := range 5 {
		b.stored(fmt.Sprint(i), uint64(i))
	}
	b.want(b.take(), "0 1")
	if err := b.box.AckOne(2); err != nil {
		t.Fatal(err)
	}
	b.want(b.take(), "2")
	if err := b.box.Ack(3); err != nil {
		t.Fatal(err)
	}
	b.want(b.take(), "3 4")
}

// Delivery rule S6: beyond an open hole delivery goes on for 16 windows only.
func TestS6HoleStopsDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 2})
	n := 0
	for ; b.stored("m", uint64(n)); n++ {
		b.take()
		if n > 0 {
			if err := b.box.AckOne(uint64(n + 1)); err != nil {
				t.Fatal(err)
			}
		}
		if n > 1000 {
			t.Fatal("the hole stops nothing")
		}
	}
	if n != 32 {
		t.Fatalf("stopped after %d", n)
	}
	if err := b.box.AckOne(1); err != nil {
		t.Fatal(err)
	}
	if !b.stored("m", uint64(n)) {
		t.Fatal("closing the hole does not let delivery go on")
	}
}

func TestAckErrors(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	for i := range 4 {
		b.stored("m", uint64(i))
	}
	b.take()
	b.stored("not taken", 9)
	steps := []struct {
		name string
		do   func() error
		want delivery.AckReason
	}{
		{"zero", func() error { return b.box.AckOne(0) }, delivery.AckNotDelivered},
		{"from the future", func() error { return b.box.Ack(5) }, delivery.AckNotDelivered},
		{"far future", func() error { return b.box.AckOne(math.MaxUint64) }, delivery.AckNotDelivered},
		{"good", func() error { return b.box.AckOne(2) }, 0},
		{"twice", func() error { return b.box.AckOne(2) }, delivery.AckTwice},
		{"cumulative", func() error { return b.box.Ack(3) }, 0},
		{"cumulative twice", func() error { return b.box.Ack(3) }, delivery.AckTwice},
		{"cumulative lower", func() error { return b.box.Ack(1) }, delivery.AckTwice},
		{"below the first", func() error { return b.box.AckOne(1) }, delivery.AckTwice},
		{"nack", func() error { _, err := b.box.Nack(4, true, ""); return err }, 0},
		{"nack twice", func() error { _, err := b.box.Nack(4, true, ""); return err }, delivery.AckTwice},
		{"ack of a nacked one", func() error { return b.box.AckOne(4) }, delivery.AckTwice},
	}
	for _, step := range steps {
		err := step.do()
		var e *delivery.AckError
		if step.want == 0 && err != nil || step.want != 0 && (!errors.As(err, &e) || e.Reason != step.want) {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	auto := setup(t, delivery.Options{})
	var e *delivery.AckError
	if err := auto.box.Ack(1); !errors.As(err, &e) || e.Reason != delivery.AckInAuto {
		t.Errorf("in Auto mode: %v", err)
	}
}

// Delivery rule S5: the watermark passes what is done and what is foreign,
// never an unfinished delivery; position 0 is a position.
func TestS5Watermark(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.watermark(-1, -1)
	b.stored("a", 0)
	b.watermark(5, -1)
	b.stored("b", 7)
	b.stored("c", 9)
	b.take()
	b.watermark(20, -1)
	_ = b.box.AckOne(1)
	b.watermark(20, 6)
	_ = b.box.AckOne(3)
	b.watermark(20, 6)
	_ = b.box.AckOne(2)
	b.watermark(20, 20)
}

// Deliveries of one session may have positions that do not rise with their
// ids, because different senders' messages come by different ways.
func TestS5WatermarkOutOfOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.live("first", 11, 0, 20)
	b.live("second", 10, 0, 20)
	b.take()
	b.show("second", 10, 100)
	b.show("first", 11, 101)
	_ = b.box.AckOne(1)
	b.watermark(200, 99)
	_ = b.box.AckOne(2)
	b.watermark(200, 200)
}

// Delivery rule S3: a live delivery is recognised in the log, gets its
// position, and is not delivered again; one that was never stored is
// forgotten when a later one of the same origin shows.
func TestS3Expected(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	for seq := uint64(1); seq <= 3; seq++ {
		b.live(fmt.Sprint(seq), seq, 0, 0)
	}
	b.want(b.take(), "1 2 3")
	b.watermark(50, 50) // without a position they lie above
	b.show("1", 1, 60)
	b.show("3", 3, 61)
	b.want(b.take(), "")
	if b.in.Expecting(0) {
		t.Fatal("2 is still expected")
	}
	b.watermark(70, 59)
	_ = b.box.Ack(3)
	b.watermark(70, 70)
}

// Delivery rule S3: the set survives a fall back to reading the log.
func TestS3ExpectedSurvivesFallBack(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.live("1", 1, 0, 0)
	b.in.Starve(10)
	b.in.Feed(delivery.FedByPump)
	b.show("1", 1, 11)
	b.show("2", 2, 12)
	b.want(b.take(), "1 2 feed")
}

// Delivery rule S2: what is handed over before the fence has shown waits for
// it, in order.
func TestS2Fence(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.live("6", 6, 5, 3)
	b.live("7", 7, 5, 3)
	b.want(b.take(), "")
	b.show("5", 5, 50)
	b.want(b.take(), "5")
	if !b.in.Unfence(5) {
		t.Fatal("no room")
	}
	b.want(b.take(), "6 7")
	b.live("8", 8, 5, 5)
	b.want(b.take(), "8")
	b.show("6", 6, 51)
	b.show("7", 7, 52)
	b.show("8", 8, 53)
	b.want(b.take(), "")
}

func TestS2HeldIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	n := 0
	for ; b.live("x", uint64(10+n), 9, 3); n++ {
		if n > 100_000 {
			t.Fatal("unbounded")
		}
	}
	b.in.Starve(7)
	if b.in.Holding() {
		t.Fatal("what was held is in the log and must be forgotten")
	}
}

// A full lane leaves the rest in the log; the inbox is fed again when half of
// it is free.
func TestStarveAndFeed(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 1, QueueBytes: 400})
	n := uint64(0)
	for ; b.stored(strings.Repeat("x", 80), n); n++ {
	}
	b.in.Starve(int64(n) - 1)
	if got := b.take(); len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	for id := uint64(1); ; id++ {
		if err := b.box.AckOne(id); err != nil {
			t.Fatal(err)
		}
		got := b.take()
		if got[len(got)-1] == "feed" {
			break
		}
	}
	if at := b.in.At(); at != int64(n)-1 {
		t.Fatalf("it is to be fed after %d, want %d", at, n-1)
	}
	if b.box.Take(&b.batch) {
		t.Fatal("handed out twice")
	}
}

// Delivery rule S7: an inbox that is stopped takes nothing new, gives live
// deliveries their positions, and does not pass what it left.
func TestS7Stop(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.live("1", 1, 0, 0)
	b.take()
	_ = b.box.AckOne(1)
	b.in.Stop()
	b.live("2", 2, 0, 0)
	b.show("1", 1, 20)
	b.show("2", 2, 30)
	b.want(b.take(), "")
	b.watermark(99, 29)
}

func TestNackAndRedeliver(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.stored("a", 5)
	b.take()
	n, err := b.box.Nack(1, true, "")
	if err != nil || n.Attempts != 1 || n.Inbox != b.in {
		t.Fatalf("%+v, %v", n, err)
	}
	b.watermark(9, 4)
	position, known, open := b.box.PositionOf(1)
	if position != 5 || !known || !open {
		t.Fatalf("%d %v %v", position, known, open)
	}
	v, _ := message("a", 5)
	b.in.Redeliver(1, v, 5, n.Attempts)
	if !b.box.Take(&b.batch) {
		t.Fatal("nothing comes again")
	}
	var m aetherv1.DownstreamMessage
	if err := proto.Unmarshal(b.batch.Frames[0], &m); err != nil || !m.GetMsg().GetRedelivered() || m.GetMsg().GetDeliveryId() != 2 {
		t.Fatalf("%v, %v", &m, err)
	}
	b.watermark(9, 4)
	_ = b.box.AckOne(2)
	b.watermark(9, 9)
	if _, err := b.box.Nack(2, false, ""); err == nil {
		t.Fatal("a nack of what is done is taken")
	}
}

// Delivery rule A: what counts as done without acknowledgements.
func TestAutoSettle(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{})
	at := func(now int64, n int) {
		for range n {
			b.stored("m", uint64(now))
		}
		for b.box.Take(&b.batch) {
			b.box.Written(&b.batch, now)
		}
	}
	at(1000, 1)
	at(2000, 1)
	b.box.Settle(math.MaxUint64, 1500, true)
	b.watermark(9000, 999) // blocked: nothing is done
	b.box.Settle(math.MaxUint64, 1500, false)
	b.watermark(9000, 1999)
	at(3000, 1)
	b.box.Settle(1, 0, false) // more than a byte was written after the second
	b.watermark(9000, 2999)
	b.box.Settle(0, math.MaxInt64, false)
	b.watermark(9000, 9000)
}

// What waits and was not written is not done, whatever the clock says.
func TestAutoUnwritten(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{})
	b.stored("m", 4)
	b.box.Settle(0, math.MaxInt64, false)
	b.watermark(9, 3)
	b.box.Take(&b.batch) // taken, and the stream has not had it
	b.box.Settle(0, math.MaxInt64, false)
	b.watermark(9, 3)
}

func TestExpiredCountsAsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	expired := 0
	b.in.Expired = func(*envelope.View) { expired++ }
	b.now = 100
	e := envelope.Envelope{Topic: "ag::w::i::s", Payload: []byte("late"), ExpiresAtMS: 99}
	var v envelope.View
	_ = v.Parse(e.Append(nil))
	if !b.in.Stored(&v, 3, false) {
		t.Fatal("no room for nothing")
	}
	b.want(b.take(), "")
	b.watermark(5, 5)
	if expired != 1 {
		t.Fatalf("counted %d", expired)
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.in.Skip = func(_ []byte, position uint64) bool { return position <= 3 }
	b.stored("old", 3)
	b.stored("new", 4)
	b.want(b.take(), "new")
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

// A topic may end who is too slow for it: the writer says so, once, to a session
// that has stopped altogether, and nobody else notices.
func TestSlowReaderIsEnded(t *testing.T) {
	t.Parallel()
	var ended []string
	b := setup(t, delivery.Options{Lagged: func(topic string) { ended = append(ended, topic) }})
	r := delivery.NewRing(4, 0, nil)
	b.box.NewCursor("ga::w").Follow(r, ring.Join{Class: ring.Every, Disconnect: true})
	other := setup(t, delivery.Options{})
	other.box.NewCursor("ga::w").Follow(r, ring.Join{Class: ring.Every, Disconnect: true})
	for i := range 20 {
		f := sharedFrame(fmt.Sprint(i))
		r.Publish(ring.Message[delivery.Shared]{Item: delivery.Shared{Frame: f}, Size: len(f)})
		other.want(other.take(), fmt.Sprint(i))
	}
	if len(ended) != 1 || ended[0] != "ga::w" {
		t.Errorf("told to end %q", ended)
	}
}

// What waits in a ring is there once, however many sessions wait for it.
func TestSharedFramesAreShared(t *testing.T) {
	t.Parallel()
	r := delivery.NewRing(0, 0, nil)
	var list []*bench
	for range 3 {
		b := setup(t, delivery.Options{})
		b.box.NewCursor("ga::w").Follow(r, ring.Join{Class: ring.Every})
		list = append(list, b)
	}
	f := sharedFrame("m")
	r.Publish(ring.Message[delivery.Shared]{Item: delivery.Shared{Frame: f}, Size: len(f)})
	for _, b := range list {
		if !b.box.Take(&b.batch) || &b.batch.Frames[0][0] != &f[0] {
			t.Fatal("it is a copy")
		}
	}
	if s := r.Stats(); s.Messages != 0 {
		t.Errorf("what all have taken is kept: %+v", s)
	}
}
