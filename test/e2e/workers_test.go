package e2e

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Each message to the workers of an implementation goes to exactly one; what
// one leaves unfinished goes to another, flagged.
func testWorkers(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := "tb::" + ws + "::w"
	sender := connect(t, g, agent(ws, "i", "s"))
	const n = 40
	one, two := connect(t, g, task(ws, "w"), client(n)), connect(t, g, task(ws, "w"), client(n))
	bystander := connect(t, g, task(ws, "another"))
	sender.stored(to, numbered("m", 1, n)...)

	var work errgroup.Group
	got := make([][]string, 2)
	half := n / 2
	for i, p := range []*peer{one, two} {
		work.Go(func() error {
			// The least loaded gets the next: nobody acknowledges, so each gets
			// its half.
			for range half {
				m, err := p.message()
				if err != nil {
					return err
				}
				if m.GetRedelivered() || m.GetTopic() != to || m.GetDeliveryId() == 0 {
					return fmt.Errorf("%s got %v", p.name(), m)
				}
				got[i] = append(got[i], string(m.GetPayload()))
			}
			return nil
		})
	}
	check(t, work.Wait())
	all := slices.Concat(got...)
	slices.Sort(all)
	if want := numbered("m", 1, n); len(slices.Compact(slices.Clone(all))) != len(want) {
		t.Errorf("%d messages reached the workers, some twice: %q", len(all), all)
	}
	for _, list := range got {
		if !slices.IsSortedFunc(list, byNumber) {
			t.Errorf("a worker got its messages in the order %q", list)
		}
	}

	// The first finishes all but five and dies.
	one.acks(uint64(half - 5))
	two.acks(uint64(half))
	left := slices.Clone(got[0][half-5:])
	one.cut()
	var again []string
	for range left {
		m := two.read()
		if !m.GetRedelivered() {
			t.Errorf("%q comes from a dead worker and is not flagged", m.GetPayload())
		}
		again = append(again, string(m.GetPayload()))
	}
	slices.SortFunc(again, byNumber)
	if !slices.Equal(again, left) {
		t.Errorf("the other worker got %q, want %q", again, left)
	}
	two.acks(uint64(half + len(left)))

	// A nack gives a message back, to whoever is willing.
	three := connect(t, g, task(ws, "w"))
	sender.stored(to, "nacked")
	var holder *peer
	var m *aetherv1.IncomingMessage
	both := make(chan struct {
		p   *peer
		m   *aetherv1.IncomingMessage
		err error
	}, 2)
	for _, p := range []*peer{two, three} {
		go func() {
			m, err := p.message()
			both <- struct {
				p   *peer
				m   *aetherv1.IncomingMessage
				err error
			}{p, m, err}
		}()
	}
	r := <-both
	check(t, r.err)
	holder, m = r.p, r.m
	check(t, holder.stream.Send(&up{Payload: &aetherv1.UpstreamMessage_Ack{Ack: &aetherv1.DeliveryAck{
		Nack: []*aetherv1.Nack{{DeliveryId: m.GetDeliveryId(), Requeue: true, Reason: "busy"}},
	}}}))
	other := two
	if holder == two {
		other = three
	}
	holder.leaves()
	r = <-both
	check(t, r.err)
	if r.p != other || string(r.m.GetPayload()) != "nacked" || !r.m.GetRedelivered() {
		t.Errorf("after the nack %s got %v", r.p.name(), r.m)
	}
	check(t, other.acknowledge(r.m.GetDeliveryId()))

	sender.stored("tb::"+ws+"::another", "last")
	wantTexts(t, bystander.until("last"), nil)
	sender.stored(to, "last")
	wantTexts(t, other.until("last"), nil)
}

// A worker gets no more than its window has room for; the rest waits for one
// that is free.
func testWorkerWindow(t *testing.T, g *gateway) {
	ws := workspace(t)
	to := "tb::" + ws + "::w"
	sender := connect(t, g, agent(ws, "i", "s"))
	full := connect(t, g, task(ws, "w"), client(5))
	sender.stored(to, numbered("m", 1, 12)...)
	var got []*aetherv1.IncomingMessage
	for range 5 {
		got = append(got, full.read())
	}
	free := connect(t, g, task(ws, "w"), client(10))
	for range 7 {
		got = append(got, free.read())
	}
	wantTexts(t, got, numbered("m", 1, 12))
	wantFresh(t, got)
	// The full one goes on when it has acknowledged.
	free.leaves() // what it had comes back
	full.acks(5)
	again := map[string]bool{}
	for range 7 {
		m := full.read()
		again[string(m.GetPayload())] = m.GetRedelivered()
		full.acknowledgeFrame(&aetherv1.DeliveryAck{Ids: []uint64{m.GetDeliveryId()}})
	}
	for _, text := range numbered("m", 6, 12) {
		if !again[text] {
			t.Errorf("%q did not come back, or is not flagged: %v", text, again)
		}
	}
	sender.stored(to, "last")
	wantTexts(t, full.until("last"), nil)
}

func byNumber(a, b string) int {
	_, m, _ := parseNumbered(a)
	_, n, _ := parseNumbered(b)
	return m - n
}
