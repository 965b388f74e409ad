package router

import (
	"fmt"
	"maps"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/subject"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// path makes a route of sv::router::main.
func path(t *testing.T, name, from, filter, to string) wiring.Route {
	t.Helper()
	r := wiring.Route{Name: name}
	var why string
	if r.From, why = wiring.ParseSource(from); why != "" {
		t.Fatal(why)
	}
	var err error
	if filter != "" {
		if r.Filter, err = subject.Compile(subject.Strict, filter); err != nil {
			t.Fatal(err)
		}
	}
	if r.To, err = address.Parse(to); err != nil {
		t.Fatal(err)
	}
	if r.Principal, err = address.Service("router", "main"); err != nil {
		t.Fatal(err)
	}
	return r
}

func with(routes ...wiring.Route) func(*Options) { return func(o *Options) { o.Routes = routes } }

// forwarding waits until the forwarder has begun, so that what is sent from now
// on is forwarded also by routes that were never there before.
func (w *world) forwarding(route wiring.Route) {
	w.t.Helper()
	key := (&feed{f: &forwarder{routes: []wiring.Route{route}}, p: w.r.parts[0]}).key(0)
	w.until(func() (bool, <-chan struct{}) { return w.store.at(key) != nil, tick() })
}

func (w *world) count(what func(*Stats) uint64, want uint64) {
	w.t.Helper()
	w.until(func() (bool, <-chan struct{}) { return what(w.r.Stats()) >= want, tick() })
	if got := what(w.r.Stats()); got != want {
		w.t.Errorf("counted %d, want %d", got, want)
	}
}

// A route forwards what its filter takes, in order, as its principal; the first
// source, the hops and the route stand in the metadata.
func TestRuntime7RouteForwards(t *testing.T) {
	t.Parallel()
	route := path(t, "orders", "ag::w::i::in", "order.*", "ag::w::i::out")
	w := setup(t, with(route))
	w.forwarding(route)
	a, out := w.agent("a", client(0)), w.agent("out", client(0))
	send := func(subject, text string) {
		t.Helper()
		err := a.sender.Send(&aetherv1.SendMessage{
			TargetTopic: "ag::w::i::in", Payload: []byte(text), Subject: subject, MessageType: aetherv1.MessageType_MESSAGE_TYPE_CHAT,
			Metadata: map[string]string{"correlation-id": "7"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	send("order.made", "1")
	send("order", "no")
	send("", "no")
	send("order.made.twice", "no")
	send("order.sent", "2")
	m := out.message()
	want := map[string]string{"correlation-id": "7", "aether-source": "ag::w::i::a", "aether-hops": "1", "aether-route": "orders"}
	if string(m.GetPayload()) != "1" || m.GetSourceTopic() != "sv::router::main" || m.GetSubject() != "order.made" || m.GetWorkspace() != "w" ||
		m.GetMessageType() != aetherv1.MessageType_MESSAGE_TYPE_CHAT || !maps.Equal(m.GetMetadata(), want) {
		t.Errorf("got %v", m)
	}
	out.wants("2")
	w.settled()
	out.quiet()
	w.count(func(s *Stats) uint64 { return s.Forwarded.Load() }, 2)
	// What a client says of itself does not stand there.
	err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::in", Metadata: map[string]string{"aether-hops": "0"}})
	if err == nil || err.Code != "ERR_INVALID_ARGUMENT" {
		t.Errorf("a client sets reserved metadata: %v", err)
	}
}

// All addresses of a prefix in a workspace are a source; each route has its copy.
func TestRuntime7RouteFromWorkspace(t *testing.T) {
	t.Parallel()
	all := path(t, "all", "tb::w", "", "ag::w::i::out")
	one := path(t, "one", "tb::w::j", "", "ag::w::i::other")
	w := setup(t, with(all, one))
	w.forwarding(all)
	a, out, other := w.agent("a", client(0)), w.agent("out", client(0)), w.agent("other", client(0))
	a.send("tb::w::i", "1", "")
	a.send("tb::w::j", "2", "")
	a.send("ag::w::i::b", "no", "")
	out.wants("1", "2")
	other.wants("2")
}

// A message is forwarded eight times at most, whatever is declared.
func TestRuntime7HopsEnd(t *testing.T) {
	t.Parallel()
	var routes []wiring.Route
	at := func(n int) string { return fmt.Sprint("ag::w::i::", n) }
	for i := range wiring.MaxHops + 1 {
		routes = append(routes, path(t, fmt.Sprint(i), at(i), "", at(i+1)))
	}
	w := setup(t, with(routes...))
	w.forwarding(routes[0])
	a := w.agent("a", client(0))
	last, beyond := w.agent("8", client(0)), w.agent("9", client(0))
	a.send(at(0), "far", "")
	m := last.message()
	if m.GetMetadata()["aether-hops"] != "8" || m.GetMetadata()["aether-source"] != "ag::w::i::a" {
		t.Errorf("got %v", m)
	}
	w.count(func(s *Stats) uint64 { return s.ForwardsRefused.Load() }, 1)
	w.settled()
	beyond.quiet()
}

// Permission is asked for each message; what is refused is counted and passed
// over, and the others go on.
func TestRuntime7RoutesAskForPermission(t *testing.T) {
	t.Parallel()
	closed := path(t, "closed", "ag::w::i::in", "secret.*", "sv::vault::1")
	open := path(t, "open", "ag::w::i::in", "", "ag::w::i::out")
	w := setup(t, with(closed, open))
	w.forwarding(open)
	a, out := w.agent("a", client(0)), w.agent("out", client(0))
	for i := range 3 {
		if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::in", Payload: fmt.Append(nil, i), Subject: "secret.x"}); err != nil {
			t.Fatal(err)
		}
	}
	out.wants("0", "1", "2")
	w.count(func(s *Stats) uint64 { return s.ForwardsRefused.Load() }, 3)
}

// The log is away for a while: nothing is lost, nothing comes twice, order holds.
func TestRuntime7RoutesOverAnOutage(t *testing.T) {
	t.Parallel()
	route := path(t, "r", "ag::w::i::in", "", "ag::w::i::out")
	w := setup(t, with(route))
	w.forwarding(route)
	a, out := w.agent("a", client(0)), w.agent("out", client(0))
	const n = 200
	var want []string
	for i := range n {
		a.send("ag::w::i::in", fmt.Sprint(i), fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	a.receipts(n)
	w.log.Refuse(true)
	w.log.Drop()
	w.log.Refuse(false)
	for _, text := range want {
		m := out.message()
		if string(m.GetPayload()) != text {
			t.Fatalf("got %q, want %q", m.GetPayload(), text)
		}
		out.ack(m.GetDeliveryId())
	}
	w.settled()
	out.quiet()
}

// What cannot be stored now is forwarded later, in order: here the store, which
// has to note that mail waits for somebody absent, is away for a while.
func TestRuntime7RoutesTryAgain(t *testing.T) {
	t.Parallel()
	route := path(t, "r", "ag::w::i::in", "", "ag::w::i::out")
	w := setup(t, with(route))
	w.forwarding(route)
	a, in := w.agent("a", client(0)), w.agent("in", client(0))
	w.warm(a, in)
	w.count(func(s *Stats) uint64 { return s.Forwarded.Load() }, 1)
	gone := w.agent("out", client(0))
	gone.ack(gone.message().GetDeliveryId())
	gone.leave()
	w.store.fail(true)
	var want []string
	for i := range 20 {
		a.send("ag::w::i::in", fmt.Sprint(i), fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	a.receipts(20)
	failed := w.r.stats.NoteFailures.Load()
	w.until(func() (bool, <-chan struct{}) { return w.r.stats.NoteFailures.Load() > failed, tick() })
	w.store.fail(false)
	w.count(func(s *Stats) uint64 { return s.Forwarded.Load() }, 21)
	w.agent("out", client(0)).wants(want...)
}

// A gateway dies after it has forwarded and before that was committed. The next
// one forwards again, and nothing comes twice. What was sent while nobody
// forwarded is not lost.
func TestRuntime7NextForwarderGoesOn(t *testing.T) {
	t.Parallel()
	route := path(t, "r", "ag::w::i::in", "", "ag::w::i::out")
	w1 := setup(t, with(route))
	w1.forwarding(route)
	key := (&feed{f: w1.r.forwarder, p: w1.r.parts[0]}).key(0)
	before := *w1.store.at(key)
	w2 := w1.second()
	a, out := w2.agent("a", client(0)), w2.agent("out", client(0))
	const n = 100
	take := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			m := out.message()
			if string(m.GetPayload()) != fmt.Sprint(i) {
				t.Fatalf("got %q, want %d", m.GetPayload(), i)
			}
			out.ack(m.GetDeliveryId())
		}
	}
	for i := range n {
		a.send("ag::w::i::in", fmt.Sprint(i), "")
	}
	take(0, n)
	w1.r.forwarder.stop(t.Context())
	w1.store.set(func() { w1.store.rows[key] = before })
	for i := n; i < 2*n; i++ {
		a.send("ag::w::i::in", fmt.Sprint(i), fmt.Sprint(i))
	}
	a.receipts(n)
	w3 := w1.second(with(route))
	take(n, 2*n)
	w3.settled()
	w2.settled()
	out.quiet()
	if d := w3.r.stats.Duplicates.Load(); d != n {
		t.Errorf("%d messages were forwarded twice, want %d: the test shows nothing", d, n)
	}
	w3.r.forwarder.stop(t.Context())
	if at := w1.store.at(key); at.Position <= before.Position {
		t.Errorf("the position is %d at the end", at.Position)
	}
}

// More than the window waits for commits, which the store takes late.
func TestRuntime7RoutesWaitForCommits(t *testing.T) {
	t.Parallel()
	route := path(t, "r", "ga::w", "", "tb::w::i")
	w := setup(t, with(route))
	w.forwarding(route)
	a := w.agent("a", client(0))
	w.store.fail(true)
	const n = 2 * forwardWindow
	for i := range n {
		if i%1000 == 999 {
			w.settled()
		}
		a.send("ga::w", fmt.Sprint(i), "")
	}
	w.until(func() (bool, <-chan struct{}) { return w.r.stats.CommitFailures.Load() > 0, tick() })
	if got := w.r.stats.Forwarded.Load(); got > forwardWindow {
		t.Errorf("%d are forwarded and not committed", got)
	}
	w.store.fail(false)
	w.count(func(s *Stats) uint64 { return s.Forwarded.Load() }, n)
}
