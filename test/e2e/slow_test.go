package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// Row 8: of 50 readers of a broadcast one stops. What the others get is
// complete, in order, and about as soon as without it.
func TestRow8OneSlowReader(t *testing.T) {
	t.Parallel()
	const (
		ws      = "row8"
		readers = 50
		count   = 2000
		pace    = 2 * time.Millisecond // 500 in a second
	)
	g := startServe(t, testservices.RabbitMQ(t).URL(), testservices.Postgres(t).URL())
	sender := connect(t, g, user(ws, "w", ws))
	// So much that what a stopped reader does not take fills all buffers.
	fill := strings.Repeat("x", 2000)
	var all []*peer
	for i := range readers {
		all = append(all, connect(t, g, agent(ws, "i", fmt.Sprint(i)), auto))
	}
	run := func(name string, who []*peer) (p99 time.Duration) {
		t.Helper()
		var mu sync.Mutex
		sent := make([]time.Time, count)
		var late []time.Duration
		var reading sync.WaitGroup
		for _, p := range who {
			reading.Go(func() {
				for n := range count {
					m, err := p.message()
					if err != nil {
						t.Errorf("%s: %s waits for message %d: %v", name, p.name(), n, err)
						return
					}
					now := time.Now()
					if want := fmt.Sprintf("%s %d %s", name, n, fill); string(m.GetPayload()) != want {
						t.Errorf("%s: %s got %.40q, want %.40q", name, p.name(), m.GetPayload(), want)
						return
					}
					mu.Lock()
					late = append(late, now.Sub(sent[n]))
					mu.Unlock()
				}
			})
		}
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for n := range count {
			<-tick.C
			mu.Lock()
			sent[n] = time.Now()
			mu.Unlock()
			if err := sender.send(chat("ga::"+ws, fmt.Sprintf("%s %d %s", name, n, fill))); err != nil {
				t.Fatal(err)
			}
		}
		reading.Wait()
		if len(late) == 0 {
			t.FailNow()
		}
		slices.Sort(late)
		return late[len(late)*99/100]
	}
	without := run("without", all)
	// The first reads no more from here on; 4 MB wait for it.
	with := run("with", all[1:])
	t.Logf("99 of 100 came within %v, beside a reader that stopped within %v", without, with)
	// Other tests run beside this one: what is looked for is a reader that
	// waits for another, for seconds.
	if with > 10*without+time.Second {
		t.Errorf("99 of 100 came within %v, beside a reader that stopped within %v", without, with)
	}
	for _, p := range all[1:] {
		for _, m := range p.kept {
			if m.GetGap() != nil {
				t.Errorf("%s was told %v", p.name(), m)
			}
		}
	}
}

// Row 9: agents that do not read, with much waiting for each: the gateway keeps
// what the configuration allows for each of them, and the log the rest.
func TestRow9UnreadSessions(t *testing.T) {
	t.Parallel()
	const (
		ws       = "row9"
		sessions = 200
		each     = 2 << 20 // bytes that wait for each
		size     = 60_000
		// What a session that does not read may hold: its queue of data, as
		// much again in gRPC, with a buffer for each frame, its goroutines, and
		// what the collector leaves. It was 3 MB: each frame had a whole one.
		queue  = 64 << 10
		budget = 512 << 10
	)
	f := newFaults(t, testservices.Postgres(t).URL(), fmt.Sprintf("AETHER_SESSION_QUEUE_BYTES=%d", queue), "AETHER_MAX_PAYLOAD=61000", "AETHER_STREAMS_RECENT_BYTES=1MiB", "AETHER_SESSION_WRITE_TIMEOUT=1h", "GOGC=20")
	heap := func() float64 {
		return f.metric(t, "go_memstats_heap_inuse_bytes") + f.metric(t, "go_memstats_stack_inuse_bytes")
	}
	var agents []*peer
	for i := range sessions {
		agents = append(agents, connect(t, f.gateway, agent(ws, "i", fmt.Sprint(i)), client(10_000)))
	}
	sender := connect(t, f.gateway, user(ws, "w", ws))
	before := heap()
	text := strings.Repeat("x", size)
	for round := range each / size {
		for _, a := range agents {
			m := chat(a.name(), fmt.Sprintf("%d %s", round, text))
			m.RequestId = sender.request()
			check(t, sender.send(m))
		}
		for range agents {
			_, err := sender.await(func(m *down) bool {
				if m.GetError() != nil {
					t.Fatalf("a send was refused: %v", m)
				}
				return m.GetReceipt() != nil
			})
			check(t, err)
		}
	}
	// What the collector has left over comes down in a while.
	var after float64
	if !eventually(patience, func() bool { after = heap(); return after-before < sessions*budget }) {
		t.Errorf("%d sessions that do not read, with %d MB for each, take %.0f KB each, want less than %d KB",
			sessions, each>>20, (after-before)/sessions/1024, budget>>10)
	}
	t.Logf("%d sessions that do not read take %.0f KB each", sessions, (after-before)/sessions/1024)
	// They lose nothing for it.
	for _, a := range agents[:3] {
		for round := range each / size {
			m := a.read()
			if !strings.HasPrefix(string(m.GetPayload()), fmt.Sprint(round, " ")) {
				t.Fatalf("%s got %.20q, want message %d", a.name(), m.GetPayload(), round)
			}
			a.acks(m.GetDeliveryId())
		}
	}
}
