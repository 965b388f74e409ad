package router

import (
	"fmt"
	"strings"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

func takes(t *testing.T, list ...*aetherv1.TopicFilter) *Filters {
	t.Helper()
	f, err := ParseFilters(list)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func only(prefix string, subjects ...string) *aetherv1.TopicFilter {
	return &aetherv1.TopicFilter{TopicPrefix: prefix, Subjects: subjects}
}

func numbered(n int, format string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

// Runtime rule 2.3: what is refused, before anything is registered, and what
// counts once.
func TestFilterRefusals(t *testing.T) {
	t.Parallel()
	var eight []*aetherv1.TopicFilter
	for i := range 8 {
		eight = append(eight, only("ga", numbered(maxFilters, fmt.Sprintf("s%d.%%d", i))...))
	}
	for name, c := range map[string]struct {
		list []*aetherv1.TopicFilter
		want wireerr.Code // "": none
	}{
		"none":                      {},
		"every kind":                {list: []*aetherv1.TopicFilter{only("ga", "a"), only("gu", "a"), only("uw", "a"), only("pg", "a"), only("event", "a"), only("metric", "a"), only("tb", "a")}},
		"no subjects":               {list: []*aetherv1.TopicFilter{only("ga")}},
		"the empty filter":          {list: []*aetherv1.TopicFilter{only("ga", "")}},
		"empty segments":            {list: []*aetherv1.TopicFilter{only("ga", "a..b", ".")}},
		"256 bytes":                 {list: []*aetherv1.TopicFilter{only("ga", strings.Repeat("x", 256))}},
		"257 bytes":                 {[]*aetherv1.TopicFilter{only("ga", strings.Repeat("x", 257))}, wireerr.InvalidFilter},
		"a star in a segment":       {[]*aetherv1.TopicFilter{only("ga", "ok"), only("pg", "ok", "a.b*")}, wireerr.InvalidFilter},
		"a hash in the middle":      {[]*aetherv1.TopicFilter{only("ga", "a.#.b")}, wireerr.InvalidFilter},
		"a hash in a segment":       {[]*aetherv1.TopicFilter{only("ga", "a.b#")}, wireerr.InvalidFilter},
		"an exclusive kind":         {[]*aetherv1.TopicFilter{only("ag", "a")}, wireerr.InvalidFilter},
		"an address":                {[]*aetherv1.TopicFilter{only("ga::w", "a")}, wireerr.InvalidFilter},
		"no kind":                   {[]*aetherv1.TopicFilter{only("", "a")}, wireerr.InvalidFilter},
		"32 of a subscription":      {list: []*aetherv1.TopicFilter{only("ga", numbered(32, "s.%d")...)}},
		"33 of a subscription":      {[]*aetherv1.TopicFilter{only("ga", numbered(33, "s.%d")...)}, wireerr.InvalidFilter},
		"33, one of them twice":     {list: []*aetherv1.TopicFilter{only("ga", append(numbered(32, "s.%d"), "s.3")...)}},
		"256 of a session":          {list: eight},
		"257 of a session":          {append(eight[:8:8], only("pg", "x")), wireerr.InvalidFilter},
		"256 and repeated ones":     {list: append(eight[:8:8], eight[0], eight[3])},
		"turns in a log":            {[]*aetherv1.TopicFilter{{TopicPrefix: "event", Fair: true}}, wireerr.InvalidFilter},
		"turns between competitors": {[]*aetherv1.TopicFilter{{TopicPrefix: "tb", Fair: true}}, wireerr.InvalidFilter},
		"very many entries":         {make([]*aetherv1.TopicFilter, maxSubscriptions+1), wireerr.InvalidFilter},
	} {
		f, err := ParseFilters(c.list)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || err.Code != c.want || f != nil):
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

func FuzzParseFilters(f *testing.F) {
	f.Add("ga", "a.*.#", "event", "", false)
	f.Add("tb", "#", "ga", "a.*b", true)
	f.Fuzz(func(t *testing.T, kind, subject, other, second string, fair bool) {
		list := []*aetherv1.TopicFilter{
			{TopicPrefix: kind, Subjects: []string{subject, second, subject}, Fair: fair}, {TopicPrefix: other, Subjects: []string{second}},
		}
		got, err := ParseFilters(list)
		if (got == nil) != (err != nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if err != nil && err.Code != wireerr.InvalidFilter && err.Code != wireerr.NotImplemented {
			t.Fatal(err)
		}
		if err == nil && kind == "ga" && subject == "" && !got.of("ga::w").Match([]byte("x.y")) {
			t.Fatal("the empty filter does not take everything")
		}
	})
}

func (s *session) says(to, subject, text string) {
	s.w.t.Helper()
	m := &aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), Subject: subject}
	if strings.HasPrefix(to, "event::") {
		m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
	}
	if err := s.sender.Send(m); err != nil {
		s.w.t.Fatalf("send %q: %v", text, err)
	}
}

func (w *world) listener(spec string, filters ...*aetherv1.TopicFilter) *session {
	w.t.Helper()
	name := "ag::w::i::" + spec
	p := &acl.Principal{Kind: acl.Agent, Identity: name, Workspace: "w"}
	return w.join(p, name, delivery.Options{}, Reads{Exclusive: []string{name}, Shared: []string{"ga::w"}, Filters: takes(w.t, filters...)})
}

// Runtime rule 2: who has filters gets what they take, once, and nothing else,
// not even a wake-up; who has none gets everything, as before.
func TestFiltersOfSharedAddresses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	from := w.agent("from", client(0))
	all := w.listener("all")
	orders := w.listener("orders", only("ga", "orders.*.created", "orders.#"))
	others := w.listener("others", only("ga", "bills.#"), only("pg", "x"))
	for _, l := range []*session{all, orders, others} {
		for l.pump() { // to the end: it sleeps
		}
	}
	from.says("ga::w", "orders.v1.created", "1")
	from.says("ga::w", "", "2")
	from.says("ga::w", "bill.v1", "3")
	w.settled()
	select {
	case <-others.box.Wake():
		t.Error("somebody was woken for what no filter takes")
	default:
	}
	others.quiet()
	m := orders.message()
	if string(m.GetPayload()) != "1" || m.GetSubject() != "orders.v1.created" {
		t.Errorf("got %v", m)
	}
	orders.quiet()
	all.wants("1", "2", "3")

	orders.sub.Filter(takes(t, only("ga", "bill.*")))
	others.sub.Filter(nil)
	from.says("ga::w", "orders.v1.created", "4")
	from.says("ga::w", "bill.v2", "5")
	w.settled()
	orders.wants("5")
	orders.quiet()
	others.wants("4", "5")
	all.wants("4", "5")
	orders.leave()
	if used := w.r.parts[0].targets["ga::w"].topic.audience.classes.Match([]byte("bill.v2")).Mask(); used != 0 {
		t.Errorf("the filters of who has left are still looked at: %b", used)
	}
}

// What a slow reader lost is counted by its own filters (runtime rule 4.2).
func TestFilteredLossesCountMatchesOnly(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Shared.RingBytes = 8 << 10 })
	from := w.agent("from", client(0))
	p := &acl.Principal{Kind: acl.Agent, Identity: "ag::w::i::slow", Workspace: "w"}
	slow := w.join(p, "ag::w::i::slow", delivery.Options{}, Reads{Shared: []string{"ga::w"}, Filters: takes(t, only("ga", "mine.#"))})
	text := strings.Repeat("x", 1000)
	for range 20 {
		from.says("ga::w", "mine.v1", text)
		from.says("ga::w", "foreign.v1", text)
	}
	w.settled()
	lost, got := uint64(0), 0
	for slow.pump() {
		for _, g := range slow.batch.Gaps {
			lost += g.Dropped
		}
		got += len(slow.batch.Frames)
	}
	if lost == 0 || lost+uint64(got) != 20 {
		t.Errorf("%d got, %d lost", got, lost)
	}
}

