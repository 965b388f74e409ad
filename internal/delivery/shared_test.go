package delivery_test

import (
	"fmt"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
)

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
