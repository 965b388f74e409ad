package delivery_test

import (
	"fmt"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
)

// The tail went past a message that came between the end of the mailbox and
// the last commit: the position passed it and it was never delivered.
func TestS5WatermarkAfterClose(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.in.Stop()
	b.box.Close()
	if !b.stored("m", 10) {
		t.Fatal("a closed mailbox asks to be fed again")
	}
	b.watermark(20, 9)
}

// A live delivery that the tail showed after the end of the mailbox, not
// acknowledged, got no position: the watermark passed it.
func TestS5LiveShownAfterClose(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.live("m", 5, 0, 4)
	b.want(b.take(), "m")
	b.in.Stop()
	b.box.Close()
	b.show("m", 5, 10)
	b.watermark(20, 9)
}

// Delivery rule S7: a session that ends waits for what the log will show, and
// for nothing else.
func TestS7Expecting(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	b.live("never stored", 5, 0, 4)
	if !b.in.Expecting(4) || b.in.Expecting(6) {
		t.Fatal("it waits for what was never stored")
	}
	b.in.Starve(0)
	if !b.in.Behind() || !b.in.Expecting(6) {
		t.Fatal("it has fallen back, and nobody knows yet")
	}
}

// What was acknowledged beyond a hole comes again after the session, and was
// not flagged; nor was anything after a session that read nothing of it.
func TestHanded(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	for i := range 4 {
		b.stored(fmt.Sprint(i), uint64(10+i))
	}
	b.want(b.take(), "0 1 2 3")
	for _, id := range []uint64{2, 3} {
		if err := b.box.AckOne(id); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.in.Handed(9); got != 13 {
		t.Fatalf("handed up to %d", got)
	}
	_ = b.box.Ack(4)
	if got := b.in.Handed(12); got != 13 {
		t.Fatalf("handed up to %d", got)
	}
	if got := b.in.Handed(13); got != delivery.NoPosition {
		t.Fatalf("handed up to %d, all of it done", got)
	}
	b = setup(t, delivery.Options{Mode: delivery.Client})
	b.in.Repeats = 13
	if got := b.in.Handed(9); got != 13 {
		t.Fatalf("handed up to %d", got)
	}
}

// A delivery that was acknowledged before the log showed it, behind a hole, was
// not remembered as handed out once the hole was closed.
func TestHandedBehindAHole(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	for seq := uint64(1); seq <= 2; seq++ {
		b.live(fmt.Sprint(seq), seq, 0, 0)
	}
	b.want(b.take(), "1 2")
	_ = b.box.AckOne(2)
	b.show("1", 1, 10)
	b.show("2", 2, 11)
	_ = b.box.AckOne(1)
	if got := b.in.Handed(5); got != 11 {
		t.Fatalf("handed up to %d", got)
	}
}
