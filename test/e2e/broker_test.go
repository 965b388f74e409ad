package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Confirms, and what the broker sends back, are held 300 ms while sessions
// join: live deliveries come before their confirm, and order is kept.
func testHeldConfirms(t *testing.T, f *faults) {
	const hold, joins = 300 * time.Millisecond, 3
	ws := workspace(t)
	to := agent(ws, "i", "r")
	f.proxy.DelayDown(hold)
	defer f.proxy.DelayDown(0)
	sender := connect(t, f.gateway, user(ws, "w", ws))
	sender.stored(to.name, numbered("s", 1, 50)...)

	var mu sync.Mutex
	receipts, sent := map[string]time.Time{}, make(chan error, 1)
	stop, answered := make(chan struct{}), make(chan error, 1)
	total := make(chan int, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := 51; ; n++ {
			select {
			case <-stop:
				total <- n - 51
				sent <- nil
				return
			case <-tick.C:
			}
			m := chat(to.name, fmt.Sprintf("s %d", n))
			m.RequestId = string(m.GetPayload())
			if err := sender.send(m); err != nil {
				total <- 0
				sent <- err
				return
			}
		}
	}()
	go func() {
		have, want := 0, -1
		for have != want {
			select {
			case want = <-total:
				continue
			default:
			}
			m, err := sender.recv()
			if err != nil {
				answered <- err
				return
			}
			if r := m.GetReceipt(); r != nil {
				mu.Lock()
				receipts[r.GetRequestId()] = time.Now()
				mu.Unlock()
				have++
			} else if m.GetError() != nil {
				answered <- fmt.Errorf("an error: %v", m.GetError())
				return
			}
		}
		answered <- nil
	}()

	arrived := map[string]time.Time{}
	last, lively, repeats := 0, 0, 0
	// follow takes the next number of a session: the one after the last, or,
	// for the first of a session, one that is not further: what the log had
	// not shown within a second when the session before it ended comes again.
	follow := func(m *aetherv1.IncomingMessage, first bool) {
		t.Helper()
		text := string(m.GetPayload())
		_, number, err := parseNumbered(text)
		check(t, err)
		if first && number <= last {
			repeats += last + 1 - number
			last = number - 1
		}
		if number != last+1 {
			t.Fatalf("%q came after number %d", text, last)
		}
		last = number
		if _, again := arrived[text]; !again {
			arrived[text] = time.Now()
		}
	}
	for range joins {
		// What comes without a position is handed over live: at first what
		// waited for the tail to catch up, then at once.
		receiver := connect(t, f.gateway, to, client(2000))
		for live, n := 0, 0; live < 250; n++ {
			m := receiver.read()
			follow(m, n == 0)
			if m.Position == nil {
				live++
			} else {
				live = 0
			}
			if n > 20_000 {
				t.Fatal("the session does not become live")
			}
			receiver.acks(m.GetDeliveryId())
		}
		lively = last
		receiver.leaves()
	}
	close(stop)
	check(t, <-sent)
	check(t, <-answered)
	early := 0
	for n := lively - 99; n <= lively; n++ {
		text := fmt.Sprintf("s %d", n)
		if lead := receipts[text].Sub(arrived[text]); lead > hold/3 {
			early++
		}
	}
	if early < 90 {
		t.Errorf("%d of 100 live deliveries came well before their receipt", early)
	}
	// What was sent after the last one left is waiting; what was read is not.
	receiver := connect(t, f.gateway, to)
	sender.stored(to.name, "last")
	receiver.acked = 1
	for i, m := range receiver.until("last") {
		follow(m, i == 0)
	}
	if repeats > 1000 {
		t.Errorf("%d messages that were acknowledged came again", repeats)
	}
	if want := 50 + len(receipts); last != want {
		t.Errorf("the last number is %d, want %d", last, want)
	}
}

