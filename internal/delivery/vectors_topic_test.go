package delivery_test

import (
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery/group"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/subject"
)

func TestBroadcastVectors(t *testing.T) {
	t.Parallel()
	runScenarios(t, "broadcast", newTopics)
}

func TestBalancedVectors(t *testing.T) {
	t.Parallel()
	runScenarios(t, "balanced", newTopics)
}

func TestMixedVectors(t *testing.T) {
	t.Parallel()
	runScenarios(t, "mixed", newTopics)
}

// votes is what decides the outcome of tracked messages.
type votes interface {
	// join and leave tell of subscribers; why is the reason of the nacks that a
	// leaver owes.
	join(sub *subscriber)
	leave(sub *subscriber, why string)
	// register begins a tracked message, of whom these are eligible. all says
	// that all of them must acknowledge.
	register(m string, publisher string, timeoutMS int, all bool, eligible []*subscriber)
	// missed says that a message left the ring before a reader had read it; dead
	// that it was handed to workers too often.
	missed(sub *subscriber, m string)
	dead(m string)
	vote(sub *subscriber, m string, ack bool, reason string) (result string)
	outcome(m string) any
	advance(ms int)
}

// topics is the structures of package delivery as topics in one process: what
// a gateway does with them and its log, without the log.
type topics struct {
	byName     map[string]*topicOf
	subs       map[string]*subscriber
	publishers map[string]*publisher
	calls      map[string]*call
	// waiting are blocked calls, the oldest first.
	waiting []*call
	votes   votes
}

type topicOf struct {
	name, mode string
	s          step
	ring       *ring.Ring[*published]
	groups     *group.Set[*published]
	classes    []*subject.Pattern // by class
	dropped    int
	closed     bool
	members    []*subscriber
}

type published struct {
	m, subject string
	tracked    bool
}

type subscriber struct {
	name    string
	topic   *topicOf
	pattern *subject.Pattern
	reader  *ring.Reader[*published]
	worker  *group.Worker[*published]
	holds   map[string]uint64
	// pending is what was read with a lag before it, and lag what mode bus has
	// to tell; closed comes after both.
	pending []*published
	lag     int
	closed  bool
	left    bool
}

type publisher struct {
	name    string
	free    int
	timeout int
}

// call is a publish that may block.
type call struct {
	topic     *topicOf
	item      *published
	publisher *publisher
	result    string
}

func newTopics(*testing.T, step) machine {
	m := &topics{
		byName: map[string]*topicOf{}, subs: map[string]*subscriber{}, publishers: map[string]*publisher{},
		calls: map[string]*call{},
	}
	m.votes = newVotes(m.decided)
	return m
}

// decided gives a publisher its permit back.
func (m *topics) decided(publisher string) { m.publishers[publisher].free++ }

func (m *topics) do(t *testing.T, op string, s step) map[string]any {
	sub := m.subs[s.str("sub")]
	topic := m.byName[s.str("topic")]
	switch op {
	case "topic_open":
		m.open(s)
	case "subscribe":
		if code := m.subscribe(t, topic, s); code != "" {
			return map[string]any{"error": code}
		}
	case "publisher":
		m.publishers[s.str("publisher")] = &publisher{s.str("publisher"), s.num("max_in_flight", 0), s.num("timeout_ms", 0)}
	case "publish":
		return map[string]any{"result": m.publish(topic, s)}
	case "status":
		return map[string]any{"result": m.calls[s.str("h")].result}
	case "cancel":
		m.cancel(m.calls[s.str("h")])
	case "recv", "try_recv":
		return map[string]any{"item": m.receive(sub)}
	case "recv_n":
		var order []any
		for range s.num("n", 0) {
			item := m.receive(sub)
			if got, ok := item.(map[string]any); ok && got["message"] != nil {
				item = got["message"]
			}
			order = append(order, item)
		}
		return map[string]any{"order": order}
	case "drain_lagged":
		n := sub.lag
		sub.lag = 0
		return map[string]any{"count": n}
	case "leave":
		m.leave(sub)
	case "ack", "nack":
		return map[string]any{"result": m.vote(sub, s, op == "ack")}
	case "outcome":
		return map[string]any{"outcome": m.votes.outcome(s.str("m"))}
	case "permits":
		return map[string]any{"available": m.publishers[s.str("publisher")].free}
	case "group_permits":
		free := map[string]any{}
		topic.groups.Groups(func(name string, n int) { free[name] = n })
		return free
	case "advance":
		m.votes.advance(s.num("ms", 0))
	case "close":
		topic.closed = true
		topic.ring.Close()
	case "state":
		return map[string]any{"ring_capacity": topic.ring.Capacity(), "counters": map[string]any{"dropped_on_full": topic.dropped}}
	case "drop_receipt":
	default:
		t.Fatalf("unknown operation %q", op)
	}
	return nil
}

func (m *topics) open(s step) {
	o := &topicOf{name: s.str("topic"), mode: s.str("mode"), s: s}
	o.ring = ring.New(ring.Options[*published]{Capacity: s.num("broadcast_capacity", 0), Missed: func(rd *ring.Reader[*published], item *published) {
		m.votes.missed(rd.Data.(*subscriber), item.m)
	}})
	o.groups = group.NewSet(group.Options[*published]{Capacity: s.num("balanced_capacity", 0), Dead: func(_ *group.Group[*published], item *published, _ int) {
		m.votes.dead(item.m)
	}})
	m.byName[o.name] = o
}

