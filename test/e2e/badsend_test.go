package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Every bad send gets one typed error with its request id, the stream goes on,
// and nothing of it is stored.
func testBadSends(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	p := connect(t, g, bridge(ws, "b")) // may send everywhere: what is refused is refused for its form

	long := strings.Repeat("x", 128)
	for _, topic := range []string{
		"", ":", "::", "ag", "ag::", "ag::" + ws, "ag::" + ws + "::i", "ag::" + ws + "::i::s::t", "ag::::i::s", "::ag::" + ws + "::i::s", "ag:" + ws + ":i:s",
		"ag::" + ws + "::i::", "AG::" + ws + "::i::s", " ag::" + ws + "::i::s", "ag::" + ws + "::i::s ", "ag::" + ws + "::i s::t", "ag::" + ws + "::i::a\tb",
		"ag::" + ws + "::i::a\nb", "ag::" + ws + "::i::a\x00b", "ag::" + ws + "::i::\u00a0", "ag::" + ws + "::i::a\u2028b", "ag::" + ws + "::i::a\u0085b",
		"ag::" + ws + "::i::*", "ag::*::i::s", "ga::*", "ga::#", "ga::>", "ga::a>b", "event::*", "metric", "metric::", "metric::*::x", "metric::**",
		"ag::" + ws + "::i:::s", "ag::" + ws + ":::i::s", "ag::" + ws + "::i::s:", "ag::" + ws + "::i:::",
		"ag::receiver0::i::s", "ga::receiver12", "metric::receiver1", "pg::receiver0", "xx::" + ws, "orc::i::s", "wfe::1", "metrics::1",
		"us::u", "us::u::w::x", "uw::u", "tb::" + ws, "tb::" + ws + "::i::s", "sv::i", "br::i", "ga::" + ws + "::x", "ag." + ws + ".i.s",
		"ag::" + ws + "::i::" + long + "y", "ag::" + long + "y::i::s", "sv::" + long + "::" + long, // 4 + 128 + 2 + 128 = 262 characters
		"ga::" + strings.Repeat("\u00e4", 65), "ag::" + strings.Repeat("x", 253), strings.Repeat("a", 255), strings.Repeat("a", 256), strings.Repeat("a", 257),
		strings.Repeat("x", 100_000), strings.Repeat("::", 100), "ag::" + ws + "::i::" + strings.Repeat("é", 200),
	} {
		p.refused("ERR_INVALID_TOPIC", chat(topic, "bad"))
	}
	// The longest that are good.
	for _, topic := range []string{"sv::" + long + "::" + long[:122], "ga::" + strings.Repeat("\u00e4", 64), "ag::" + ws + "::i::a:b", "ag::" + ws + "::i::é\u00df"} {
		p.accepted(chat(topic, "good"))
	}

	change := func(f func(*aetherv1.SendMessage)) *aetherv1.SendMessage {
		m := chat(to.name, "bad")
		f(m)
		return m
	}
	metadata := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(i)] = "v"
		}
		return m
	}
	for code, list := range map[string][]*aetherv1.SendMessage{
		"ERR_INVALID_ARGUMENT": {
			change(func(m *aetherv1.SendMessage) { m.MessageType = 7 }),
			change(func(m *aetherv1.SendMessage) { m.MessageType = 1 << 30 }),
			change(func(m *aetherv1.SendMessage) { m.MessageType = -1 }),
			change(func(m *aetherv1.SendMessage) { m.Tracking = &aetherv1.Tracking{Mode: 9} }),
			change(func(m *aetherv1.SendMessage) { m.Tracking = &aetherv1.Tracking{Mode: -1} }),
			change(func(m *aetherv1.SendMessage) { m.MessageId = strings.Repeat("i", 65) }),
			change(func(m *aetherv1.SendMessage) { m.TtlMs = -1 }),
			change(func(m *aetherv1.SendMessage) { m.Metadata = metadata(65) }),
			change(func(m *aetherv1.SendMessage) { m.Metadata = map[string]string{"k": strings.Repeat("v", 16<<10)} }),
			change(func(m *aetherv1.SendMessage) { m.Metadata = map[string]string{"aether-hops": "1"} }),
		},
		"ERR_INVALID_TOPIC": {
			change(func(m *aetherv1.SendMessage) { m.Subject = "a..b" }),
			change(func(m *aetherv1.SendMessage) { m.Subject = "." }),
			change(func(m *aetherv1.SendMessage) { m.Subject = "a." }),
			change(func(m *aetherv1.SendMessage) { m.Subject = strings.Repeat("a", 257) }),
			change(func(m *aetherv1.SendMessage) { m.Subject = strings.Repeat("a.", 20) + "a" }),
		},
		"ERR_PAYLOAD_TOO_LARGE": {
			chat(to.name, strings.Repeat("x", 1_000_001)),
			chat(to.name, strings.Repeat("x", 4_000_000)),
		},
	} {
		for i, m := range list {
			refusal := p.refused(code, m)
			if refusal.GetRetryable() {
				t.Errorf("%s, number %d, is called retryable", code, i)
			}
			if code == "ERR_PAYLOAD_TOO_LARGE" && (refusal.GetDetails()["limit"] != "1000000" || refusal.GetDetails()["size"] != fmt.Sprint(len(m.GetPayload()))) {
				t.Errorf("%s has the details %v", code, refusal.GetDetails())
			}
		}
	}
	// FIRST and ALL without a request id: the error has none either.
	m := change(func(m *aetherv1.SendMessage) {
		m.Tracking = &aetherv1.Tracking{Mode: aetherv1.TrackingMode_TRACKING_MODE_FIRST}
	})
	check(t, p.send(m))
	p.errorOf("ERR_INVALID_ARGUMENT")
	// Errors come also to who did not ask for a receipt.
	check(t, p.send(chat("nonsense", "bad")))
	p.errorOf("ERR_INVALID_TOPIC")

	// The limits themselves are fine, and type 0 means OPAQUE.
	good := []*aetherv1.SendMessage{
		chat(to.name, strings.Repeat("x", 1_000_000)),
		change(func(m *aetherv1.SendMessage) {
			m.MessageId, m.Subject, m.Metadata = strings.Repeat("i", 64), strings.Repeat("a.", 19)+"a", metadata(64)
		}),
		change(func(m *aetherv1.SendMessage) { m.Payload, m.MessageType = nil, 0 }),
	}
	for _, m := range good {
		p.accepted(m)
	}
	p.stored(to.name, "last")
	receiver := connect(t, g, to)
	got := receiver.until("last")
	if len(got) != len(good) {
		t.Fatalf("%d messages came, want the %d good ones", len(got), len(good))
	}
	for i, m := range got {
		if !slices.Equal(m.GetPayload(), good[i].GetPayload()) {
			t.Errorf("message %d came with %d bytes", i, len(m.GetPayload()))
		}
	}
	if m := got[2]; m.GetMessageType() != aetherv1.MessageType_MESSAGE_TYPE_OPAQUE {
		t.Errorf("type 0 came as %v", m.GetMessageType())
	}
}

