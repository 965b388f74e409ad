package delivery_test

import (
	"fmt"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
)

// A nacked delivery was the open hole that stops delivery, and its own
// redelivery was stopped by it: the session stood still for ever (S6, S8).
func TestS6RedeliveryClosesTheHole(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 2})
	b.stored("0", 0)
	b.want(b.take(), "0")
	n, err := b.box.Nack(1, true, "")
	if err != nil {
		t.Fatal(err)
	}
	position := uint64(1)
	for b.stored("m", position) {
		b.take()
		if err := b.box.AckOne(position + 1); err != nil {
			t.Fatal(err)
		}
		if position++; position > 1000 {
			t.Fatal("the hole stops nothing")
		}
	}
	v, _ := message("0", 1)
	if !b.in.Redeliver(n.ID, v, 0, n.Attempts) {
		t.Fatal("the redelivery waits for itself")
	}
	b.want(b.take(), "0")
	b.watermark(1<<20, -1)
	if err := b.box.AckOne(position + 1); err != nil {
		t.Fatal(err)
	}
	b.watermark(int64(position), int64(position))
	if !b.stored("m", position) {
		t.Fatal("delivery does not go on")
	}
}

// A cumulative acknowledgement passed over a delivery that had been nacked
// and was to come again: it was taken for done and never came.
func TestS8AckLeavesNacked(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	for i := range 3 {
		b.stored(fmt.Sprint(i), uint64(i))
	}
	b.want(b.take(), "0 1 2")
	n, err := b.box.Nack(2, true, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.box.Ack(3); err != nil {
		t.Fatal(err)
	}
	b.watermark(9, 0)
	v, _ := message("1", 2)
	if _, _, open := b.box.PositionOf(n.ID); !open || !b.in.Redeliver(n.ID, v, 1, n.Attempts) {
		t.Fatal("it does not come again")
	}
	b.want(b.take(), "1")
	if err := b.box.Ack(4); err != nil {
		t.Fatal(err)
	}
	b.watermark(9, 9)
}
