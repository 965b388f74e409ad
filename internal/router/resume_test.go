package router

import (
	"context"
	"fmt"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// Delivery rules C1, S5: a session resumes after what is done, and gets what
// is not done again.
func TestC1Resume(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	for i := range 10 {
		a.send("ag::w::i::b", fmt.Sprint(i), "")
	}
	for range 10 {
		b.message()
	}
	b.ack(4)
	if err := b.box.AckOne(8); err != nil {
		t.Fatal(err)
	}
	b.leave()
	b = w.agent("b", client(0))
	b.wants("4", "5", "6", "7", "8", "9")
	b.ack(6)
	b.leave()
	b = w.agent("b", client(0))
	w.settled()
	b.pump()
	b.quiet()
}

// What a session was handed and did not finish is flagged when it comes again,
// what it never had is not.
func TestRepeatsAreFlagged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for i := range 6 {
		a.send("ag::w::i::b", fmt.Sprint(i), "")
	}
	b := w.agent("b", client(4))
	for range 4 {
		if m := b.message(); m.GetRedelivered() {
			t.Fatalf("flagged although it is new: %v", m)
		}
	}
	b.ack(2)
	b.leave()
	b = w.agent("b", client(0))
	for _, want := range []bool{true, true, false, false} {
		if m := b.message(); m.GetRedelivered() != want {
			t.Fatalf("%q: redelivered is %v", m.GetPayload(), m.GetRedelivered())
		}
	}
}

// So is what was delivered live to a session that ended before the log had shown
// it, and nothing that was sent later.
func TestLiveRepeatsAreFlagged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.Stall(true)
	a.send("ag::w::i::b", "live", "")
	if m := b.message(); m.GetRedelivered() || m.Position != nil {
		t.Fatalf("want a new live delivery, got %v", m)
	}
	b.leave()
	a.send("ag::w::i::b", "later", "")
	w.log.Stall(false)
	b = w.agent("b", client(0))
	for {
		m := b.message()
		if text := string(m.GetPayload()); text == "later" {
			if m.GetRedelivered() {
				t.Errorf("flagged although it is new: %v", m)
			}
			return
		} else if !m.GetRedelivered() {
			t.Errorf("%q comes again and is not flagged", text)
		}
	}
}

// So is what was acknowledged, if the store would not take that, or may not be
// asked because the lease is lost.
func TestUncommittedRepeatsAreFlagged(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*world, *session, bool){
		"store away": func(w *world, _ *session, on bool) {
			w.store.mu.Lock()
			w.store.broken = on
			w.store.mu.Unlock()
		},
		"lease lost": func(_ *world, b *session, on bool) {
			if on {
				b.sub.reads.Lease.Hold.Drop()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			a, b := w.agent("a", client(0)), w.agent("b", client(0))
			b.sub.reads.Lease.Hold = presence.NewHold(nil)
			a.send("ag::w::i::b", "0", "r")
			a.answer()
			b.wants("0")
			spoil(w, b, true)
			b.ack(1)
			b.leave()
			spoil(w, b, false)
			b = w.agent("b", client(0))
			if m := b.message(); !m.GetRedelivered() {
				t.Errorf("it comes again and is not flagged: %v", m)
			}
		})
	}
}

// A restart of the gateway loses nothing that is not done.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for i := range 50 {
		a.send("ag::w::i::b", fmt.Sprint(i), fmt.Sprint(i))
	}
	for range 50 {
		a.answer()
	}
	b := w.agent("b", client(0))
	for range 30 {
		b.message()
	}
	b.ack(20)
	b.leave()
	a.leave()
	w.start()
	b = w.agent("b", client(0))
	for i := 20; i < 50; i++ {
		b.wants(fmt.Sprint(i))
	}
}

// Position 0 is a position: after it was acknowledged, nothing is repeated.
func TestPositionZero(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if err := w.store.Commit(context.Background(), []store.Commit{{Identity: "ag::w::i::b", Address: "ag::w::i::b", Position: 0, Epoch: 1}}); err != nil {
		t.Fatal(err)
	}
	b := w.agent("b", client(0))
	if at := b.sub.inboxes[0].At(); at != 0 {
		t.Fatalf("it begins after %d", at)
	}
	c := w.agent("c", client(0))
	if at := c.sub.inboxes[0].At(); at == 0 {
		t.Fatalf("a new one begins after %d", at)
	}
}

// Delivery rule C2: a position beyond the log's end is clamped and told.
func TestC2BeyondTheEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_ = w.store.Commit(context.Background(), []store.Commit{{Identity: "ag::w::i::b", Address: "ag::w::i::b", Position: 1 << 40, Epoch: 1}})
	b := w.agent("b", client(0))
	w.eventually(func() bool { return len(b.told()) > 0 })
	if told := b.told(); len(told) != 1 || told[0].Reason != GapRecreated {
		t.Fatalf("told %v", told)
	}
	b.pump()
	a := w.agent("a", client(0))
	a.send("ag::w::i::b", "new", "")
	b.wants("new")
}

// An engine for all workspaces and one for some heed each other's positions.
func TestEventPositions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	event := func(text string) {
		if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "event::w", Payload: []byte(text), MessageType: aetherv1.MessageType_MESSAGE_TYPE_EVENT}); err != nil {
			t.Fatal(err)
		}
	}
	event("1")
	event("2")
	all := w.engine(acl.All())
	all.wants("1", "2")
	all.ack(1)
	all.leave()
	some := w.engine(acl.Workspaces("w"))
	some.wants("2")
	some.ack(1)
	event("3")
	some.wants("3")
	some.leave()
	all = w.engine(acl.All())
	all.wants("3")
	all.ack(1)
	w.settled()
	all.quiet()
}

// Delivery rule S7: a session that ends waits for the tail, so that what it
// was given live and acknowledged is committed, and comes no second time.
func TestS7Leave(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for round := range 10 {
		b := w.agent("b", client(0))
		b.pump()
		for i := range 3 {
			text := fmt.Sprintf("%d.%d", round, i)
			a.send("ag::w::i::b", text, "")
			b.wants(text)
			b.ack(uint64(i + 1))
		}
		b.leave()
	}
	if w.r.stats.Live.Load() == 0 {
		t.Fatal("nothing was live: the test shows nothing")
	}
}

// A committed position never falls and is not committed without need.
func TestCommit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	b.ack(1)
	w.r.commit(context.Background())
	first := w.store.at("ag::w::i::b")
	if first == nil {
		t.Fatal("not committed")
	}
	before := w.store.calls()
	w.r.commit(context.Background())
	if n := w.store.calls() - before; n != 0 {
		t.Fatalf("%d statements for nothing new", n)
	}
	w.store.fail(true)
	a.send("ag::w::i::b", "x", "")
	b.wants("x")
	w.settled()
	b.ack(2)
	w.r.commit(context.Background())
	w.store.fail(false)
	w.r.commit(context.Background())
	if second := w.store.at("ag::w::i::b"); second.Position <= first.Position {
		t.Fatalf("after a failure it stays at %d", second.Position)
	}
}
