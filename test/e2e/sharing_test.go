package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Broadcasts reach who listens now, in that workspace, and not their sender.
func testBroadcasts(t *testing.T, g *gateway) {
	ws := workspace(t)
	other := ws + "-other"
	one, two := connect(t, g, agent(ws, "i", "1")), connect(t, g, agent(ws, "i", "2"), plain)
	echoing := connect(t, g, agent(ws, "i", "echo"), echo)
	foreigner := connect(t, g, agent(other, "i", "1"))
	id := ws + "-u"
	first, second := connect(t, g, user(id, "1", ws, other)), connect(t, g, user(id, "2", ws, other), auto)
	elsewhere := connect(t, g, user(id, "3", other, ws))
	neighbour := connect(t, g, user(ws+"-v", "1", ws))
	last := connect(t, g, bridge(ws, "last"))

	one.stored("ga::"+ws, "agents from one")
	echoing.stored("ga::"+ws, "agents from echo")
	foreigner.stored("ga::"+other, "agents elsewhere")
	first.stored("ga::"+ws, "agents from a user")
	one.stored("gu::"+ws, "users from one")
	first.stored("gu::"+ws, "users from a window")
	elsewhere.stored("gu::"+other, "users elsewhere")
	one.stored("uw::"+id+"::"+ws, "windows from one")
	first.stored("uw::"+id+"::"+ws, "windows from a window")
	last.stored("uw::"+id+"::"+other, "windows elsewhere")

	wants := []struct {
		p     *peer
		texts []string
	}{
		{one, []string{"agents from echo", "agents from a user"}},
		{two, []string{"agents from one", "agents from echo", "agents from a user"}},
		{echoing, []string{"agents from one", "agents from echo", "agents from a user"}},
		{foreigner, nil},
		{first, []string{"users from one", "windows from one"}},
		{second, []string{"users from one", "users from a window", "windows from one", "windows from a window"}},
		{elsewhere, []string{"windows elsewhere"}},
		{neighbour, []string{"users from one", "users from a window"}},
	}
	// Not even those who come now get any of it.
	wants = append(wants, wants[1], wants[5])
	wants[8].p, wants[8].texts = connect(t, g, agent(ws, "i", "late")), nil
	wants[9].p, wants[9].texts = connect(t, g, user(id, "late", ws, other)), nil

	for _, space := range []string{ws, other} {
		for _, to := range []string{"ga::" + space, "gu::" + space, "uw::" + id + "::" + space} {
			last.stored(to, "last to "+to)
		}
	}
	for _, w := range wants {
		space := ws
		if w.p == foreigner || w.p == elsewhere {
			space = other
		}
		topics := []string{"ga::" + space}
		if strings.HasPrefix(w.p.name(), "us::"+id) {
			topics = []string{"gu::" + space, "uw::" + id + "::" + space}
		} else if w.p == neighbour {
			topics = []string{"gu::" + space}
		}
		var got []string
		for left := len(topics); left > 0; {
			m := w.p.read()
			if m.GetDeliveryId() != 0 || m.GetRedelivered() {
				t.Errorf("%s got a broadcast that is to be acknowledged: %v", w.p.name(), m)
			}
			if text := string(m.GetPayload()); text == "last to "+m.GetTopic() {
				left--
			} else {
				got = append(got, text)
			}
		}
		slices.Sort(got)
		slices.Sort(w.texts)
		if !slices.Equal(got, w.texts) {
			t.Errorf("%s got %q, want %q", w.p.name(), got, w.texts)
		}
	}
}

// A receipt says stored, not that somebody listens; and what nobody listened
// to is not replayed.
func testNobodyListens(t *testing.T, g *gateway) {
	ws := workspace(t)
	sender := connect(t, g, agent(ws, "i", "sender"))
	addresses := []string{"ga::" + ws, "gu::" + ws, "uw::" + ws + "::" + ws, "tb::" + ws + "::w"}
	for _, to := range addresses {
		sender.stored(to, numbered("early", 1, 20)...)
	}
	readers := []*peer{
		connect(t, g, agent(ws, "i", "r")), connect(t, g, user(ws, "w", ws)), nil, connect(t, g, task(ws, "w")),
	}
	for i, to := range addresses {
		sender.stored(to, "last")
		if readers[i] == nil {
			continue
		}
		wantTexts(t, readers[i].until("last"), nil)
	}
	wantTexts(t, readers[1].until("last"), nil) // of uw
}

