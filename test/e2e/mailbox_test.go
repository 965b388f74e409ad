package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A mailbox begins when it is first addressed; what is acknowledged, the very
// first message too, never comes again.
func testNeverConnected(t *testing.T, g *gateway) {
	ws := workspace(t)
	sender := connect(t, g, user(ws, "w", ws))
	to := agent(ws, "i", "new")
	sent := numbered("m", 1, 10)
	sender.stored(to.name, sent...)

	receiver := connect(t, g, to)
	var got []*aetherv1.IncomingMessage
	for range sent {
		got = append(got, receiver.read())
	}
	wantTexts(t, got, sent)
	wantFresh(t, got)
	for i, m := range got {
		if m.GetDeliveryId() != uint64(i+1) {
			t.Errorf("message %d has the delivery id %d", i+1, m.GetDeliveryId())
		}
	}
	// Only the first is done.
	receiver.acks(1)
	receiver.leaves()

	receiver = connect(t, g, to)
	sender.stored(to.name, "marker")
	wantTexts(t, receiver.until("marker"), sent[1:])
	receiver.acks(10)
	receiver.leaves()

	receiver = connect(t, g, to)
	sender.stored(to.name, "end")
	wantTexts(t, receiver.until("end"), nil)
}

// Each idle connection leaves the position where it is.
func testIdleReconnects(t *testing.T, g *gateway) {
	for name, mode := range map[string]option{"client": client(0), "auto": auto, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ws := workspace(t)
			sender := connect(t, g, user(ws, "w", ws))
			to := agent(ws, "i", "s")
			for round := range 3 {
				text := fmt.Sprintf("message %d", round)
				receiver := connect(t, g, to, mode)
				sender.stored(to.name, text)
				m := receiver.read()
				if string(m.GetPayload()) != text {
					t.Errorf("got %q, want %q", m.GetPayload(), text)
				}
				if name == "client" {
					receiver.acks(m.GetDeliveryId())
				}
				receiver.leaves()
				for range 2 {
					connect(t, g, to, mode).leaves()
				}
				// Sent while nobody is there.
				sender.stored(to.name, text+" absent")
				receiver = connect(t, g, to, mode)
				m = receiver.read()
				if string(m.GetPayload()) != text+" absent" {
					t.Errorf("got %q, want %q", m.GetPayload(), text+" absent")
				}
				if name == "client" {
					receiver.acks(m.GetDeliveryId())
				}
				receiver.leaves()
			}
		})
	}
}

// A client that reads slowly loses nothing: 4 MB are more than what waits for
// it in memory, twice: once while it was away, once while it is connected and
// reads nothing.
func testSlowReader(t *testing.T, g *gateway) {
	ws := workspace(t)
	sender := connect(t, g, user(ws, "w", ws))
	to := agent(ws, "i", "s")
	fill := strings.Repeat("x", 2000)
	sent := numbered(fill, 1, 4000)
	sender.stored(to.name, sent[:2000]...)
	receiver := connect(t, g, to, client(16))
	first := receiver.read()
	sender.stored(to.name, sent[2000:]...)

	got := []*aetherv1.IncomingMessage{first}
	for len(got) < len(sent) {
		if len(got)%8 == 0 {
			receiver.acks(uint64(len(got)))
		}
		got = append(got, receiver.read())
	}
	wantTexts(t, got, sent)
	wantFresh(t, got)
}

// Messages to an agent that has never connected arrive once and in order, and
// then nothing of it again.
func testTwoThousandWaiting(t *testing.T, g *gateway) {
	ws := workspace(t)
	sender := connect(t, g, user(ws, "w", ws))
	to := agent(ws, "i", "s")
	sent := numbered("m", 1, 2000)
	sender.stored(to.name, sent...)

	receiver := connect(t, g, to)
	got := receiver.reads(len(sent))
	wantTexts(t, got, sent)
	wantFresh(t, got)
	last := int64(-1)
	for _, m := range got {
		if m.Position == nil {
			t.Errorf("%q comes from the log and has no position", m.GetPayload())
			break
		}
		if p := int64(m.GetPosition()); p <= last {
			t.Errorf("%q has the position %d after %d", m.GetPayload(), p, last)
		} else {
			last = p
		}
	}
	receiver.leaves()

	receiver = connect(t, g, to)
	sender.stored(to.name, "marker")
	wantTexts(t, receiver.until("marker"), nil)
}

