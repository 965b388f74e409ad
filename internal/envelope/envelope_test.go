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

func drawn(t *rapid.T) envelope.Envelope {
	text := rapid.StringN(0, 20, 60)
	e := envelope.Envelope{
		Source: text.Draw(t, "source"), Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
		Type: rapid.Int32Range(0, 6).Draw(t, "type"), TimestampMS: rapid.Int64().Draw(t, "timestamp"),
		Metadata:  rapid.MapOfN(text, text, 0, 4).Draw(t, "metadata"),
		Workspace: text.Draw(t, "workspace"), MessageID: text.Draw(t, "id"), Subject: text.Draw(t, "subject"),
		Topic: text.Draw(t, "topic"), Origin: rapid.Uint64().Draw(t, "origin"), Seq: rapid.Uint64().Draw(t, "seq"),
		ExpiresAtMS: rapid.Int64().Draw(t, "expires"), Kind: envelope.Kind(rapid.IntRange(0, 3).Draw(t, "kind")), Drawn: rapid.Bool().Draw(t, "drawn"),
		Era: rapid.Uint32().Draw(t, "era"), Tracking: rapid.Uint8Range(0, 3).Draw(t, "tracking"), UntilMS: rapid.Int64().Draw(t, "until"),
	}
	if rapid.Bool().Draw(t, "for another") {
		e.OnBehalf, _ = proto.Marshal(&aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: text.Draw(t, "for whom")})
	}
	if len(e.Payload) == 0 {
		e.Payload = nil
	}
	if len(e.Metadata) == 0 {
		e.Metadata = nil
	}
	return e
}

func onBehalf(e *envelope.Envelope) *aetherv1.PrincipalRef {
	var r aetherv1.PrincipalRef
	if e.OnBehalf == nil || proto.Unmarshal(e.OnBehalf, &r) != nil {
		return nil
	}
	return &r
}

func generated(e *envelope.Envelope) *aetherv1.MessageEnvelope {
	return &aetherv1.MessageEnvelope{
		OnBehalfSubject: onBehalf(e),
		Source:          e.Source, Payload: e.Payload, MessageType: aetherv1.MessageType(e.Type), TimestampMs: e.TimestampMS,
		Metadata: e.Metadata, Workspace: e.Workspace, MessageId: e.MessageID, Subject: e.Subject, Topic: e.Topic,
		Origin: e.Origin, OriginSeq: e.Seq, ExpiresAtMs: e.ExpiresAtMS, Kind: aetherv1.MessageEnvelope_Kind(e.Kind), MessageIdDrawn: e.Drawn, WorkspaceEra: e.Era,
		Tracking: aetherv1.TrackingMode(e.Tracking), TrackedUntilMs: e.UntilMS,
	}
}

// What is appended by hand is what the generated code would have written, and
// what is read by hand is what it would have read.
func TestSameAsGenerated(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawn(t)
		want := generated(&e)
		var got aetherv1.MessageEnvelope
		if err := proto.Unmarshal(e.Append(nil), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}

		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var v envelope.View
		if err := v.Parse(b); err != nil {
			t.Fatal(err)
		}
		d := envelope.Delivery{
			ID: rapid.Uint64().Draw(t, "delivery"), Position: rapid.Uint64().Draw(t, "position"),
			Known: rapid.Bool().Draw(t, "known"), Redelivered: rapid.Bool().Draw(t, "redelivered"),
		}
		checkFrame(t, &v, &e, d)
	})
}

func checkFrame(t *rapid.T, v *envelope.View, e *envelope.Envelope, d envelope.Delivery) {
	frame := v.AppendFrame(nil, d)
	if n := v.FrameSize(d); n != len(frame) {
		t.Fatalf("the size is said to be %d and is %d", n, len(frame))
	}
	want := &aetherv1.IncomingMessage{
		OnBehalfSubject: onBehalf(e),
		SourceTopic:     e.Source, Payload: e.Payload, MessageType: aetherv1.MessageType(e.Type), Workspace: e.Workspace,
		MessageId: e.MessageID, TimestampMs: e.TimestampMS, Topic: e.Topic, DeliveryId: d.ID,
		Redelivered: d.Redelivered, Subject: e.Subject, Metadata: e.Metadata,
	}
	if d.Known {
		want.Position = &d.Position
	}
	var got aetherv1.DownstreamMessage
	if err := proto.Unmarshal(frame, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.GetMsg(), protocmp.Transform()); diff != "" {
		t.Fatal(diff)
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expires, now int64
		want         bool
	}{{0, 1 << 40, false}, {1000, 1000, false}, {1000, 1001, true}} {
		v := envelope.View{ExpiresAtMS: c.expires}
		if got := v.Expired(c.now); got != c.want {
			t.Errorf("expires at %d, now %d: %v", c.expires, c.now, got)
		}
	}
}

// FuzzParse: no bytes make Parse panic, and what it takes makes a frame that
// the generated code can read.
func FuzzParse(f *testing.F) {
	e := envelope.Envelope{Source: "ag::w::i::s", Payload: []byte("x"), Type: 1, Metadata: map[string]string{"k": "v"}, Topic: "ag::w::i::t", Origin: 7, Seq: 9}
	f.Add(e.Append(nil))
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		var v envelope.View
		err := v.Parse(b)
		var reference aetherv1.MessageEnvelope
		if proto.Unmarshal(b, &reference) != nil {
			return // it also refuses text that is no UTF-8
		}
		if err != nil {
			t.Fatalf("the generated code reads it: %v", err)
		}
		for key, want := range reference.GetMetadata() {
			if value, ok := v.Meta(key); !ok || string(value) != want {
				t.Fatalf("the metadata %q is %q, not %q", key, value, want)
			}
		}
		frame := v.AppendFrame(nil, envelope.Delivery{ID: 1})
		var got aetherv1.DownstreamMessage
		if err := proto.Unmarshal(frame, &got); err != nil {
			t.Fatalf("the frame cannot be read: %v", err)
		}
		if n := v.FrameSize(envelope.Delivery{ID: 1}); n != len(frame) {
			t.Fatalf("the size is said to be %d and is %d", n, len(frame))
		}
	})
}

func TestNoAllocations(t *testing.T) {
	e := envelope.Envelope{Source: "ag::w::i::s", Payload: make([]byte, 256), Type: 1, TimestampMS: 1, Workspace: "w", MessageID: "m", Topic: "ag::w::i::t", Origin: 7, Seq: 9}
	buf, frame := make([]byte, 0, 1024), make([]byte, 0, 1024)
	var v envelope.View
	n := testing.AllocsPerRun(100, func() {
		buf = e.Append(buf[:0])
		if v.Parse(buf) != nil {
			t.Fatal("malformed")
		}
		frame = v.AppendFrame(frame[:0], envelope.Delivery{ID: 1, Position: 5, Known: true})
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
