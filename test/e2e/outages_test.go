package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// outage is a fault of the broker that passes.
type outage struct {
	name    string
	on, off func(f *faults)
	lasts   time.Duration // beyond the time that it takes to be noticed
	reads   bool          // the log can still be read
}

var outages = []outage{
	{
		"black hole",
		func(f *faults) { f.proxy.Blackhole(true) }, func(f *faults) { f.proxy.Blackhole(false) },
		12 * time.Second, false,
	},
	{
		"stopped",
		func(f *faults) { f.broker.Stop() }, func(f *faults) { f.broker.Cont() },
		10 * time.Second, false,
	},
	{
		"disk alarm",
		func(f *faults) { f.broker.DiskAlarm(true) }, func(f *faults) { f.broker.DiskAlarm(false) },
		10 * time.Second, true,
	},
}

// A broker that hangs, is cut off without a word, or takes no more because its
// disk is full: sends fail fast and can be repeated, readiness says which
// partition and why, sessions stay; soon after the end of it everything works
// again, once, and nothing has piled up.
func TestBrokerOutages(t *testing.T) {
	alone(t)
	f := newFaults(t, testservices.Postgres(t).URL())
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) { o.play(t, f) })
	}
}

func (o outage) play(t *testing.T, f *faults) {
	ws := workspace(t)
	subs := subscribe(t, f.gateway, ws)
	subs.probe("before", time.Now(), patience)
	to := user(ws+"-r", "w", ws)
	receiver := take(connect(t, f.gateway, to, client(5000)))
	sentinel := connect(t, f.gateway, user(ws, "sentinel", ws))
	l := newLoad(t, f.gateway, to.name, 10*time.Millisecond, crowd(ws))
	if !eventually(patience, func() bool { return receiver.count() > 50 }) {
		t.Fatal("nothing arrives")
	}
	was := f.footprint(t)
	before := l.failed()

	o.on(f)
	healed := false
	heal := func() {
		if !healed {
			healed = true
			o.off(f)
		}
	}
	defer heal() // the broker must be able to end
	f.awaitReady(t, false, 15*time.Second)
	f.awaitReason(t, "log partition ", "cannot be written: ", 15*time.Second)
	if !eventually(patience, func() bool { return l.failed() > before+50 }) {
		t.Error("sends do not fail")
	}
	if up := f.metric(t, `aether_dependency_up{dependency="log"}`); up != 0 {
		t.Errorf("the metric says that the log is up: %v", up)
	}
	// As long as it lasts readiness does not waver.
	for until := time.Now().Add(o.lasts); time.Now().Before(until); <-time.After(100 * time.Millisecond) {
		if f.ready() {
			t.Errorf("the gateway calls itself ready:\n%s", f.reasons(t))
			break
		}
	}
	for name, s := range subs.takers {
		if err := s.ended(); err != nil {
			t.Errorf("the session of %s ended: %v", name, err)
		}
	}

	heal()
	back := time.Now()
	subs.probe("after", back, recovery)
	f.awaitReady(t, true, recovery)
	l.settle(t, sentinel, to.name, receiver)
	subs.once()
	for code := range l.errors {
		if code != "ERR_UNAVAILABLE" && code != "ERR_PUBLISH_FAILED" {
			t.Errorf("sends failed with %s", code)
		}
	}
	f.awaitFootprint(t, was, 5)
	t.Logf("%d stored, %v failed, the slowest answer after %v", l.storedCount(), l.errors, l.slowest)
}