func testTwoThousandWaitingAuto(t *testing.T, g *gateway) {
	for name, mode := range map[string]option{"auto": auto, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ws := workspace(t)
			sender := connect(t, g, user(ws, "w", ws))
			to := agent(ws, "i", "s")
			sent := numbered("m", 1, 2000)
			sender.stored(to.name, sent...)

			receiver := connect(t, g, to, mode)
			var got []*aetherv1.IncomingMessage
			for range sent {
				got = append(got, receiver.read())
			}
			wantTexts(t, got, sent)
			// A half-close and a stream read to its end make all of it done.
			receiver.leaves()

			receiver = connect(t, g, to, mode)
			sender.stored(to.name, "marker")
			wantTexts(t, receiver.until("marker"), nil)
		})
	}
}

// Whoever catches up with a long backlog under live traffic gets everything of
// each sender once and in order.
func testBacklogAndLive(t *testing.T, g *gateway) {
	const (
		backlog = 20_000
		tick    = 20 * time.Millisecond
		perTick = 5 // of each of two senders: 500 messages a second
		ticks   = 200
	)
	ws := workspace(t)
	to := agent(ws, "i", "s")
	fill := " " + strings.Repeat("x", 200)
	one, two := connect(t, g, user(ws, "w", ws)), connect(t, g, agent(ws, "i", "sender"))
	numberedAs := func(who string, from, to int) []string {
		list := numbered(who, from, to)
		for i := range list {
			list[i] += fill
		}
		return list
	}
	one.stored(to.name, numberedAs("one", 1, backlog)...)

	receiver := connect(t, g, to, client(1000))
	var live errgroup.Group
	for name, w := range map[string]*wire{"one": one.wire, "two": two.wire} {
		live.Go(func() error {
			from := 1
			if name == "one" {
				from += backlog
			}
			ticker := time.NewTicker(tick)
			defer ticker.Stop()
			for range ticks {
				<-ticker.C
				for _, text := range numberedAs(name, from, from+perTick-1) {
					if err := w.send(chat(to.name, text)); err != nil {
						return err
					}
				}
				from += perTick
			}
			return w.store(to.name, name+" last"+fill)
		})
	}
	order := newOrder()
	want := map[string]int{"one": backlog + ticks*perTick, "two": ticks * perTick}
	for finished := 0; finished < 2; {
		m := receiver.read()
		if id := m.GetDeliveryId(); id >= receiver.acked+100 {
			receiver.acks(id)
		}
		text := strings.TrimSuffix(string(m.GetPayload()), fill)
		if who, ok := strings.CutSuffix(text, " last"); ok {
			finished++
			if order.last[who] != want[who] {
				t.Errorf("%d messages of %s came before its last, want %d", order.last[who], who, want[who])
			}
			continue
		}
		if err := order.next(text); err != nil {
			t.Fatal(err)
		}
		if m.GetRedelivered() {
			t.Fatalf("%q is flagged as redelivered", text)
		}
	}
	check(t, live.Wait())
}

// Twenty senders at once: each one's messages keep their order.
func testManySenders(t *testing.T, g *gateway) {
	const senders, each = 20, 200
	ws := workspace(t)
	to := user(ws, "w", ws)
	receiver := connect(t, g, to)
	var sending errgroup.Group
	for i := range senders {
		who := fmt.Sprintf("s%d", i)
		w := connect(t, g, agent(ws, "i", who)).wire
		sending.Go(func() error { return w.store(to.name, numbered(who, 1, each)...) })
	}
	order := newOrder()
	for range senders * each {
		m := receiver.read()
		if id := m.GetDeliveryId(); id >= receiver.acked+100 {
			receiver.acks(id)
		}
		text := string(m.GetPayload())
		if err := order.next(text); err != nil {
			t.Fatal(err)
		}
		who, _, _ := strings.Cut(text, " ")
		if want := "ag::" + ws + "::i::" + who; m.GetSourceTopic() != want {
			t.Fatalf("%q comes from %s, want %s", text, m.GetSourceTopic(), want)
		}
	}
	check(t, sending.Wait())
	connect(t, g, agent(ws, "i", "end")).stored(to.name, "marker")
	wantTexts(t, receiver.until("marker"), nil)
}

// order checks numbered texts of several senders.
type order struct{ last map[string]int }

func newOrder() *order { return &order{last: map[string]int{}} }

// next takes the next text, which must follow its sender's last.
func (o *order) next(text string) error {
	who, n, err := parseNumbered(text)
	if err != nil {
		return err
	}
	if n != o.last[who]+1 {
		return fmt.Errorf("%q came after %s %d", text, who, o.last[who])
	}
	o.last[who] = n
	return nil
}

func parseNumbered(text string) (who string, n int, err error) {
	if _, err = fmt.Sscanf(text, "%s %d", &who, &n); err != nil {
		return "", 0, fmt.Errorf("%.60q has no number: %w", text, err)
	}
	return who, n, nil
}
