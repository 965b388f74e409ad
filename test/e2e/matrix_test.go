package e2e

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// prefixes are the columns of the tables below.
var prefixes = []string{"ag", "ga", "tu", "ta", "tb", "us", "uw", "gu", "event", "metric", "pg", "sv", "br"}

// The permission matrix and the workspace rule, written by hand from their
// definition. + may send, - may not, . there is no such address. "own" is the
// sender's workspace or one that its credential covers; "none" are addresses
// that name no workspace: a user who is in none, metric::*, sv and br.
var matrix = []struct{ sender, own, other, none string }{
	{"agent           ", "++++++++++-..", "-----------..", ".....-...+.--"},
	{"unique task     ", "++++++++++-..", "-----------..", ".....-...+.--"},
	{"non-unique task ", "++++++++++-..", "-----------..", ".....-...+.--"},
	{"user            ", "++++++++---..", "-----------..", ".....-...-.--"},
	{"workflow engine ", "++++++++++-..", "-----------..", ".....-...+.--"},
	{"metrics bridge  ", "-----------..", "-----------..", ".....-...-.--"},
	{"orchestrator    ", "+++++------..", "-----------..", ".....-...-.--"},
	{"service         ", "+++++------..", "-----------..", ".....-...-.--"},
	{"bridge          ", "+++++++++++..", "+++++++++++..", ".....+...+.++"},
	{"user nowhere    ", "-----------..", "-----------..", ".....-...-.--"},
}

