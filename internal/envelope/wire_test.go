package envelope_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// TestLengths is at the edges where a length takes one more byte.
func TestLengths(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 0x7f, 0x80, 0x3fff, 0x4000, 0x1fffff, 0x200000} {
		text := strings.Repeat("x", n)
		e := envelope.Envelope{Source: "s", Payload: []byte(text), Subject: text, Metadata: map[string]string{text: text}, Topic: "t", Seq: uint64(n)}
		raw := e.Append(nil)
		var stored aetherv1.MessageEnvelope
		if err := proto.Unmarshal(raw, &stored); err != nil || len(stored.GetPayload()) != n || stored.GetMetadata()[text] != text || stored.GetOriginSeq() != uint64(n) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		var v envelope.View
		if err := v.Parse(raw); err != nil || string(v.Subject) != text {
			t.Fatalf("%d bytes: %v", n, err)
		}
		d := envelope.Delivery{ID: uint64(n)}
		frame := v.AppendFrame(nil, d)
		var got aetherv1.DownstreamMessage
		if err := proto.Unmarshal(frame, &got); err != nil || v.FrameSize(d) != len(frame) {
			t.Fatalf("%d bytes: a frame of %d, said to be %d, %v", n, len(frame), v.FrameSize(d), err)
		}
		if m := got.GetMsg(); m.GetSubject() != text || m.GetMetadata()[text] != text || m.GetDeliveryId() != uint64(n) {
			t.Fatalf("%d bytes: the frame is another", n)
		}
	}
}

// TestTruncated: an envelope that ends too early is none, unless what is left
// happens to be one.
func TestTruncated(t *testing.T) {
	t.Parallel()
	e := envelope.Envelope{Source: "s", Payload: make([]byte, 200), Topic: "ag::w::i::s", Origin: 1 << 60, Seq: 1 << 40, Kind: envelope.DeadLetter}
	raw := e.Append(nil)
	for n := range raw {
		var v envelope.View
		err := v.Parse(raw[:n])
		var m aetherv1.MessageEnvelope
		if want := proto.Unmarshal(raw[:n], &m); (want != nil) != (err != nil) {
			t.Errorf("the first %d bytes: %v; the generated code says %v", n, err, want)
		}
	}
}
