package delivery_test

import (
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
