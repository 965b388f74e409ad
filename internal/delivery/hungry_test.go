package delivery_test

import (
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
)

// An inbox that waited for room for a large message was fed again and again
// while there was only some room: its pump spun until the client acknowledged.
func TestHungryWaitsForEnoughRoom(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 1, QueueBytes: 1000})
	large := strings.Repeat("x", 950)
	b.stored("1", 0)
	b.stored("2", 1)
	b.want(b.take(), "1")
	if b.stored(large, 2) {
		t.Fatal("it fits: the test shows nothing")
	}
	b.in.Starve(1)
	b.want(b.take(), "")
	if err := b.box.Ack(1); err != nil {
		t.Fatal(err)
	}
	b.want(b.take(), "2 feed")
	if !b.stored(large, 2) {
		t.Fatal("it was fed too early")
	}
}

// A worker whose session sends its last answers takes no more work.
func TestLeavingWorkerIsNotWilling(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client})
	if _, willing := b.box.Load(100); !willing {
		t.Fatal("it is not willing")
	}
	b.box.OnlyAnswers()
	if _, willing := b.box.Load(100); willing {
		t.Fatal("it is willing")
	}
}

// What was never sent to a worker was not delivered to it.
func TestUnfinishedAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t, delivery.Options{Mode: delivery.Client, MaxUnacked: 1})
	b.stored("1", 0)
	b.stored("2", 1)
	b.want(b.take(), "1")
	list := b.in.Unfinished()
	if len(list) != 2 || list[0].Attempts != 1 || list[1].Attempts != 0 {
		t.Fatalf("got %v", list)
	}
}
