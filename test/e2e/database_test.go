package e2e

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// While the database is away sessions go on, new ones are refused, for nobody
// is connected and deaf; when it is back, what was acknowledged meanwhile
// counts.
func TestDatabaseKilled(t *testing.T) {
	t.Parallel()
	database := testservices.NewPostgres(t)
	g := startServe(t, testservices.RabbitMQ(t).URL(), database.URL())
	const ws = "database-killed"
	to := agent(ws, "i", "s")
	sender := connect(t, g, user(ws, "w", ws))
	receiver := connect(t, g, to, client(1000))
	sender.stored(to.name, numbered("m", 1, 100)...)
	for range 100 {
		receiver.read()
	}
	receiver.acks(50)
	receiver.synced()

	database.Kill()
	g.awaitReady(t, false, atOnce)
	sender.stored(to.name, numbered("m", 101, 200)...)
	for range 100 {
		receiver.read()
	}
	receiver.acks(150)
	begun := time.Now()
	if _, err := dial(t, g, agent(ws, "i", "new")); statusOf(err).Code() != codes.Unavailable {
		t.Errorf("a new session without a database: %v, want UNAVAILABLE", err)
	}
	within(t, atOnce, begun, "the refusal of a new session")
	receiver.synced()

	database.Start()
	g.awaitReady(t, true, atOnce)
	connect(t, g, agent(ws, "i", "new"))
	receiver.synced()
	receiver.beats(3) // positions are committed about once in a second
	receiver.cut()
	receiver = reconnect(t, g, to)
	sender.stored(to.name, "last")
	wantTexts(t, receiver.until("last"), numbered("m", 151, 200))
}
