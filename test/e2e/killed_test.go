package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// An engine for all workspaces reads also those that appear later, shares the
// positions with engines for single ones, and is the only subscriber.
func testAllEvents(t *testing.T, f *faults) {
	ws := workspace(t)
	event := func(ws, text string) {
		t.Helper()
		sender := reconnect(t, f.gateway, agent(ws, "i", "s"))
		m := chat("event::"+ws, text)
		m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
		sender.accepted(m)
		sender.leaves()
	}
	one := connect(t, f.gateway, engine("one", ws+"-1"))
	event(ws+"-1", "first")
	if m := one.read(); string(m.GetPayload()) != "first" {
		t.Errorf("got %v", m)
	}
	if _, err := dial(t, f.gateway, engine("all")); statusOf(err).Code() != codes.AlreadyExists {
		t.Errorf("an engine for all workspaces beside one for %s: %v, want ALREADY_EXISTS", ws+"-1", err)
	}
	one.acks(1)
	one.leaves()

	all := connect(t, f.gateway, engine("all"))
	if _, err := dial(t, f.gateway, engine("one", ws+"-1")); statusOf(err).Code() != codes.AlreadyExists {
		t.Errorf("an engine for %s beside one for all workspaces: %v, want ALREADY_EXISTS", ws+"-1", err)
	}
	event(ws+"-1", "second")
	event(ws+"-2", "third")
	var got []string
	for range 2 {
		got = append(got, string(all.read().GetPayload()))
	}
	if slices.Sort(got); !slices.Equal(got, []string{"second", "third"}) {
		t.Errorf("got %q", got)
	}
	all.acks(2)
	all.leaves()

	both := connect(t, f.gateway, engine("both", ws+"-1", ws+"-2"))
	event(ws+"-2", "fourth")
	if m := both.read(); string(m.GetPayload()) != "fourth" {
		t.Errorf("what another engine has acknowledged comes again: %v", m)
	}
	both.acks(1)
	both.leaves()
}

// Of a hundred sends, ten are invalid, and, where there is a broker, one meets
// a time-out: each gets one answer, the stream stays open, and what is tried
// again is stored once.
func testRow7HundredSends(t *testing.T, f *faults) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, f.gateway, user(ws, "w", ws))
	answers := map[string][]*down{}
	await := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			for len(answers[id]) == 0 {
				m, err := sender.await(func(m *down) bool { return m.GetReceipt() != nil || m.GetError() != nil })
				check(t, err)
				got := m.GetReceipt().GetRequestId() + m.GetError().GetRequestId()
				answers[got] = append(answers[got], m)
			}
		}
	}
	bad := []func(*aetherv1.SendMessage){
		func(m *aetherv1.SendMessage) { m.TargetTopic = "ag::" + ws },
		func(m *aetherv1.SendMessage) { m.TargetTopic = "ag::other::i::s" },
		func(m *aetherv1.SendMessage) { m.TargetTopic = "event::" + ws },
		func(m *aetherv1.SendMessage) { m.Payload = make([]byte, 1_000_001) },
		func(m *aetherv1.SendMessage) { m.MessageType = 99 },
		func(m *aetherv1.SendMessage) { m.MessageId = strings.Repeat("x", 65) },
		func(m *aetherv1.SendMessage) { m.Metadata = map[string]string{"aether-x": ""} },
		func(m *aetherv1.SendMessage) { m.TtlMs = -5 },
		func(m *aetherv1.SendMessage) { m.Subject = "a..b" },
		func(m *aetherv1.SendMessage) { m.Tracking = &aetherv1.Tracking{Mode: 77} },
	}
	valid := map[int]*aetherv1.SendMessage{}
	send := func(from, to_ int) (ids []string) {
		t.Helper()
		for i := from; i <= to_; i++ {
			m := chat(to.name, fmt.Sprintf("m %d", i))
			m.MessageId, m.RequestId = fmt.Sprintf("id-%d", i), fmt.Sprintf("send-%d", i)
			if i%10 == 5 {
				bad[i/10](m)
			} else {
				valid[i] = m
			}
			check(t, sender.send(m))
			ids = append(ids, m.RequestId)
		}
		return ids
	}
	await(send(1, 49)...)
	if f.proxy != nil {
		f.proxy.Blackhole(true)
	}
	begun := time.Now()
	ids := send(50, 52)
	await(ids...)
	if f.proxy != nil {
		within(t, 6*time.Second, begun, "the answer to sends that the broker does not confirm")
		f.proxy.Blackhole(false)
		for _, id := range ids {
			e := answers[id][0].GetError()
			if e == nil || !e.GetRetryable() || e.GetCode() != "ERR_PUBLISH_FAILED" && e.GetCode() != "ERR_UNAVAILABLE" {
				t.Errorf("%s was answered with %v, want a retryable error", id, answers[id][0])
			}
		}
	}
	// Tried again, in order, under the same message id.
	for i := 50; i <= 52; i++ {
		m := valid[i]
		attempt := 0
		if !eventually(patience, func() bool {
			attempt++
			m.RequestId = fmt.Sprintf("again-%d-%d", i, attempt)
			check(t, sender.send(m))
			await(m.RequestId)
			return answers[m.RequestId][0].GetReceipt() != nil
		}) {
			t.Fatalf("message %d is not stored after %d attempts: %v", i, attempt, answers[m.RequestId])
		}
		if f.proxy == nil && !answers[m.RequestId][0].GetReceipt().GetDuplicate() {
			t.Errorf("the repeat of %d is not called one: %v", i, answers[m.RequestId])
		}
	}
	await(send(53, 100)...)
	sender.stored(to.name, "last")
	for i := 1; i <= 100; i++ {
		id := fmt.Sprintf("send-%d", i)
		list := answers[id]
		if len(list) != 1 {
			t.Errorf("%s has %d answers", id, len(list))
		}
		failed := f.proxy != nil && i >= 50 && i <= 52
		if refused := list[0].GetError() != nil; refused != (i%10 == 5 || failed) {
			t.Errorf("%s is answered with %v", id, list[0])
		}
	}
	for _, m := range sender.kept {
		t.Errorf("a frame too many: %v", m)
	}
	var want []string
	for i := 1; i <= 100; i++ {
		if i%10 != 5 {
			want = append(want, fmt.Sprintf("m %d", i))
		}
	}
	receiver := connect(t, f.gateway, to)
	wantTexts(t, receiver.until("last"), want)
}

