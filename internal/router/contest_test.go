package router

import (
	"fmt"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Delivery rule T1: each message goes to exactly one worker of all gateways,
// and all gateways have their share.
func TestT1OneWorkerOfAllGateways(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	y := newTally()
	workers := []*labour{a.hire("1", 16, y, nil), a.hire("2", 16, y, nil), b.hire("3", 16, y, nil), b.hire("4", 16, y, nil)}
	a.entered()
	b.entered()
	const n = 4000
	from := [...]*session{a.agent("a", client(0)), b.agent("b", client(0))}
	for i := range 8 {
		flood(from[i%2], i*n/8, n/8)
	}
	a.eventually(func() bool { return y.count() == n })
	a.settled()
	b.settled()
	y.mu.Lock()
	defer y.mu.Unlock()
	for text, times := range y.times {
		if times != 1 || y.clean[text] != 1 {
			t.Errorf("%s came %d times, %d of them not flagged", text, times, y.clean[text])
		}
	}
	onA := y.by[workers[0]] + y.by[workers[1]]
	t.Logf("%d and %d", onA, n-onA)
	if onA < n/5 || onA > n*4/5 {
		t.Errorf("one gateway's workers got %d of %d messages", onA, n)
	}
	a.eventually(func() bool { return ps.open() == 0 })
}

// Nobody listening means on no gateway: what is sent then is not kept, and a
// worker that comes later, anywhere, does not get it.
func TestT1NobodyListensOnAnyGateway(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	from := a.agent("a", client(0))
	from.send(tasks, "before", "")
	a.settled()
	y := newTally()
	one := a.hire("1", 4, y, nil)
	a.entered()
	from.send(tasks, "on a", "")
	a.eventually(func() bool { return y.count() == 1 })
	two := b.hire("2", 4, y, nil)
	b.entered()
	one.leave()
	from.send(tasks, "on b", "")
	a.eventually(func() bool { return y.count() == 2 })
	two.leave()
	b.eventually(func() bool {
		return ps.raw.HExists(t.Context(), "{aether}:0:tb:g:"+tasks, "left").Val()
	})
	from.send(tasks, "nobody", "")
	a.settled()
	three := a.hire("3", 4, y, nil)
	a.entered()
	from.send(tasks, "after", "")
	a.eventually(func() bool { return y.count() == 3 })
	three.leave()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, text := range []string{"on a", "on b", "after"} {
		if y.times[text] != 1 {
			t.Errorf("%s came %d times", text, y.times[text])
		}
	}
}

// What the workers of one gateway have no credit for goes to those of another,
// also what was sent before they came.
func TestT1BacklogOfAnotherGateway(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	from := a.agent("a", client(0))
	one := a.worker("1", client(1))
	a.entered()
	flood(from, 1, 2000)
	if m := one.message(); string(m.GetPayload()) != "1" {
		t.Fatalf("got %v", m)
	}
	a.settled()
	y := newTally()
	b.hire("2", 8, y, nil)
	b.eventually(func() bool { return y.count() == 1999 })
	one.leave() // it did not acknowledge the first one
	b.eventually(func() bool { return y.count() == 2000 })
	y.mu.Lock()
	defer y.mu.Unlock()
	for text, times := range y.times {
		if times != 1 || (y.clean[text] == 0) != (text == "1") {
			t.Errorf("%s came %d times, %d of them not flagged", text, times, y.clean[text])
		}
	}
}

// A gateway whose workers are idle is not slower than one whose workers have
// much to do: of few messages both get some.
func TestT1LeastLoadedGateway(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	from := a.agent("a", client(0))
	one, two := a.worker("1", client(100)), b.worker("2", client(100))
	a.entered()
	b.entered()
	a.eventually(func() bool { // both know of each other
		others := 0
		a.contest(func(c *contest) { others += c.others })
		b.contest(func(c *contest) { others += c.others })
		return others == 2
	})
	const n = 40
	for i := range n {
		from.send(tasks, fmt.Sprint(i), "r")
		from.answer()
	}
	load := func(s *session) int {
		load, _ := s.box.Load(0)
		return load
	}
	a.eventually(func() bool { return load(one)+load(two) == n })
	if load(one) < n/5 || load(two) < n/5 {
		t.Errorf("%d and %d", load(one), load(two))
	}
}

// Delivery rule T3: a nack gives the message back to any gateway.
func TestT3NackGoesToAnyGateway(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	y := newTally()
	var bad *labour
	bad = a.hire("1", 4, y, func(m *aetherv1.IncomingMessage) bool {
		n, err := bad.box.Nack(m.GetDeliveryId(), true, "")
		if err != nil {
			t.Error(err)
		}
		a.r.Nacked(n)
		return false
	})
	b.hire("2", 4, y, nil)
	a.entered()
	b.entered()
	const n = 40
	flood(a.agent("a", client(0)), 0, n)
	a.eventually(func() bool { return y.count()+int(a.r.stats.GivenUp.Load()+b.r.stats.GivenUp.Load()) == n })
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.by[bad] == 0 || len(y.acked) < n*9/10 {
		t.Errorf("%d nacked, %d acknowledged of %d", y.by[bad], len(y.acked), n)
	}
	for text, times := range y.times {
		if times > groupAttempts || y.clean[text] != 1 {
			t.Errorf("%s came %d times, %d of them not flagged", text, times, y.clean[text])
		}
	}
}

// Delivery rule T3: what a worker left unfinished goes to another gateway at
// once.
func TestT3WorkerOfAnotherGatewayEnds(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	from := a.agent("a", client(0))
	one := a.worker("1", client(20))
	a.entered()
	flood(from, 0, 20)
	for range 20 {
		one.message()
	}
	y := newTally()
	b.hire("2", 4, y, nil)
	b.entered()
	one.leave()
	b.eventually(func() bool { return y.count() == 20 })
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.clean) != 0 {
		t.Errorf("not flagged: %v", y.clean)
	}
}
