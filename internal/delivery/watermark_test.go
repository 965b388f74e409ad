package delivery_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
)

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
