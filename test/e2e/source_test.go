package e2e

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// lie is what forged fields say.
const lie = "ag::forged::by::client"

// foreign appends fields that a message does not have, with the numbers and
// types of an envelope's: source, timestamp, workspace, origin and all.
func foreign(m proto.Message) {
	known := m.ProtoReflect().Descriptor().Fields()
	var raw []byte
	for n := protowire.Number(1); n < 130; n++ {
		if known.ByNumber(n) != nil {
			continue
		}
		raw = protowire.AppendTag(raw, n, protowire.BytesType)
		raw = protowire.AppendString(raw, lie)
		if n > 100 {
			raw = protowire.AppendTag(raw, n, protowire.VarintType)
			raw = protowire.AppendVarint(raw, 1)
			raw = protowire.AppendTag(raw, n, protowire.Fixed64Type)
			raw = protowire.AppendFixed64(raw, 1)
		}
	}
	m.ProtoReflect().SetUnknown(raw)
}

// Whatever a client sends, source, time, workspace and topic are the
// gateway's, live and from the log.
func testSource(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	for _, from := range []identity{
		agent(ws, "i", "sender"), uniqueTask(ws, "i", "sender"), task(ws, "i"), user(ws, "w", ws, ws+"-2"),
		engine(ws, ws), orchestrator(ws, "o", ws), service(ws, "s", ws), bridge(ws, "b"),
	} {
		begun := time.Now()
		sender := connect(t, g, from)
		forge := func(text string) *aetherv1.SendMessage {
			m := chat(to.name, text)
			m.MessageId = text + " of " + sender.name()
			m.Metadata = map[string]string{
				"source": lie, "source_topic": lie, "timestamp_ms": "1", "workspace": lie, "origin": "1", "origin_seq": "1", "topic": lie,
				"correlation-id": "c",
			}
			m.Subject = "a.v1.b"
			foreign(m)
			return m
		}
		send := func(m *aetherv1.SendMessage) {
			t.Helper()
			m.RequestId = sender.request()
			frame := &up{Payload: &aetherv1.UpstreamMessage_Send{Send: m}}
			foreign(frame)
			check(t, sender.stream.Send(frame))
			receipt, refusal, err := sender.answer(m.RequestId)
			check(t, err)
			if refusal != nil || receipt.GetMessageId() != m.GetMessageId() || receipt.GetDuplicate() {
				t.Fatalf("%s: %v, %v", sender.name(), receipt, refusal)
			}
		}
		verify := func(m *aetherv1.IncomingMessage, text string) {
			t.Helper()
			sent := forge(text)
			raw, err := proto.Marshal(m)
			check(t, err)
			for key, value := range sent.GetMetadata() {
				if m.GetMetadata()[key] == value && value == lie {
					raw = bytes.Replace(raw, []byte(lie), nil, 1) // the client's own metadata
				}
			}
			if bytes.Contains(raw, []byte(lie)) || len(m.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("%s: forged fields were passed on: %v", sender.name(), m)
			}
			at := time.UnixMilli(m.GetTimestampMs())
			switch {
			case string(m.GetPayload()) != text, m.GetMessageType() != sent.GetMessageType(), m.GetSubject() != sent.GetSubject(),
				m.GetMessageId() != sent.GetMessageId(), !maps.Equal(m.GetMetadata(), sent.GetMetadata()):
				t.Errorf("%s: %v is not what was sent", sender.name(), m)
			case m.GetSourceTopic() != sender.name(), m.GetWorkspace() != ws, m.GetTopic() != to.name, m.GetOnBehalfSubject() != nil:
				t.Errorf("%s: stamped as from %q in %q to %q", sender.name(), m.GetSourceTopic(), m.GetWorkspace(), m.GetTopic())
			case at.Before(begun.Add(-time.Second)) || at.After(time.Now().Add(time.Second)):
				t.Errorf("%s: stamped with the time %v", sender.name(), at)
			}
		}
		// From the log, then by the tail, then live.
		send(forge("stored"))
		receiver := reconnect(t, g, to)
		verify(receiver.read(), "stored")
		for _, text := range []string{"by tail", "live"} {
			send(forge(text))
			verify(receiver.read(), text)
		}
		receiver.acks(3)
		receiver.leaves()
		sender.leaves()
	}
}

// What would speak for somebody else is refused, not ignored.
func testSourceClaims(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, agent(ws, "i", "sender"))

	m := chat(to.name, "reserved")
	m.Metadata = map[string]string{"aether-source": lie}
	sender.refused("ERR_INVALID_ARGUMENT", m)

	m = chat(to.name, "other workspace")
	m.AppWorkspace = "other"
	sender.refused("ERR_PERMISSION_DENIED", m)

	// An envelope as payload stays a payload.
	envelope, err := proto.Marshal(&aetherv1.MessageEnvelope{Source: lie, Payload: []byte("x"), Workspace: lie, Topic: "ag::forged::i::s", Origin: 1})
	check(t, err)
	m = chat(to.name, string(envelope))
	sender.accepted(m)
	receiver := connect(t, g, to)
	if got := receiver.read(); got.GetSourceTopic() != sender.name() || !bytes.Equal(got.GetPayload(), envelope) {
		t.Errorf("an envelope sent as payload came as %v", got)
	}

	// A message without an id gets one, and each another.
	first, second := sender.accepted(chat(to.name, "1")), sender.accepted(chat(to.name, "2"))
	one, two := receiver.read(), receiver.read()
	if one.GetMessageId() == "" || one.GetMessageId() == two.GetMessageId() ||
		one.GetMessageId() != first.GetMessageId() || two.GetMessageId() != second.GetMessageId() {
		t.Errorf("message ids %q and %q, receipts say %q and %q", one.GetMessageId(), two.GetMessageId(), first.GetMessageId(), second.GetMessageId())
	}
}