// A position moves past what the filter leaves out, without an acknowledgement
// and not past what is not done; what was left out does not come back, whatever
// the next session asks for. On the way through the log, live, and in catching
// up.
func TestFiltersOfEvents(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]acl.WorkspaceSet{"one": acl.Workspaces("w"), "all": acl.All()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			from := w.agent("from", client(0))
			engine := func(filters ...*aetherv1.TopicFilter) *session {
				p := &acl.Principal{Kind: acl.WorkflowEngine, Workspaces: set}
				return w.join(p, "wfe::1", delivery.Options{Mode: delivery.Client}, Reads{Events: set, Filters: takes(t, filters...)})
			}
			next := func(e *session, want string) {
				t.Helper()
				m := e.message()
				if string(m.GetPayload()) != want {
					t.Fatalf("got %q, want %q", m.GetPayload(), want)
				}
				e.ack(m.GetDeliveryId())
			}
			e := engine(only("event", "order.#"))
			from.says("event::w", "order.v1", "1")
			from.says("event::w", "bill.v1", "2")
			from.says("event::w", "", "3")
			from.says("event::w", "order.v2", "4")
			from.says("event::w", "bill.v1", "5")
			w.settled()
			next(e, "1")
			e.wants("4") // and is not acknowledged
			e.quiet()
			w.settled()
			e.leave()
			e = engine() // takes everything: what was left out and lies behind 4 comes
			next(e, "4")
			next(e, "5")
			e.sub.Filter(takes(t, only("event", "order.#")))
			from.says("event::w", "bill.v1", "6")
			from.says("event::w", "order.v1", "7")
			w.settled()
			next(e, "7")
			from.says("event::w", "bill.v1", "8")
			w.settled()
			e.leave()
			from.says("event::w", "bill.v1", "9") // while nobody reads
			from.says("event::w", "order.v1", "10")
			from.says("event::w", "bill.v1", "11")
			w.settled()
			e = engine(only("event", "order.#"))
			next(e, "10")
			w.settled()
			e.quiet()
			e.leave()
			e = engine()
			e.quiet()
			from.says("event::w", "bill.v1", "12")
			next(e, "12")
		})
	}
}
