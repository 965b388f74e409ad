package server

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// sendWith encodes a send whose fields need not be text.
func sendWith(target, requestID string) []byte {
	var b []byte
	b = protowire.AppendTag(b, fieldTarget, protowire.BytesType)
	b = protowire.AppendString(b, target)
	b = protowire.AppendTag(b, fieldRequestID, protowire.BytesType)
	b = protowire.AppendString(b, requestID)
	out := protowire.AppendTag(nil, fieldSend, protowire.BytesType)
	return protowire.AppendBytes(out, b)
}

// A text that is no UTF-8 once ended the whole stream with INTERNAL.
func TestMalformed(t *testing.T) {
	t.Parallel()
	c := newCodec()
	for _, x := range []struct {
		name      string
		frame     []byte
		malformed bool
		topic     bool
		id        string
	}{
		{"good", sendWith("ag::w::i::s", "r"), false, false, ""},
		{"target", sendWith("ag::\xff", "r"), true, true, "r"},
		{"request id", sendWith("ag::w::i::s", "\xff"), true, false, ""},
		{"cut short", sendWith("ag::w::i::s", "r")[:9], true, false, ""},
		{"garbage", []byte{0xff, 0xff, 0xff}, true, false, ""},
	} {
		var in inbound
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(x.frame)}, &in); err != nil {
			t.Fatal(err)
		}
		if (in.malformed != nil) != x.malformed {
			t.Fatalf("%s: %v", x.name, in.malformed)
		}
		if e := in.malformed; e != nil && (e.Topic != x.topic || e.RequestID != x.id) {
			t.Errorf("%s: %+v", x.name, e)
		}
	}
}

func FuzzMalformed(f *testing.F) {
	f.Add(sendWith("ag::w::i::s", "r"))
	f.Add(sendWith("\xff", "\xff"))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var in inbound
		if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &in); err != nil {
			t.Fatal(err)
		}
		if taken := proto.Unmarshal(b, new(aetherv1.UpstreamMessage)) == nil; taken != (in.malformed == nil) {
			t.Fatalf("protobuf takes it: %v; malformed: %v", taken, in.malformed)
		}
	})
}

// A frame that is encoded goes out as it is; a small one in a small buffer.
func TestFrame(t *testing.T) {
	t.Parallel()
	c := newCodec()
	for _, size := range []int{0, 1, smallBuffer, smallBuffer + 1, 1 << 20} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(i)
		}
		out, err := c.Marshal(&frame{b})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Materialize(); string(got) != string(b) {
			t.Fatalf("%d bytes came out as %d others", size, len(got))
		}
		out.Free()
	}
}