// A broker that is killed under load and comes back: sends fail fast
// meanwhile, delivery goes on soon after, everything with a receipt arrives.
func testBrokerKilled(t *testing.T, f *faults) {
	ws := workspace(t)
	to := user(ws, "w", ws)
	receiver := take(connect(t, f.gateway, to, client(2000)))
	crier, listener := connect(t, f.gateway, agent(ws, "i", "crier")), connect(t, f.gateway, agent(ws, "i", "listener"), auto)
	l := newLoad(t, f.gateway, to.name, 5*time.Millisecond, crowd(ws))
	// arrives says whether something has come that was sent since.
	arrives := func(since time.Time) bool {
		return slices.ContainsFunc(receiver.all(), func(text string) bool { return l.sentAt(text).After(since) })
	}

	if !eventually(patience, func() bool { return receiver.count() > 500 }) {
		t.Fatal("nothing arrives")
	}
	f.broker.Kill()
	before := l.failed()
	f.awaitReady(t, false, 10*time.Second)
	if !eventually(patience, func() bool { return l.failed() > before+100 }) {
		t.Fatal("sends do not fail while the broker is away")
	}
	back := f.revive()
	if !eventually(patience, func() bool { return arrives(back) }) {
		t.Fatalf("nothing that was sent after the broker's return arrives; the stream: %v", receiver.ended())
	}
	within(t, recovery, back, "the first delivery after the broker's return")
	f.awaitReady(t, true, recovery)
	crier.stored("ga::"+ws, "back again")
	wantTexts(t, listener.until("back again"), nil)
	more := receiver.count()
	if !eventually(patience, func() bool { return receiver.count() > more+500 }) {
		t.Error("delivery does not go on")
	}
	check(t, l.end())
	crier.stored(to.name, "last")
	if !eventually(patience, func() bool { return receiver.has("last") }) {
		t.Fatal("the last message does not come")
	}
	got := slices.DeleteFunc(receiver.all(), func(text string) bool { return text == "last" })
	l.verify(t, got)
	if l.slowest > 6*time.Second {
		t.Errorf("the slowest answer took %v, want less than 6 s", l.slowest)
	}
	for code := range l.errors {
		if code != "ERR_UNAVAILABLE" && code != "ERR_PUBLISH_FAILED" {
			t.Errorf("sends failed with %s", code)
		}
	}
	t.Logf("%d stored, %v failed, the slowest answer after %v, %d delivered", l.storedCount(), l.errors, l.slowest, len(got))
}

// Connections to the broker that break under load are made anew: the same
// promises, without a broker's start to wait for.
func testBrokerCut(t *testing.T, f *faults) {
	const cuts = 5
	ws := workspace(t)
	to := agent(ws, "i", "r")
	receiver := connect(t, f.gateway, to, client(5000))
	l := newLoad(t, f.gateway, to.name, 2*time.Millisecond, crowd(ws))
	var got []string
	take := func(n int) {
		t.Helper()
		for range n {
			m := receiver.read()
			got = append(got, string(m.GetPayload()))
			if id := m.GetDeliveryId(); id >= receiver.acked+100 {
				receiver.acks(id)
			}
		}
	}
	for range cuts {
		take(300)
		f.proxy.Cut()
		cut := time.Now()
		for {
			take(1)
			if l.sentAt(got[len(got)-1]).After(cut) && l.isStored(got[len(got)-1]) {
				break
			}
		}
		within(t, atOnce, cut, "delivery after a cut")
	}
	take(100)
	check(t, l.end())
	last := connect(t, f.gateway, user(ws, "w", ws))
	last.stored(to.name, "last")
	got = append(got, texts(receiver.until("last"))...)
	l.verify(t, got)
	if l.slowest > 6*time.Second {
		t.Errorf("the slowest answer took %v, want less than 6 s", l.slowest)
	}
	t.Logf("%d stored, %v failed, the slowest answer after %v", l.storedCount(), l.errors, l.slowest)
}