// Frames that the gateway cannot use are answered; the stream goes on.
func testBadFrames(t *testing.T, g *gateway) {
	ws := workspace(t)
	p := connect(t, g, agent(ws, "i", "s"))
	bad := func(code, request string, f *up) {
		t.Helper()
		check(t, p.stream.Send(f))
		m, err := p.await(func(m *down) bool { return m.GetError() != nil })
		check(t, err)
		if e := m.GetError(); e.GetCode() != code || e.GetRequestId() != request || e.GetMessage() == "" {
			t.Errorf("%v is answered with %v, want %s for %q", f, e, code, request)
		}
	}
	bad("ERR_INVALID_ARGUMENT", "", &up{})
	unknown := &up{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "x"))
	bad("ERR_INVALID_ARGUMENT", "", unknown)
	bad("ERR_INVALID_ARGUMENT", "", &up{Batch: []*up{{Payload: &aetherv1.UpstreamMessage_Send{Send: chat("ga::"+ws, "in a batch")}}}})
	const unsupported = "ERR_NOT_IMPLEMENTED"
	bad(unsupported, "", &up{Payload: &aetherv1.UpstreamMessage_TunnelOpen{TunnelOpen: &aetherv1.TunnelOpen{}}})
	bad(unsupported, "", &up{Payload: &aetherv1.UpstreamMessage_ProxyHttpRequest{ProxyHttpRequest: &aetherv1.ProxyHttpRequest{}}})
	p.stored(p.name(), "still here")
	if m := p.read(); string(m.GetPayload()) != "still here" {
		t.Errorf("got %v", m)
	}

	// A frame beyond the transport's limit ends its stream, and nobody else's.
	w := connect(t, g, agent(ws, "i", "large"))
	check(t, w.send(chat(p.name(), strings.Repeat("x", 4<<20))))
	wantStatus(t, "a frame of more than 4 MiB", w.end(), codes.ResourceExhausted)
	p.stored(p.name(), "after the large one")
	if m := p.read(); string(m.GetPayload()) != "after the large one" {
		t.Errorf("got %v", m)
	}
}

