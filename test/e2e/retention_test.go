package e2e

import (
	"fmt"
	"strings"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// small is a log that keeps 2 MB, and a gateway that remembers 1 MB of it.
var small = []string{
	"AETHER_STREAMS_PARTITIONS=1", "AETHER_STREAMS_RECENT_BYTES=1MiB",
	"AETHER_STREAMS_RETENTION_MAX_BYTES=2MiB", "AETHER_STREAMS_SEGMENT_BYTES=512KiB",
}

func TestDevRetention(t *testing.T) {
	t.Parallel()
	g := &gateway{
		mode: "dev", env: append([]string{"AETHER_JWT_KEY_FILE=" + keyFile}, append(common, small[:3]...)...),
		args: []string{"dev", "--data-dir", t.TempDir(), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"},
	}
	g.begin(t)
	testRetention(t, g)
}

func TestServeRetention(t *testing.T) {
	t.Parallel()
	testRetention(t, startServe(t, testservices.NewBroker(t).URL(), testservices.Postgres(t).URL(), small...))
}

// Row 2: mail that retention removed before it was delivered is told by one
// HistoryGap before the next message. Who missed nothing is told of none: not
// who was away, not who was there all the time, and not who is new.
func testRetention(t *testing.T, g *gateway) {
	const ws = "retention"
	sender, filler := connect(t, g, user(ws, "w", ws)), connect(t, g, user(ws, "filler", ws))
	loses, away, idle := agent(ws, "i", "loses"), agent(ws, "i", "away"), agent(ws, "i", "idle")
	for _, id := range []identity{away, idle} {
		p := connect(t, g, id, client(0))
		sender.stored(id.name, "done")
		p.acks(p.read().GetDeliveryId())
		p.leaves()
	}
	there := connect(t, g, idle, client(0))
	sender.stored(loses.name, numbered("lost", 1, 5)...)

	// Others' traffic, until everything of before is gone.
	payload := strings.Repeat("x", 60_000)
	for i := range 200 {
		filler.stored("tb::"+ws+"::i", fmt.Sprint(i, payload))
	}
	sender.stored(loses.name, "kept")

	gapless := func(p *peer, text string) {
		t.Helper()
		m, err := p.await(func(m *down) bool { return m.GetMsg() != nil || m.GetGap() != nil })
		check(t, err)
		if m.GetGap() != nil || string(m.GetMsg().GetPayload()) != text {
			t.Errorf("%s got %.300s, want %q", p.name(), m.String(), text)
		}
		p.acks(m.GetMsg().GetDeliveryId())
	}
	p := connect(t, g, loses, client(0))
	m, err := p.await(func(m *down) bool { return m.GetMsg() != nil || m.GetGap() != nil })
	check(t, err)
	if gap := m.GetGap(); gap.GetReason() != aetherv1.HistoryGap_REASON_RETENTION || gap.GetTopic() != loses.name {
		t.Fatalf("the first that comes is %.200q", m.String())
	}
	gapless(p, "kept")
	p.synced()
	p.leaves()
	p = connect(t, g, loses, client(0))
	sender.stored(loses.name, "next")
	gapless(p, "next")

	for _, id := range []identity{away, agent(ws, "i", "new")} {
		p := connect(t, g, id, client(0))
		sender.stored(id.name, "next")
		gapless(p, "next")
	}
	sender.stored(idle.name, "next")
	gapless(there, "next")
	there.synced()
	there.cut()
	there = reconnect(t, g, idle, client(0))
	sender.stored(idle.name, "after")
	gapless(there, "after")
}
