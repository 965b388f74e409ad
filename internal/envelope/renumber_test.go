package envelope_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// A frame that gets another delivery id is the same otherwise.
func TestRenumber(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawn(t)
		var v envelope.View
		if err := v.Parse(e.Append(nil)); err != nil {
			t.Fatal(err)
		}
		d := envelope.Delivery{
			ID: rapid.Uint64().Draw(t, "old"), Known: rapid.Bool().Draw(t, "known"), Position: rapid.Uint64().Draw(t, "position"),
		}
		frame := v.AppendFrame(nil, d)
		d.ID = rapid.Uint64().Draw(t, "new")
		var got, want aetherv1.DownstreamMessage
		if err := proto.Unmarshal(envelope.Renumber(nil, frame, d.ID), &got); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(v.AppendFrame(nil, d), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, &got, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzRenumber: no bytes make it panic, and what is no message's frame stays as
// it is.
func FuzzRenumber(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00}, uint64(3))
	f.Add([]byte{}, uint64(1))
	f.Fuzz(func(t *testing.T, frame []byte, id uint64) {
		var was, is aetherv1.DownstreamMessage
		if proto.Unmarshal(frame, &was) != nil {
			return
		}
		if err := proto.Unmarshal(envelope.Renumber(nil, frame, id), &is); err != nil {
			t.Fatal(err)
		}
	})
}
