package e2e

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A text that is not UTF-8 cannot be written by a proto3 client, but by an
// attacker: it is the client's fault, and only that stream's end.
func testNotUTF8(t *testing.T, g *gateway) {
	ws := workspace(t)
	neighbour := connect(t, g, agent(ws, "i", "neighbour"))
	for _, field := range []protowire.Number{1, 100, 101, 103} {
		p := reconnect(t, g, agent(ws, "i", "s"))
		m := chat(neighbour.name(), "bad")
		m.RequestId = "r"
		raw, err := proto.Marshal(m)
		check(t, err)
		raw = protowire.AppendTag(raw, field, protowire.BytesType)
		raw = protowire.AppendString(raw, "ag::\xff\xfe::i::s")
		frame := &up{}
		// Field 2 of the frame is the send.
		frame.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), raw))
		check(t, p.stream.Send(frame))
		answer, err := p.await(func(m *down) bool { return m.GetError() != nil || m.GetReceipt() != nil })
		switch code := statusOf(err).Code(); {
		case err == nil && answer.GetError().GetCode() == "ERR_INTERNAL", err == nil && answer.GetReceipt() != nil:
			t.Errorf("field %d: answered with %v", field, answer)
		case err != nil && code != codes.InvalidArgument:
			t.Errorf("field %d: the stream ended with %v, want INVALID_ARGUMENT", field, err)
		}
		p.cut()
		neighbour.stored(neighbour.name(), "last")
		wantTexts(t, neighbour.until("last"), nil)
	}
}
