package e2e

import (
	"slices"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// TestServeWorkersOfTwoGateways: the workers of two gateways compete for the
// same messages. What a killed gateway's worker had open goes to the other's,
// flagged, and so does what a worker leaves that ends (delivery rules T1 to
// T3).
func TestServeWorkersOfTwoGateways(t *testing.T) {
	t.Parallel()
	broker, database, redis := testservices.RabbitMQ(t), testservices.Postgres(t), testservices.Redis(t)
	start := func(name string) *gateway {
		g := startServe(t, broker.URL(), database.URL(), "AETHER_REDIS_URL="+redis.URL(), "AETHER_INSTANCE_ID="+name, withOps, withRoutes)
		g.awaitReady(t, true, patience)
		return g
	}
	a, b := start("a"), start("b")
	const ws = "two-gateways"
	to := "tb::" + ws + "::w"
	sender := connect(t, b, agent(ws, "i", "s"))

	// Nobody acknowledges, and both windows together have room for all: each
	// gets its half.
	const n, half = 60, 30
	one, two := connect(t, a, task(ws, "w"), client(half)), connect(t, b, task(ws, "w"), client(half))
	sender.stored(to, numbered("m", 1, n)...)
	first, second := holds(one, half), holds(two, half)
	wantFresh(t, slices.Concat(first, second))
	all := texts(slices.Concat(first, second))
	slices.SortFunc(all, byNumber)
	if !slices.Equal(all, numbered("m", 1, n)) {
		t.Errorf("the workers got %q", all)
	}

	// One finishes all but five; its gateway is killed when that is known.
	one.acks(half - 5)
	one.beats(3)
	a.kill()
	two.acks(half)
	wantAgain(t, holds(two, 5), texts(first[half-5:]))
	two.acks(half + 5)

	// The killed one comes back, and its new worker gets what the other's
	// leaves.
	a.restart()
	sender.stored(to, numbered("n", 1, 10)...)
	rest := texts(holds(two, 10))
	a.awaitReady(t, true, patience)
	three := connect(t, a, task(ws, "w"), client(half))
	two.leaves()
	wantAgain(t, holds(three, 10), rest)
	three.acks(10)
	sender.stored(to, "last")
	wantTexts(t, three.until("last"), nil)

	testRoutes(t, a, b)
}

// holds reads n messages and acknowledges none.
func holds(p *peer, n int) (list []*aetherv1.IncomingMessage) {
	p.tb.Helper()
	for range n {
		list = append(list, p.read())
	}
	return list
}

// wantAgain says that the messages are these, in any order, and flagged.
func wantAgain(t *testing.T, list []*aetherv1.IncomingMessage, want []string) {
	t.Helper()
	for _, m := range list {
		if !m.GetRedelivered() {
			t.Errorf("%q is not flagged", m.GetPayload())
		}
	}
	got := texts(list)
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%q came again, want %q", got, want)
	}
}