// crowd is a few senders.
func crowd(ws string) map[string]identity {
	return map[string]identity{
		"a": agent(ws, "crowd", "a"), "b": user(ws+"-crowd", "b", ws), "c": uniqueTask(ws, "crowd", "c"),
	}
}

// A gateway that is killed under load loses nothing that has a receipt, and
// repeats nothing whose position was committed.
func testGatewayKilled(t *testing.T, f *faults) {
	ws := workspace(t)
	to := agent(ws, "i", "r")
	sender := connect(t, f.gateway, user(ws, "w", ws))
	sender.stored(to.name, numbered("s", 1, 300)...)
	receiver := connect(t, f.gateway, to, client(5000))
	for range 300 {
		receiver.read()
	}
	receiver.acks(100)
	receiver.synced()
	receiver.beats(3) // seconds: positions are committed about once in one

	l := newLoad(t, f.gateway, to.name, 2*time.Millisecond, crowd(ws))
	for n := 0; n < 60 || l.storedCount() < 300; n++ {
		receiver.read()
		if n < 60 && n%3 == 0 && !f.ready() {
			t.Error("the gateway calls itself not ready under plain load")
		}
	}
	f.kill()
	if err := l.end(); err == nil {
		t.Error("a sender did not notice that the gateway was killed")
	}
	f.restart()

	receiver = connect(t, f.gateway, to, client(1000))
	sender = connect(t, f.gateway, user(ws, "w", ws))
	sender.stored(to.name, "last")
	receiver.acked = 1 // acknowledge from now on
	got := texts(receiver.until("last"))
	own := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !strings.HasPrefix(s, "s ") })
	if want := numbered("s", 101, 300); !slices.Equal(own, want) {
		t.Errorf("of the first sender %d messages came, from %q on; want %d from %q on", len(own), first(own), len(want), want[0])
	}
	l.verify(t, got)
	t.Logf("%d messages had a receipt when the gateway was killed", l.storedCount())
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// A gateway that is told to end says so to its clients, commits what they have
// acknowledged, and loses nothing that has a receipt.
func testGatewayTerminated(t *testing.T, f *faults) {
	ws := workspace(t)
	to, loaded := agent(ws, "i", "r"), agent(ws, "i", "loaded")
	sender := connect(t, f.gateway, user(ws, "w", ws))
	sender.stored(to.name, numbered("s", 1, 200)...)
	receiver := connect(t, f.gateway, to, client(1000))
	for range 200 {
		receiver.read()
	}
	l := newLoad(t, f.gateway, loaded.name, time.Millisecond, crowd(ws))
	if !eventually(patience, func() bool { return l.storedCount() > 200 }) {
		t.Fatal("nothing is stored")
	}
	receiver.acks(150)
	receiver.synced()
	f.terminate()
	begun := time.Now()
	signal, err := receiver.await(func(m *down) bool { return m.GetSignal() != nil })
	check(t, err)
	if s := signal.GetSignal(); s.GetType() != aetherv1.Signal_SIGNAL_TYPE_GRACEFUL_DISCONNECT || s.GetReason() == "" || s.GetReconnectAfterMs() < 0 {
		t.Errorf("got the signal %v", s)
	}
	within(t, 5*time.Second, begun, "the notice of a shutdown")
	wantStatus(t, "a client of a gateway that ends", receiver.end(), codes.Unavailable)
	if err := l.end(); err == nil {
		t.Error("a sender did not notice that the gateway has ended")
	}
	f.awaitExit(25 * time.Second)
	f.restart()

	receiver = connect(t, f.gateway, to)
	sender = connect(t, f.gateway, user(ws, "w", ws))
	sender.stored(to.name, "last")
	wantTexts(t, receiver.until("last"), numbered("s", 151, 200))
	sender.stored(loaded.name, "last")
	receiver = connect(t, f.gateway, loaded)
	receiver.acked = 1
	l.verify(t, texts(receiver.until("last")))
}