// A message id that was used is stored once, with one answer for each attempt.
func testRepeats(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	receiver := connect(t, g, to)
	sender := connect(t, g, user(ws, "w", ws))
	withID := func(topic, id, text string) *aetherv1.SendMessage {
		m := chat(topic, text)
		m.MessageId = id
		return m
	}
	for i := range 3 {
		receipt := sender.accepted(withID(to.name, "one", "first"))
		if receipt.GetDuplicate() != (i > 0) || receipt.GetMessageId() != "one" {
			t.Errorf("attempt %d has the receipt %v", i+1, receipt)
		}
	}
	sender.refused("ERR_INVALID_ARGUMENT", withID(to.name, "one", "another text"))
	// Pipelined, while the first is on its way.
	var requests []string
	for range 10 {
		m := withID(to.name, "two", "second")
		m.RequestId = sender.request()
		requests = append(requests, m.RequestId)
		check(t, sender.send(m))
	}
	firsts := 0
	for _, r := range requests {
		receipt, refusal, err := sender.answer(r)
		check(t, err)
		if refusal != nil {
			t.Errorf("a repeat is refused: %v", refusal)
		} else if !receipt.GetDuplicate() {
			firsts++
		}
	}
	if firsts != 1 {
		t.Errorf("%d of 10 sends with one id are called the first", firsts)
	}
	// The id belongs to the sender and the address; it lives longer than a
	// connection.
	other := connect(t, g, agent(ws, "i", "other"))
	if other.accepted(withID(to.name, "one", "of another")).GetDuplicate() {
		t.Error("another sender's id counts as a repeat")
	}
	if sender.accepted(withID("ag::"+ws+"::i::t", "one", "first")).GetDuplicate() {
		t.Error("the id at another address counts as a repeat")
	}
	sender.leaves()
	sender = connect(t, g, user(ws, "w", ws))
	if !sender.accepted(withID(to.name, "one", "first")).GetDuplicate() {
		t.Error("the repeat over a new connection is not recognised")
	}
	sender.stored(to.name, "last")
	got := texts(receiver.until("last"))
	slices.Sort(got)
	if want := []string{"first", "of another", "second"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A message that is too old when its turn comes is not delivered any more.
func testExpiredMessages(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	short := chat(to.name, "short")
	short.TtlMs = 300
	long := chat(to.name, "long")
	long.TtlMs = 3_600_000
	sender.accepted(short)
	sender.accepted(long)
	sender.beats(2) // at least a second
	receiver := connect(t, g, to)
	sender.stored(to.name, "last")
	wantTexts(t, receiver.until("last"), []string{"long"})
}