func (m *topics) subscribe(t *testing.T, o *topicOf, s step) string {
	mode := s.str("mode")
	switch {
	case o.closed:
		return "topic_closed"
	case mode == "balanced" && (o.mode == "broadcast" || o.mode == "bus"):
		return "balanced_not_supported"
	case mode == "broadcast" && o.mode == "balanced":
		return "broadcast_not_supported"
	}
	if mode == "balanced" && o.mode == "balanced" {
		other := false
		o.groups.Groups(func(name string, _ int) { other = other || name != s.str("group") })
		if other {
			return "single_group_violation"
		}
	}
	sub := &subscriber{name: s.str("sub"), topic: o, holds: map[string]uint64{}}
	m.subs[sub.name] = sub
	o.members = append(o.members, sub)
	m.votes.join(sub)
	if mode == "balanced" {
		sub.worker = o.groups.Group(s.str("group")).Join(1 << 20)
		return ""
	}
	class := ring.Every
	if s["filter"] != nil {
		grammar := subject.Segmented
		if s["dialect"] != nil {
			grammar, _ = subject.ParseGrammar(s.str("dialect"))
		}
		p, err := subject.Compile(grammar, s.str("filter"))
		if err != nil {
			t.Fatal(err)
		}
		sub.pattern = p
		if o.mode != "bus" { // there it filters what it has received
			class = len(o.classes)
			o.classes = append(o.classes, p)
		}
	}
	sub.reader = o.ring.Join(ring.Join{Class: class, Disconnect: o.s.str("on_lag") == "disconnect", Wake: func() {}})
	sub.reader.Data = sub
	return ""
}

func (m *topics) publish(o *topicOf, s step) string {
	c := &call{topic: o, item: &published{s.str("m"), s.str("subject"), s.flag("tracked")}}
	if s["h"] != nil {
		m.calls[s.str("h")] = c
	}
	if o.closed {
		return "error:topic_closed"
	}
	if c.item.tracked {
		c.publisher = m.publishers[s.str("publisher")]
		if c.publisher.free == 0 {
			return "max_in_flight_reached"
		}
		c.publisher.free--
	}
	switch {
	case m.admit(c):
	case s.flag("nonblocking") || o.s.str("on_full") == "drop_newest":
		o.dropped++
		c.result = "dropped_on_full"
		m.giveBack(c)
	default:
		c.result = "blocked"
		m.waiting = append(m.waiting, c)
	}
	return c.result
}

func (m *topics) giveBack(c *call) {
	if c.publisher != nil {
		c.publisher.free++
	}
}

// admit publishes, if all groups have room, and to the observers after that.
func (m *topics) admit(c *call) bool {
	o := c.topic
	if slices.ContainsFunc(m.waiting, func(w *call) bool { return w.topic == o && w != c && w.result == "blocked" }) && c.result == "" {
		return false // others wait
	}
	if !o.groups.Admit(c.item, 1) {
		return false
	}
	if c.item.tracked {
		m.votes.register(c.item.m, c.publisher.name, c.publisher.timeout, o.s.str("ack_mode") == "all", o.eligible())
	}
	var classes uint64
	for i, p := range o.classes {
		if p.Match(c.item.subject) {
			classes |= 1 << i
		}
	}
	o.ring.Publish(ring.Message[*published]{Item: c.item, Size: 1, Classes: classes, Tracked: c.item.tracked})
	c.result = "published"
	return true
}

// eligible are those who vote: on a mixed topic workers only.
func (o *topicOf) eligible() (list []*subscriber) {
	for _, sub := range o.members {
		if !sub.left && (o.mode != "mixed" || sub.worker != nil) {
			list = append(list, sub)
		}
	}
	return list
}

// unblock admits blocked calls as far as there is room, in their order.
func (m *topics) unblock() {
	for len(m.waiting) > 0 && m.admit(m.waiting[0]) {
		m.waiting = m.waiting[1:]
	}
}

func (m *topics) cancel(c *call) {
	c.result = "cancelled"
	m.waiting = slices.DeleteFunc(m.waiting, func(w *call) bool { return w == c })
	m.giveBack(c)
}

func (m *topics) receive(sub *subscriber) any {
	if sub.worker != nil {
		h, ok := sub.worker.Take()
		if !ok {
			return "empty"
		}
		m.unblock()
		sub.holds[h.Item.m] = h.ID
		return map[string]any{"message": h.Item.m}
	}
	for {
		if len(sub.pending) > 0 {
			item := sub.pending[0]
			sub.pending = sub.pending[1:]
			if sub.topic.mode == "bus" && sub.pattern != nil && !sub.pattern.Match(item.subject) {
				continue
			}
			return map[string]any{"message": item.m}
		}
		if sub.closed {
			return "closed"
		}
		items, lag, _, closed := sub.reader.Read(nil, 1, 1)
		sub.pending, sub.closed = items, closed
		if closed && sub.topic.s.str("on_lag") == "disconnect" && !sub.topic.closed {
			m.votes.leave(sub, "lagged")
		}
		if sub.topic.mode == "bus" {
			sub.lag += int(lag.Raw)
		} else if lag.Missed > 0 {
			return map[string]any{"lagged": lag.Missed}
		}
		if len(items) == 0 && !closed {
			return "empty"
		}
	}
}

func (m *topics) leave(sub *subscriber) {
	sub.left = true
	if sub.worker != nil {
		sub.worker.Leave()
	} else {
		sub.reader.Leave()
	}
	m.votes.leave(sub, "left")
}

func (m *topics) vote(sub *subscriber, s step, ack bool) string {
	if sub.worker == nil && sub.topic.mode == "mixed" {
		return "not_voting"
	}
	if id, holds := sub.holds[s.str("m")]; holds {
		sub.worker.Done(id)
	}
	return m.votes.vote(sub, s.str("m"), ack, s.str("reason"))
}