// Events belong to event::{ws}, whatever the engine's instance is called.
func testEvents(t *testing.T, g *gateway) {
	ws := workspace(t)
	second := ws + "-2"
	event := func(to, text string) *aetherv1.SendMessage {
		m := chat(to, text)
		m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
		return m
	}
	bystander := connect(t, g, agent(ws, "i", "bystander"))
	sender, sender2 := connect(t, g, agent(ws, "i", "s")), connect(t, g, agent(second, "i", "s"))
	texts := numbered("e", 1, 10)
	for _, text := range texts {
		sender.accepted(event("event::"+ws, text))
	}
	// Sent before any engine ever was there.
	first := connect(t, g, engine(ws+"-a", ws, second))
	var got []*aetherv1.IncomingMessage
	for range texts {
		got = append(got, first.read())
	}
	wantTexts(t, got, texts)
	if m := got[0]; m.GetTopic() != "event::"+ws || m.GetSourceTopic() != sender.name() || m.GetDeliveryId() != 1 {
		t.Errorf("the first event is %v", m)
	}
	sender2.accepted(event("event::"+second, "other workspace"))
	if m := first.read(); string(m.GetPayload()) != "other workspace" || m.GetWorkspace() != second {
		t.Errorf("got %v", m)
	}
	first.acks(5)
	if _, err := dial(t, g, engine(ws+"-b", ws)); statusOf(err).Code() != codes.AlreadyExists {
		t.Errorf("a second engine for %s: %v, want ALREADY_EXISTS", ws, err)
	}
	first.leaves()

	// The other instance goes on where the first stopped.
	next := connect(t, g, engine(ws+"-b", ws, second))
	rest := map[string][]string{}
	for range 6 {
		m := next.read()
		rest[m.GetTopic()] = append(rest[m.GetTopic()], string(m.GetPayload()))
	}
	if !slices.Equal(rest["event::"+ws], texts[5:]) || !slices.Equal(rest["event::"+second], []string{"other workspace"}) {
		t.Errorf("the next engine got %v", rest)
	}
	next.acks(6)
	next.leaves()
	again := connect(t, g, engine(ws+"-a", ws))
	sender.accepted(event("event::"+ws, "last"))
	wantTexts(t, again.until("last"), nil)

	sender.refused("ERR_INVALID_ARGUMENT", chat("event::"+ws, "no event"))
	sender.stored("ga::"+ws, "last")
	wantTexts(t, bystander.until("last"), nil)
}

// Metrics are checked, stamped with the verified workspace, and reach the
// bridge.
func testMetrics(t *testing.T, g *gateway) {
	ws := workspace(t)
	reader := connect(t, g, metricsBridge(ws), auto)
	sender := connect(t, g, agent(ws, "i", "s"))
	service := connect(t, g, engine(ws, ws, ws+"-2"))
	entry := func() []*aetherv1.MetricEntry {
		return []*aetherv1.MetricEntry{{Name: "tokens", Kind: "count", Qty: 1.5}}
	}
	next := func() (*aetherv1.IncomingMessage, *aetherv1.Metric) {
		t.Helper()
		for {
			m := reader.read()
			if s := m.GetSourceTopic(); s != sender.name() && s != service.name() {
				continue // another test's
			}
			var content aetherv1.Metric
			check(t, proto.Unmarshal(m.GetPayload(), &content))
			return m, &content
		}
	}
	for _, to := range []string{"metric::*", "metric::" + ws} {
		sender.accepted(metric(to, &aetherv1.Metric{
			TraceId: "t", Entries: entry(), Metadata: map[string]string{"workspace": "forged", "a": "b"}, ClientTimestampMs: 7,
		}))
		m, content := next()
		want := &aetherv1.Metric{TraceId: "t", Entries: entry(), Metadata: map[string]string{"workspace": ws, "a": "b"}, ClientTimestampMs: 7}
		if !proto.Equal(content, want) || m.GetTopic() != "metric::receiver0" || m.GetWorkspace() != ws || m.GetSourceTopic() != sender.name() ||
			m.GetMessageType() != aetherv1.MessageType_MESSAGE_TYPE_METRIC || m.GetDeliveryId() != 0 {
			t.Errorf("%s came as %v with %v", to, m, content)
		}
	}
	good := func() *aetherv1.SendMessage { return metric("metric::*", &aetherv1.Metric{Entries: entry()}) }
	service.refused("ERR_INVALID_ARGUMENT", good())
	m := good()
	m.AppWorkspace = "foreign"
	service.refused("ERR_PERMISSION_DENIED", m)
	m = good()
	m.AppWorkspace = ws + "-2"
	service.accepted(m)
	if in, content := next(); content.GetMetadata()["workspace"] != ws+"-2" || in.GetWorkspace() != ws+"-2" {
		t.Errorf("stamped with %q in %q", content.GetMetadata()["workspace"], in.GetWorkspace())
	}

	many := make([]*aetherv1.MetricEntry, 1025)
	for i := range many {
		many[i] = entry()[0]
	}
	wide := map[string]string{}
	for i := range 65 {
		wide[fmt.Sprint(i)] = ""
	}
	for code, list := range map[string][]*aetherv1.SendMessage{
		"ERR_METRIC_EMPTY": {metric("metric::*", &aetherv1.Metric{}), metric("metric::*", &aetherv1.Metric{TraceId: "t"})},
		"ERR_METRIC_INVALID": {
			{TargetTopic: "metric::*", Payload: []byte("\xff\xff no metric"), MessageType: aetherv1.MessageType_MESSAGE_TYPE_METRIC},
			metric("metric::*", &aetherv1.Metric{Entries: many}),
			metric("metric::*", &aetherv1.Metric{Entries: entry(), Metadata: wide}),
		},
		"ERR_METRIC_INVALID_ENTRY": {
			metric("metric::*", &aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Qty: 1}}}),
			metric("metric::*", &aetherv1.Metric{Entries: append(entry(), &aetherv1.MetricEntry{Name: "n", Qty: math.NaN()})}),
			metric("metric::*", &aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "n", Qty: math.Inf(-1)}}}),
		},
		"ERR_INVALID_ARGUMENT": {chat("metric::*", "a chat"), fittingAs("metric::*", aetherv1.MessageType_MESSAGE_TYPE_UNSPECIFIED)},
	} {
		for _, m := range list {
			sender.refused(code, m)
		}
	}
	many = many[:1024]
	sender.accepted(metric("metric::*", &aetherv1.Metric{Entries: many}))
	if _, content := next(); len(content.GetEntries()) != 1024 {
		t.Errorf("a metric with 1024 entries came with %d; or a refused one was delivered", len(content.GetEntries()))
	}
}

func fittingAs(to string, kind aetherv1.MessageType) *aetherv1.SendMessage {
	m := fitting("metric", to)
	m.MessageType = kind
	return m
}
