package router

import "testing"

// apart makes a gateway lose Redis, or find it again.
func (g *gateway) apart(on bool) {
	g.link.Refuse(on)
	g.link.Cut()
}

// dead waits until the other gateways take this one for dead.
func (ps *peers) dead(g *gateway) {
	ps.t.Helper()
	g.eventually(func() bool {
		for _, other := range ps.list {
			if other == g {
				continue
			}
			list, _ := other.presence.Instances()
			for _, i := range list {
				if i.ID == g.presence.Self().ID {
					return false
				}
			}
		}
		return true
	})
}

// Delivery rule T2: what a dead gateway's workers have not acknowledged comes
// again on another, flagged; its own late acknowledgements change nothing.
func TestT2GatewayDies(t *testing.T) {
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
	one.ack(5)
	a.eventually(func() bool { return ps.open() == 15 })
	y := newTally()
	b.hire("2", 4, y, nil)
	b.entered()
	a.apart(true)
	ps.dead(a)
	b.eventually(func() bool { return y.count() == 15 })
	a.apart(false)
	one.ack(20)
	b.eventually(func() bool { return ps.open() == 0 })
	flood(from, 20, 1)
	b.eventually(func() bool { return y.count()+len(one.queue) == 16 || one.pump() && false })
	y.mu.Lock()
	defer y.mu.Unlock()
	for text, times := range y.times {
		if times != 1 || text != "20" && y.clean[text] != 0 {
			t.Errorf("%s came %d times, %d of them not flagged", text, times, y.clean[text])
		}
	}
}

// check says that everything was acknowledged, and that only flagged ones
// came twice. It returns how many did.
func (y *tally) check(t *testing.T, n int) (again int) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.acked) != n {
		t.Errorf("%d of %d messages were acknowledged", len(y.acked), n)
	}
	for text, times := range y.times {
		if y.clean[text] > 1 {
			t.Errorf("%s came %d times, %d of them not flagged", text, times, y.clean[text])
		}
		again += times - 1
	}
	return again
}

// Exchanges whose outcome nobody knows lose and repeat nothing: Redis may have
// done what was asked, or may do it later.
func TestT2UnknownOutcome(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a := ps.list[0]
	y := ps.crew(16)
	from := a.agent("a", client(0))
	const n, rounds = 3000, 15
	for i := range rounds {
		flood(from, i*n/rounds, n/rounds)
		ps.list[i%2].link.Cut()
		a.eventually(func() bool { return y.count() > i*n/rounds })
	}
	a.eventually(func() bool { return y.count() == n })
	if again := y.check(t, n); again != 0 {
		t.Errorf("%d came again", again)
	}
	a.eventually(func() bool { return ps.open() == 0 })
}

// Delivery rule T3: after a loss of Redis nothing is lost, and what comes
// again is flagged.
func TestT3RedisLosesItsState(t *testing.T) {
	for name, lose := range map[string]func(ps *peers){
		"flushed":   func(ps *peers) { ps.raw.FlushAll(ps.t.Context()) },
		"restarted": func(ps *peers) { ps.server.Kill(); ps.server.Start() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ps := together(t, 2)
			a := ps.list[0]
			y := ps.crew(16)
			from := a.agent("a", client(0))
			const n = 3000
			for i := range 3 {
				flood(from, i*n/3, n/3)
				if i == 1 {
					a.eventually(func() bool { return y.count() > n/3 })
					lose(ps)
				}
			}
			a.eventually(func() bool { return y.count() == n })
			t.Logf("%d came again", y.check(t, n))
			a.eventually(func() bool { return ps.open() == 0 })
		})
	}
}

