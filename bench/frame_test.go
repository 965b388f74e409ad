package main

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, ids := range []bool{false, true} {
		tmpl, err := newTemplate("ag::w::i::s", 256, 7, ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, number := range []uint64{1, 1<<40 - 1} {
			tmpl.fill(number, 99)
			var up aetherv1.UpstreamMessage
			if err := proto.Unmarshal(tmpl.b, &up); err != nil {
				t.Fatal(err)
			}
			send := up.GetSend()
			var s stamp
			if err := s.read(send.GetPayload()); err != nil || s != (stamp{7, number, 99}) {
				t.Errorf("%+v, %v", s, err)
			}
			if got, err := readID([]byte(send.GetRequestId())); err != nil || got != number {
				t.Errorf("request id %q: %d, %v", send.GetRequestId(), got, err)
			}
			if len(send.GetPayload()) != 256 || send.GetTargetTopic() != "ag::w::i::s" || (send.GetMessageId() != "") != ids {
				t.Errorf("got %v", send)
			}
		}
	}
}

func TestNotice(t *testing.T) {
	t.Parallel()
	payload := make([]byte, 64)
	stamp{1, 2, 3}.write(payload)
	for _, c := range []struct {
		name  string
		frame *aetherv1.DownstreamMessage
		want  notice
	}{
		{
			"message", &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
				SourceTopic: "ag::w::i::s", Payload: payload, DeliveryId: 9, Topic: "ag::w::i::r", Position: proto.Uint64(0),
			}}},
			notice{kind: noticeMessage, load: stamp{1, 2, 3}, deliveryID: 9},
		},
		{
			"receipt", &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{
				RequestId: "00000000000000ff", MessageId: "m", Status: aetherv1.SendReceipt_STATUS_STORED,
			}}},
			notice{kind: noticeReceipt, number: 255, stored: true},
		},
		{
			"ack", &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: &aetherv1.ConnectionAck{SessionId: "s"}}},
			notice{kind: noticeAck},
		},
		{
			"error", &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Error{Error: &aetherv1.ErrorResponse{Code: "C", Message: "m"}}},
			notice{kind: noticeError, text: "C: m"},
		},
		{
			"another", &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{SentAtMs: 1}}},
			notice{},
		},
	} {
		b, err := proto.Marshal(c.frame)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{0, len(b) / 2} { // in one buffer, and in two
			data := mem.BufferSlice{mem.SliceBuffer(b)}
			if cut > 0 {
				data = mem.BufferSlice{mem.SliceBuffer(b[:cut]), mem.SliceBuffer(b[cut:])}
			}
			got := notice{text: "of the last frame", deliveryID: 1}
			if err := newCodec().Unmarshal(data, &got); err != nil || got != c.want {
				t.Errorf("%s: %+v, %v", c.name, got, err)
			}
		}
	}
}

func TestAppendAck(t *testing.T) {
	t.Parallel()
	for _, id := range []uint64{1, 127, 128, 1 << 40} {
		var up aetherv1.UpstreamMessage
		if err := proto.Unmarshal(appendAck(nil, id), &up); err != nil || up.GetAck().GetUpTo() != id {
			t.Errorf("ack of %d: %v, %v", id, up.GetAck(), err)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	b := make([]byte, idSize)
	for _, n := range []uint64{0, 1, 1 << 63} {
		writeID(b, n)
		if got, err := readID(b); err != nil || got != n {
			t.Errorf("%d became %q, %d, %v", n, b, got, err)
		}
	}
	for _, bad := range []string{"", "0", "00000000000000FF", "000000000000000g"} {
		if _, err := readID([]byte(bad)); err == nil {
			t.Errorf("%q is an id", bad)
		}
	}
}

func FuzzNotice(f *testing.F) {
	b, err := proto.Marshal(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{Payload: bytes.Repeat([]byte{1}, 64), DeliveryId: 3}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var n notice
		_ = n.parse(b)
	})
}
