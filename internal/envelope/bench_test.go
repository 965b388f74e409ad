package envelope_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// typical is an envelope as most are: a payload of 256 bytes, no metadata.
func typical() envelope.Envelope {
	return envelope.Envelope{
		Source: "us::somebody::window-1", Payload: bytes.Repeat([]byte("p"), 256), Type: 1, TimestampMS: 1_760_000_000_000,
		Workspace: "workspace", MessageID: "0199c7f4-9a3e-7b61-8f2a-4d5e6f708192", Topic: "ag::workspace::echo::1",
		Origin: 1<<63 | 12345, Seq: 1_000_000,
	}
}

func BenchmarkAppend(b *testing.B) {
	e := typical()
	buf := e.Append(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = e.Append(buf[:0])
	}
}

func BenchmarkParse(b *testing.B) {
	e := typical()
	raw := e.Append(nil)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	var v envelope.View
	for b.Loop() {
		if err := v.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFrame(b *testing.B) {
	e := typical()
	var v envelope.View
	if err := v.Parse(e.Append(nil)); err != nil {
		b.Fatal(err)
	}
	d := envelope.Delivery{ID: 1000, Position: 1 << 30, Known: true}
	buf := v.AppendFrame(nil, d)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if v.FrameSize(d) == 0 {
			b.Fatal("a frame without bytes")
		}
		buf = v.AppendFrame(buf[:0], d)
	}
}

// BenchmarkGenerated is what the generated code needs for the same two steps,
// for comparison.
func BenchmarkGenerated(b *testing.B) {
	e := typical()
	stored := generated(&e)
	b.ReportAllocs()
	for b.Loop() {
		raw, err := proto.Marshal(stored)
		if err != nil {
			b.Fatal(err)
		}
		var m aetherv1.MessageEnvelope
		if err := proto.Unmarshal(raw, &m); err != nil {
			b.Fatal(err)
		}
	}
}
