package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// TestServeLimits: the rate of one user, whose windows are on two gateways,
// holds for both together; a workspace's quota of stored bytes survives the
// gateways.
func TestServeLimits(t *testing.T) {
	t.Parallel()
	const rate = 50
	broker, database, redis := testservices.RabbitMQ(t), testservices.Postgres(t), testservices.Redis(t)
	start := func(name string) *gateway {
		g := startServe(t, broker.URL(), database.URL(), "AETHER_REDIS_URL="+redis.URL(), "AETHER_INSTANCE_ID="+name,
			fmt.Sprint("AETHER_RATE_MESSAGES=", rate), "AETHER_RATE_BYTES=16MiB", "AETHER_LIMITS_STORED_BYTES_PER_WORKSPACE=300KB")
		g.awaitReady(t, true, patience)
		return g
	}
	a, b := start("a"), start("b")
	const ws = "limits"
	sink := agent(ws, "i", "sink")
	windows := []*peer{connect(t, a, user("u", "1", ws)), connect(t, b, user("u", "2", ws))}

	// What may be sent at once, and what has come on top of it in the time that
	// has passed: that is all.
	began, stored, refusals := time.Now(), 0, 0
	for time.Since(began) < 6*time.Second {
		for _, w := range windows {
			m := chat(sink.name, "m")
			m.RequestId = w.request()
			receipt, refusal := w.ask(m)
			if receipt != nil {
				stored++
				continue
			}
			refusals++
			if refusal.GetCode() != "ERR_RATE_LIMITED" || !refusal.GetRetryable() || refusal.GetRetryAfterMs() < 1 {
				t.Fatalf("refused with %v", refusal)
			}
		}
	}
	passed := time.Since(began).Seconds()
	t.Logf("%d stored, %d refused in %.1f s", stored, refusals, passed)
	if most := rate * (passed*1.1 + 2 + 1); refusals > 0 && float64(stored) > most {
		t.Errorf("%d messages were stored in %.1f s, %.0f may be", stored, passed, most)
	}
	if refusals > stored && float64(stored) < 0.9*rate*passed {
		t.Errorf("%d messages were stored in %.1f s, and %d were refused", stored, passed, refusals)
	}
	reader := connect(t, b, sink, client(10_000))
	connect(t, a, agent(ws, "i", "other")).stored(sink.name, "last") // somebody else is not limited
	if got := len(reader.until("last")); got != stored {
		t.Errorf("%d messages arrived, %d were stored", got, stored)
	}

	// The quota.
	writer := connect(t, a, agent(ws, "i", "writer"))
	text := strings.Repeat("x", 20_000)
	full := false
	for range 40 {
		m := chat(sink.name, text)
		m.RequestId = writer.request()
		if _, refusal := writer.ask(m); refusal != nil {
			if full = refusal.GetCode() == "ERR_QUOTA_EXCEEDED"; !full || refusal.GetRetryable() {
				t.Fatalf("refused with %v", refusal)
			}
			break
		}
	}
	if !full {
		t.Fatal("the workspace has no quota")
	}
	connect(t, b, agent("elsewhere", "i", "s")).stored("ag::elsewhere::i::s", text) // others have their own
	for _, g := range []*gateway{a, b} {
		g.terminate()
		g.awaitExit(25 * time.Second)
	}
	b.restart()
	b.awaitReady(t, true, patience)
	connect(t, b, agent(ws, "i", "writer")).refused("ERR_QUOTA_EXCEEDED", chat(sink.name, text))
}
