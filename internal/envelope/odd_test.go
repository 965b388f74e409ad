package envelope_test

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/envelope"
)

// A length that is encoded in more bytes than it needs was copied as it was,
// and the frame was longer than announced: all frames behind it were misread.
func TestLongLengths(t *testing.T) {
	t.Parallel()
	raw := []byte{5<<3 | 2, 0x83, 0x80, 0x00, 0x0a, 0x01, 'k'}
	var v envelope.View
	if err := v.Parse(raw); err != nil {
		t.Fatal(err)
	}
	d := envelope.Delivery{ID: 1}
	if frame := v.AppendFrame(nil, d); len(frame) != v.FrameSize(d) {
		t.Fatalf("the frame has %d bytes, announced were %d", len(frame), v.FrameSize(d))
	}
}