// The broker refuses one partition: what belongs there fails fast and says why,
// the others go on, and when it is allowed again it works by itself.
func TestBrokerRefusesOnePartition(t *testing.T) {
	t.Parallel()
	f := newFaults(t, testservices.Postgres(t).URL())
	const ws = "refused"
	var readers []*peer
	for i := range 16 {
		readers = append(readers, connect(t, f.gateway, agent(ws, "i", fmt.Sprint(i)), client(100)))
	}
	sender := connect(t, f.gateway, user(ws, "w", ws))
	was := f.footprint(t)
	f.broker.Permit(`^(?!aether\.p0002$).*`)
	f.proxy.Cut()
	f.awaitReason(t, "log partition 2: ", "cannot be written: ", patience)
	f.awaitReason(t, "log partition 2: ", "refuses access", patience)
	f.awaitReason(t, "log partition 1: ", "ok", recovery)

	refused, took := 0, time.Duration(0)
	for i, r := range readers {
		begun := time.Now()
		receipt, refusal := sender.ask(chat(r.name(), fmt.Sprint("m ", i)))
		took = max(took, time.Since(begun))
		if receipt == nil {
			refused++
			if !refusal.GetRetryable() || refusal.GetCode() != "ERR_UNAVAILABLE" && refusal.GetCode() != "ERR_PUBLISH_FAILED" {
				t.Errorf("refused with %v", refusal)
			}
			continue
		}
		if m := r.read(); string(m.GetPayload()) != fmt.Sprint("m ", i) {
			t.Errorf("got %v", m)
		}
	}
	if refused == 0 || refused == len(readers) {
		t.Errorf("%d of %d sends were refused", refused, len(readers))
	}
	if took > 6*time.Second {
		t.Errorf("an answer took %v", took)
	}
	said := f.reasons(t)
	if strings.Count(said, ": ok\n") != 4 || strings.Contains(said, "guest:guest") {
		t.Errorf("three partitions and the database work, but\n%s", said)
	}
	if n := f.metric(t, `aether_partitions_down{what="write"}`); n != 1 {
		t.Errorf("%v partitions are down, want 1", n)
	}
	if f.ready() {
		t.Error("the gateway calls itself ready")
	}

	f.broker.Permit(".*")
	f.awaitReady(t, true, recovery)
	for i, r := range readers {
		sender.stored(r.name(), fmt.Sprint("again ", i))
		if m := r.read(); string(m.GetPayload()) != fmt.Sprint("again ", i) {
			t.Errorf("got %v", m)
		}
	}
	f.awaitFootprint(t, was, 5)
}

// Delivery rule C2: the stream of a running gateway is deleted and made anew.
// What it held is lost, also with a receipt. As long as it is away readiness
// says so; then sessions are told, and everything goes on in the new one.
func TestC2StreamRecreated(t *testing.T) {
	t.Parallel()
	const ws, stream = "recreated", "aether.p0000"
	f := newFaults(t, testservices.Postgres(t).URL(), "AETHER_STREAMS_PARTITIONS=1")
	to, absent := agent(ws, "i", "r"), agent(ws, "i", "absent")
	receiver := take(connect(t, f.gateway, to, client(1000)))
	sender := connect(t, f.gateway, user(ws, "w", ws))
	for i := range 300 { // an entry each, so that the new stream's offsets are below
		sender.stored(to.name, fmt.Sprint("old ", i))
	}
	sender.stored(absent.name, "lost")
	if !eventually(patience, func() bool { return receiver.count() == 300 }) {
		t.Fatal("nothing arrives")
	}
	was := f.footprint(t)

	f.broker.DeleteStream(stream)
	f.awaitReason(t, "log partition 0: ", "cannot be written: ", patience)
	f.awaitReason(t, "log partition 0: ", "is not available", patience)
	f.awaitReady(t, false, patience)
	f.broker.CreateStream(stream)
	sender.insist(chat(to.name, "first"))
	f.awaitReady(t, true, patience)
	sender.stored(to.name, "second")
	if !eventually(patience, func() bool { return receiver.has("second") }) {
		t.Fatalf("what is stored in the new stream does not come; the stream: %v", receiver.ended())
	}
	if got := receiver.all()[300:]; len(got) != 2 || got[0] != "first" {
		t.Errorf("in the new stream came %q", got)
	}
	receiver.mu.Lock()
	gaps := receiver.gaps
	receiver.mu.Unlock()
	if len(gaps) != 1 || gaps[0].GetReason() != aetherv1.HistoryGap_REASON_RECREATED || gaps[0].GetTopic() != to.name {
		t.Errorf("the receiver was told %v", gaps)
	}
	f.awaitFootprint(t, was, 5)

	// What was acknowledged in the new stream counts.
	keeps := connect(t, f.gateway, agent(ws, "i", "clock"), client(1))
	keeps.beats(3) // seconds: positions are committed about once in one
	receiver.peer.cut()
	next := reconnect(t, f.gateway, to)
	sender.stored(to.name, "last")
	wantTexts(t, next.until("last"), nil)
	for _, m := range next.kept {
		if m.GetGap() != nil {
			t.Errorf("the next session is told %v", m)
		}
	}
}