// Both at once: Redis is emptied and a gateway dies. The other one has a copy
// of what was open (delivery rule T2).
func TestT2RedisLostWithAGateway(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	from := a.agent("a", client(0))
	one := a.worker("1", client(20))
	y := newTally()
	b.hire("2", 4, y, nil)
	a.entered()
	b.entered()
	flood(from, 0, 20)
	got := 0
	a.eventually(func() bool {
		for one.pump() {
		}
		got = len(one.queue)
		return got+y.count() == 20
	})
	if got == 0 {
		t.Fatal("the first gateway's worker got nothing")
	}
	b.eventually(func() bool {
		n := 0
		b.contest(func(c *contest) { n = len(c.table) })
		return n >= got
	})
	a.apart(true)
	if err := ps.raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool { return y.count() == 20 })
	y.check(t, 20)
}

// All workers lose their sessions with Redis, as fenced gateways end them; when
// it is back, empty, they get what they had, also on another gateway.
func TestT3EverybodyComesBack(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	from := a.agent("a", client(0))
	one := a.worker("1", client(3))
	a.entered()
	flood(from, 0, 10)
	for range 3 {
		one.message()
	}
	a.settled()
	ps.server.Kill()
	a.eventually(func() bool { return a.presence.Status() != nil && b.presence.Status() != nil })
	one.leave()
	flood(from, 10, 1) // nobody listens
	a.settled()
	ps.server.Start()
	a.eventually(func() bool { return a.presence.Fence() != nil })
	y := newTally()
	b.hire("2", 4, y, nil)
	b.eventually(func() bool { return y.count() == 10 })
	flood(from, 11, 1)
	b.eventually(func() bool { return y.count() == 11 })
	y.check(t, 11)
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.times["10"] != 0 {
		t.Error("what came while nobody listened was kept")
	}
	for _, text := range []string{"0", "1", "2"} {
		if y.clean[text] != 0 {
			t.Errorf("%s is not flagged", text)
		}
	}
}

// What is kept of claims is what is open, whatever went through.
func TestT2ClaimsAreCompacted(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a := ps.list[0]
	y := ps.crew(32)
	from := a.agent("a", client(0))
	const n = 5000
	flood(from, 0, n)
	a.eventually(func() bool { return y.count() == n })
	a.eventually(func() bool { return ps.open() == 0 })
	keys, err := ps.raw.Keys(t.Context(), "{aether}:0:tb*").Result()
	if err != nil || len(keys) > 3 {
		t.Errorf("left are %q, %v", keys, err)
	}
	for _, g := range ps.list {
		g.contest(func(c *contest) {
			if len(c.owned)+len(c.mine)+len(c.freeing)+len(c.candidates) != 0 {
				t.Errorf("the gateway remembers %d, %d, %d, %d", len(c.owned), len(c.mine), len(c.freeing), len(c.candidates))
			}
		})
	}
}

// A log that was made anew ends below what was decided of the old one; what it
// shows is handed out all the same, after a while.
func TestT1LogMadeAnew(t *testing.T) {
	t.Parallel()
	ps := together(t, 1)
	a := ps.list[0]
	y := newTally()
	a.hire("1", 4, y, nil)
	a.entered()
	if err := ps.raw.HSet(t.Context(), "{aether}:0:tb:g:"+tasks, "floor", 1<<40).Err(); err != nil {
		t.Fatal(err)
	}
	a.eventually(func() bool {
		looks := 0
		a.contest(func(c *contest) { looks = c.beyond })
		return looks > 3
	})
	flood(a.agent("a", client(0)), 0, 20)
	a.eventually(func() bool { return y.count() == 20 })
	if again := y.check(t, 20); again != 0 {
		t.Errorf("%d came again", again)
	}
}

// The same, noticed by the tails of two gateways at different times.
func TestT1LogMadeAnewUnderTwoGateways(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a := ps.list[0]
	y := ps.crew(4)
	from := a.agent("a", client(0))
	for i := range 20 {
		flood(from, i, 1)
		a.settled() // an entry each
	}
	a.eventually(func() bool { return y.count() == 20 })
	a.eventually(func() bool { return ps.open() == 0 })
	a.log.Lose(0, 0)
	flood(from, 100, 20)
	a.eventually(func() bool { return y.count() == 40 })
	y.check(t, 40)
}
