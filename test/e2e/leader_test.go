package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// Of three brokers the one that leads a partition is killed under load, twice:
// the others take over, all subscriptions are back soon after, nothing with a
// receipt is lost and nothing comes twice.
func TestLeaderKilled(t *testing.T) {
	alone(t)
	const ws = "leader"
	cluster := testservices.NewRabbitCluster(t, nil)
	g := startServe(t, cluster.URLs(), testservices.Postgres(t).URL(), withOps, "AETHER_STREAMS_PARTITIONS=2")
	subs := subscribe(t, g, ws)
	subs.probe("before", time.Now(), patience)
	to := user(ws+"-r", "w", ws)
	receiver := take(connect(t, g, to, client(5000)))
	sentinel := connect(t, g, user(ws, "sentinel", ws))
	l := newLoad(t, g, to.name, 10*time.Millisecond, crowd(ws))
	was := g.goroutines(t)
	for round := range 2 {
		more := receiver.count() + 50
		if !eventually(patience, func() bool { return receiver.count() > more }) {
			t.Fatalf("round %d: nothing arrives", round)
		}
		leader := cluster.Node(cluster.Leader("aether.p0000"))
		leader.Kill()
		killed := time.Now()
		subs.probe(fmt.Sprintf("round %d", round), killed, recovery)
		g.awaitReady(t, true, recovery)
		leader.Start()
	}
	l.settle(t, sentinel, to.name, receiver)
	subs.once()
	if !eventually(patience, func() bool { return g.goroutines(t).lasting() <= was.lasting()+10 }) {
		now := g.goroutines(t)
		t.Errorf("there are %d goroutines, before there were %d; more of\n%s", now.lasting(), was.lasting(), now.since(was))
	}
	t.Logf("%d stored, %v failed, the slowest answer after %v", l.storedCount(), l.errors, l.slowest)
}
