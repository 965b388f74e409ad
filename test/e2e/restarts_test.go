package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// longVariable asks for the long form of tests that have one.
const longVariable = "AETHER_TEST_LONG"

// long chooses between the short and the long form of a test.
func long(short, long int) int {
	if os.Getenv(longVariable) != "" {
		return long
	}
	return short
}

// recovery is how soon after the end of a fault everything works again: what
// docs/guarantees.md promises. A broker's start ends when it serves its streams.
const recovery = 15 * time.Second

// subscribers are readers of every kind, spread over the partitions, and
// somebody who writes to them.
type subscribers struct {
	tb     testing.TB
	ws     string
	prober *peer
	takers map[string]*taker // by the address that reaches it
}

func subscribe(tb testing.TB, g *gateway, ws string) *subscribers {
	tb.Helper()
	s := &subscribers{tb: tb, ws: ws, takers: map[string]*taker{}}
	s.prober = connect(tb, g, bridge(ws, "prober"))
	for i := range 6 {
		id := agent(ws, "sub", fmt.Sprint(i))
		s.takers[id.name] = take(connect(tb, g, id, client(1000)))
	}
	for _, id := range []identity{user(ws+"-sub", "w", ws), uniqueTask(ws, "sub", "u")} {
		s.takers[id.name] = take(connect(tb, g, id, client(1000)))
	}
	s.takers["ga::"+ws] = take(connect(tb, g, agent(ws, "sub", "listener"), client(1000)))
	s.takers["tb::"+ws+"::sub"] = take(connect(tb, g, task(ws, "sub"), client(1000)))
	s.takers["event::"+ws] = take(connect(tb, g, engine(ws, ws), client(1000)))
	return s
}

// probe writes to every subscriber and waits until all of them have it, at
// most so long after a moment. It returns how long that took.
func (s *subscribers) probe(name string, since time.Time, limit time.Duration) (longest time.Duration) {
	s.tb.Helper()
	for to := range s.takers {
		m := chat(to, name+" to "+to)
		if to == "event::"+s.ws {
			m.MessageType = aetherv1.MessageType_MESSAGE_TYPE_EVENT
		}
		s.prober.insist(m)
	}
	for to, taker := range s.takers {
		if !eventually(patience, func() bool { return taker.has(name + " to " + to) }) {
			s.tb.Errorf("%s: what was sent to %s does not come; its stream: %v", name, to, taker.ended())
			continue
		}
		taker.mu.Lock()
		took := taker.at[name+" to "+to].Sub(since)
		taker.mu.Unlock()
		if took > limit {
			s.tb.Errorf("%s: %s was reached after %v, want at most %v", name, to, took, limit)
		}
		longest = max(longest, took)
	}
	return longest
}

func (s *subscribers) once() {
	s.tb.Helper()
	for _, t := range s.takers {
		t.once(s.tb)
	}
}

// Row 16: a broker that is killed and comes back, again and again, under load:
// all subscriptions are back soon, nothing with a receipt is lost, nothing comes
// twice, readiness is honest, and nothing piles up. AETHER_TEST_LONG=1 makes it
// 20 times.
func TestRow16BrokerRestarts(t *testing.T) {
	alone(t)
	rounds := long(3, 20)
	const ws = "restarts"
	f := newFaults(t, testservices.Postgres(t).URL())
	subs := subscribe(t, f.gateway, ws)
	to := user(ws+"-r", "w", ws)
	receiver := take(connect(t, f.gateway, to, client(5000)))
	sentinel := connect(t, f.gateway, user(ws, "sentinel", ws))
	subs.probe("before", time.Now(), patience)
	l := newLoad(t, f.gateway, to.name, 10*time.Millisecond, crowd(ws))
	was, slowest := f.footprint(t), time.Duration(0)
	for round := range rounds {
		more := receiver.count() + 50
		if !eventually(patience, func() bool { return receiver.count() > more }) {
			t.Fatalf("round %d: nothing arrives", round)
		}
		f.broker.Kill()
		f.awaitReady(t, false, 10*time.Second)
		f.awaitReason(t, "log partition 0: ", "cannot be written: ", 10*time.Second)
		back := f.revive()
		slowest = max(slowest, subs.probe(fmt.Sprintf("round %d", round), back, recovery))
		f.awaitReady(t, true, recovery)
	}
	l.settle(t, sentinel, to.name, receiver)
	subs.once()
	f.awaitFootprint(t, was, rounds)
	now := f.footprint(t)
	t.Logf("%d restarts: all reached after %v at most, %d stored, %v failed, slowest answer %v; goroutines %v then %v, connections %d then %d",
		rounds, slowest, l.storedCount(), l.errors, l.slowest, was.goroutines.lasting(), now.goroutines.lasting(), was.connections, now.connections)
}