// testMatrix sends from every kind to every kind of address. What is refused
// is refused with its request id, the stream stays open, and the readers of
// all these addresses prove that it was neither stored nor delivered.
func testMatrix(t *testing.T, g *gateway) {
	own := workspace(t)
	other := own + "-other"
	senders := []identity{
		agent(own, "sender", "s"), uniqueTask(own, "sender", "s"), task(own, "sender"), user(own+"-sender", "w", own),
		engine(own, own+"-third"), metricsBridge(own), orchestrator(own, "s", own), service(own, "sender", own), bridge(own, "sender"),
		user(own+"-nowhere", "w", own, other),
	}
	senders[4] = engine(own+"-sender", own)
	senders[9].init.Workspace = ""

	// Readers of shared addresses, and of a task, must be there beforehand.
	sharedReaders := []*peer{
		connect(t, g, agent(own, "reader", "shared"), auto), connect(t, g, agent(other, "reader", "shared"), auto),
		connect(t, g, user(own+"-own", "shared", own), auto), connect(t, g, user(own+"-other", "shared", other), auto),
		connect(t, g, metricsBridge(own+"-reader"), auto),
	}
	tasks := []*peer{connect(t, g, task(own, "reader"), auto), connect(t, g, task(other, "reader"), auto)}
	// Everybody else gets the mail at the end, from the log. Users are members
	// of their workspace since they connected.
	mail := []identity{
		agent(own, "reader", "r"), uniqueTask(own, "reader", "r"), user(own+"-own", "w", own),
		agent(other, "reader", "r"), uniqueTask(other, "reader", "r"), user(own+"-other", "w", other),
		service(own, "reader", own), bridge(own, "reader"),
	}

	addresses := func(ws, who string, ta *peer) map[string]string {
		return map[string]string{
			"ag": "ag::" + ws + "::reader::r", "ga": "ga::" + ws, "tu": "tu::" + ws + "::reader::r", "ta": ta.name(), "tb": "tb::" + ws + "::reader",
			"us": "us::" + own + who + "::w", "uw": "uw::" + own + who + "::" + ws, "gu": "gu::" + ws, "event": "event::" + ws,
			"metric": "metric::" + ws, "pg": "pg::" + ws,
		}
	}
	columns := []struct {
		name string
		of   func(row int) string
		to   map[string]string
	}{
		{"own", func(i int) string { return matrix[i].own }, addresses(own, "-own", tasks[0])},
		{"other", func(i int) string { return matrix[i].other }, addresses(other, "-other", tasks[1])},
		{"none", func(i int) string { return matrix[i].none }, map[string]string{
			"us": "us::" + own + "-unknown::w", "metric": "metric::*", "sv": "sv::" + own + "::reader", "br": "br::" + own + "::reader",
		}},
	}

	want := map[string][]string{} // address → sources, in order
	for row, id := range senders {
		// The engine is also sent events, which it does not acknowledge: they
		// come again to the one that reads them at the end.
		sender := connect(t, g, id)
		for _, column := range columns {
			for i, prefix := range prefixes {
				to, cell := column.to[prefix], column.of(row)[i]
				if (to == "") != (cell == '.') {
					t.Fatalf("%s, %s, %s: cell %q for address %q", matrix[row].sender, column.name, prefix, cell, to)
				}
				if to == "" {
					continue
				}
				m := fitting(prefix, to)
				if to == "metric::*" && row >= 4 {
					m.AppWorkspace = own
				}
				if cell == '-' {
					if refusal := sender.refused("ERR_PERMISSION_DENIED", m); refusal.GetRetryable() {
						t.Errorf("%s to %s: the refusal is called retryable", sender.name(), to)
					}
					continue
				}
				if _, refusal := sender.ask(m); refusal != nil {
					t.Errorf("%s (%s) to %s: %v", matrix[row].sender, sender.name(), to, refusal)
				}
				if prefix == "metric" {
					to = "metric::receiver0"
				}
				want[to] = append(want[to], sender.name())
			}
		}
		sender.leaves()
	}

	// A last message to every address, which its readers read up to.
	last := connect(t, g, bridge(own, "last"), auto)
	topics := map[string]bool{}
	for _, column := range columns {
		for prefix, to := range column.to {
			m := fitting(prefix, to)
			m.AppWorkspace = own
			last.accepted(m)
			topics[to] = true
		}
	}
	got := map[string][]string{}
	collect := func(p *peer, reads ...string) {
		t.Helper()
		for left := len(reads); left > 0; {
			m := p.read()
			topic := m.GetTopic()
			switch {
			case topic == "metric::receiver0" && m.GetSourceTopic() != last.name() && !slices.Contains(want[topic], m.GetSourceTopic()):
				// Metrics of other tests: this address is everybody's.
			case m.GetSourceTopic() == last.name():
				left--
			case !slices.Contains(reads, topic):
				t.Errorf("%s got a message to %s", p.name(), topic)
			default:
				got[topic] = append(got[topic], m.GetSourceTopic())
			}
		}
	}
	collect(sharedReaders[0], "ga::"+own, "pg::"+own)
	collect(sharedReaders[1], "ga::"+other, "pg::"+other)
	// pg has two readers; one is compared.
	without := func(topic string, f func()) {
		before := slices.Clone(got[topic])
		f()
		if !slices.Equal(got[topic][len(before):], before) {
			t.Errorf("two readers of %s got %v and %v", topic, before, got[topic][len(before):])
		}
		got[topic] = before
	}
	without("pg::"+own, func() { collect(sharedReaders[2], "gu::"+own, "uw::"+own+"-own::"+own, "pg::"+own) })
	without("pg::"+other, func() { collect(sharedReaders[3], "gu::"+other, "uw::"+own+"-other::"+other, "pg::"+other) })
	collect(sharedReaders[4], "metric::receiver0", "metric::receiver0", "metric::receiver0")
	collect(tasks[0], tasks[0].name(), "tb::"+own+"::reader")
	collect(tasks[1], tasks[1].name(), "tb::"+other+"::reader")
	for _, id := range mail {
		collect(connect(t, g, id, auto), id.name)
	}
	collect(connect(t, g, engine(own, own, other), auto), "event::"+own, "event::"+other)
	delete(want, "us::"+own+"-unknown::w") // nobody reads it

	for _, topic := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[topic], want[topic]) {
			t.Errorf("%s got messages from %v, want %v", topic, got[topic], want[topic])
		}
		delete(got, topic)
	}
	for topic, sources := range got {
		t.Errorf("%s got messages from %v, want none", topic, sources)
	}
}

// fitting returns a message of the type that an address takes.
func fitting(prefix, to string) *aetherv1.SendMessage {
	m := chat(to, "to "+prefix)
	switch prefix {
	case "event":
		m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
	case "metric":
		return metric(to, &aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "n", Qty: 1}}})
	}
	return m
}

func metric(to string, content *aetherv1.Metric) *aetherv1.SendMessage {
	payload, err := proto.Marshal(content)
	if err != nil {
		panic(err)
	}
	return &aetherv1.SendMessage{TargetTopic: to, Payload: payload, MessageType: aetherv1.MessageType_MESSAGE_TYPE_METRIC}
}
