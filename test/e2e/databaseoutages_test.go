package e2e

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// A database that is killed, hangs, or is cut off without a word: sessions and
// their deliveries go on, new sessions are refused at once with an error that
// may pass, and when it is back, what was acknowledged meanwhile counts, and
// nothing has piled up.
func TestDatabaseOutages(t *testing.T) {
	t.Parallel()
	database := testservices.NewPostgres(t)
	proxy := faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", database.Port()))
	through, err := url.Parse(database.URL())
	check(t, err)
	through.Host = proxy.Addr()
	f := &faults{proxy: proxy, gateway: startServe(t, testservices.RabbitMQ(t).URL(), through.String(), withOps)}
	for _, o := range []struct {
		name    string
		on, off func()
		reason  string
	}{
		{"killed", database.Kill, database.Start, "connection"},
		{"stopped", database.Stop, database.Cont, "no answer within"},
		{"black hole", func() { proxy.Blackhole(true) }, func() { proxy.Blackhole(false) }, "no answer within"},
		{"killed again", database.Kill, database.Start, "connection"},
	} {
		t.Run(o.name, func(t *testing.T) { databaseOutage(t, f, o.on, o.off, o.reason) })
	}
}

func databaseOutage(t *testing.T, f *faults, on, off func(), reason string) {
	ws := workspace(t)
	to := agent(ws, "i", "s")
	sender := connect(t, f.gateway, user(ws, "w", ws))
	receiver := connect(t, f.gateway, to, client(1000))
	sender.stored(to.name, numbered("m", 1, 100)...)
	for range 100 {
		receiver.read()
	}
	receiver.acks(50)
	receiver.synced()
	was := f.footprint(t)
	was.connections = 10 // the pool's eight at most, the one that listens, and the one that holds the right to be alone

	on()
	healed := false
	heal := func() {
		if !healed {
			healed = true
			off()
		}
	}
	defer heal()
	f.awaitReady(t, false, atOnce)
	f.awaitReason(t, "postgres: ", reason, atOnce)
	f.awaitReason(t, "log partition 0: ", "ok", atOnce)
	if up := f.metric(t, `aether_dependency_up{dependency="postgres"}`); up != 0 {
		t.Errorf("the metric says that the database is up: %v", up)
	}
	for i := range 5 {
		sender.stored(to.name, numbered("m", 101+i*20, 120+i*20)...)
		for range 20 {
			receiver.read()
		}
		receiver.beats(1) // seconds, in each of which positions are to be committed
	}
	receiver.acks(150)
	receiver.synced()
	// Many who come at once do not wait for each other, nor pile up.
	var knocking sync.WaitGroup
	begun := time.Now()
	for i := range 30 {
		knocking.Go(func() {
			init, err := agent(ws, "i", fmt.Sprint("new", i)).frame()
			if err != nil {
				t.Error(err)
				return
			}
			w, err := tryOpen(f.grpc)
			if err != nil {
				t.Error(err)
				return
			}
			defer w.cut()
			if err := w.greet(init); statusOf(err).Code() != codes.Unavailable {
				t.Errorf("a new session without a database: %v, want UNAVAILABLE", err)
			}
		})
	}
	knocking.Wait()
	within(t, atOnce, begun, "the refusal of new sessions")

	heal()
	f.awaitReady(t, true, recovery)
	f.awaitFootprint(t, was, 5)
	connect(t, f.gateway, agent(ws, "i", "new"))
	receiver.synced()
	receiver.beats(3) // positions are committed about once in a second
	receiver.cut()
	receiver = reconnect(t, f.gateway, to)
	sender.stored(to.name, "last")
	wantTexts(t, receiver.until("last"), numbered("m", 151, 200))
}
