package delivery_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
)

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
