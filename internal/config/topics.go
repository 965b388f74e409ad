package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/wiring"
)

const topicExample = "[{prefix: ga, capacity: 256}, {address: 'tb::w::impl', queue_on_full: drop_newest}]"

// parseTopics reads the entries of topics.
func parseTopics(raw any) ([]wiring.Topic, error) {
	var topics []wiring.Topic
	fs := entries(raw, topicExample, func(f *fields) { topics = append(topics, parseTopic(f)) })
	if len(fs) > 0 {
		return topics, fs
	}
	return topics, nil
}

func parseTopic(f *fields) wiring.Topic {
	t := wiring.Topic{Settings: wiring.Defaults(), Given: f.given}
	before := len(*f.faults)
	parseScope(f, &t)
	if before == len(*f.faults) && t.Address.IsZero() && t.Prefix == 0 && t.Workspace == "" {
		*f.faults = append(*f.faults, wiring.Fault{Path: f.path, Code: wiring.NameEmpty, Text: "names no topic; accepted is an address, or a prefix, a workspace or both"})
	}
	parseCapacity(f, &t.Settings)
	f.size("max_bytes", &t.Bytes)
	oneOf(f, "on_lag", &t.OnLag, wiring.DropOldest, wiring.Disconnect)
	oneOf(f, "queue_on_full", &t.OnFull, wiring.Block, wiring.DropNewest)
	f.flag("observers", &t.Observers)
	if a := f.section("ack", "mode, tracking, max_in_flight, timeout"); a != nil {
		oneOf(a, "mode", &t.Ack.Mode, wiring.First, wiring.All)
		oneOf(a, "tracking", &t.Ack.Tracking, wiring.Disabled, wiring.Auto)
		a.count("max_in_flight", &t.Ack.MaxInFlight)
		a.duration("timeout", &t.Ack.Timeout)
		a.end()
	}
	return t
}

// parseScope reads of which addresses an entry is.
func parseScope(f *fields, t *wiring.Topic) {
	if s, ok := f.text("address", "an address"); ok {
		a, err := address.Parse(s)
		switch {
		case strings.TrimSpace(s) == "":
			f.fault("address", wiring.NameEmpty, "is %s; accepted is an address such as ga::acme", shown(s))
		case err != nil:
			f.fault("address", wiring.UnknownValue, "is %s: %v; accepted is an address such as ga::acme", shown(s), err)
		default:
			t.Address = a
		}
	}
	if s, ok := f.text("prefix", prefixList()); ok {
		for _, p := range address.Prefixes() {
			if p.String() == s {
				t.Prefix = p
			}
		}
		if t.Prefix == 0 {
			f.fault("prefix", wiring.UnknownValue, "is %s; accepted are %s", shown(s), prefixList())
		}
	}
	if s, ok := f.text("workspace", "the name of a workspace"); ok {
		if err := address.ValidWorkspace(s); err != nil {
			f.fault("workspace", wiring.UnknownValue, "is %s: %v; accepted is the name of a workspace", shown(s), err)
		} else {
			t.Workspace = s
		}
	}
	if !t.Address.IsZero() && (t.Prefix != 0 || t.Workspace != "") {
		f.fault("address", wiring.UnknownValue, "is %s beside a prefix or a workspace; accepted is the address alone", shown(t.Address.String()))
		t.Prefix, t.Workspace = 0, ""
	}
}

func prefixList() string {
	var names []string
	for _, p := range address.Prefixes() {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// parseCapacity reads how many messages may wait: one number for all, or those
// of queues and rings.
func parseCapacity(f *fields, s *wiring.Settings) {
	v, ok := f.get("capacity")
	if !ok {
		return
	}
	if n, ok := whole(v); ok {
		s.Queue, s.Ring = int(n), int(n)
		return
	}
	values, ok := v.(map[string]any)
	if !ok {
		f.fault("capacity", wiring.WrongType, "is %s; accepted is a number of messages, or {queue: …, ring: …}", shown(v))
		return
	}
	delete(f.given, "capacity")
	c := &fields{path: f.path + ".capacity", values: values, faults: f.faults, given: f.given, below: f.below + "capacity."}
	c.count("queue", &s.Queue)
	c.count("ring", &s.Ring)
	c.end()
}

// topicsText is the topics in YAML's flow form, which can be set again.
func topicsText(topics []wiring.Topic) string {
	if len(topics) == 0 {
		return ""
	}
	list := make([]string, len(topics))
	for i := range topics {
		t := &topics[i]
		var parts []string
		add := func(given, format string, args ...any) {
			if given == "" || t.Given[given] {
				parts = append(parts, fmt.Sprintf(format, args...))
			}
		}
		add("address", "address: %q", t.Address)
		add("prefix", "prefix: %s", t.Prefix)
		add("workspace", "workspace: %q", t.Workspace)
		add("capacity", "capacity: %d", t.Queue)
		switch queue, ring := t.Given["capacity.queue"], t.Given["capacity.ring"]; {
		case queue && ring:
			add("", "capacity: {queue: %d, ring: %d}", t.Queue, t.Ring)
		case queue:
			add("", "capacity: {queue: %d}", t.Queue)
		case ring:
			add("", "capacity: {ring: %d}", t.Ring)
		}
		add("max_bytes", "max_bytes: %d", t.Bytes)
		add("on_lag", "on_lag: %s", t.OnLag)
		add("queue_on_full", "queue_on_full: %s", t.OnFull)
		add("observers", "observers: %t", t.Observers)
		if t.Given["ack"] {
			add("", "ack: {mode: %s, tracking: %s, max_in_flight: %d, timeout: %s}", t.Ack.Mode, t.Ack.Tracking, t.Ack.MaxInFlight, FormatDuration(t.Ack.Timeout))
		}
		list[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// quoted is a list of texts in YAML's flow form.
func quoted(texts []string) string {
	list := make([]string, len(texts))
	for i, s := range texts {
		list[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(list, ", ") + "]"
}
