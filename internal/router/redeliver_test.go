package router

import (
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A live delivery that was never stored and that its receiver wanted again had
// no position to read it at: it was tried for ever, and its hole in the ledger
// stopped the session in the end (S3, S6).
func TestS8NackedNeverStored(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.PublishTimeout = 300 * time.Millisecond })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.HoldConfirms(true)
	for range 4 { // as many entries as may be unconfirmed
		a.send("ag::w::i::b", "unconfirmed", "")
		b.wants("unconfirmed")
		w.settled()
	}
	a.send("ag::w::i::b", "lost", "lost")
	m := b.message()
	for {
		if e := a.answer().GetError(); e.GetRequestId() == "lost" {
			if e.GetCode() != "ERR_UNAVAILABLE" {
				t.Fatalf("it may be stored (%v): the test shows nothing", e)
			}
			break
		}
	}
	n, err := b.box.Nack(m.GetDeliveryId(), true, "")
	if err != nil {
		t.Fatal(err)
	}
	w.r.Nacked(n)
	w.log.HoldConfirms(false)
	w.eventually(func() bool {
		// Something later must be stored, which may be refused on a busy machine.
		_ = a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::c", Payload: []byte("later")})
		_, _, open := b.box.PositionOf(m.GetDeliveryId())
		return !open
	})
}

// Who nacks much costs one goroutine, and nothing once it has left.
func TestNacksAreBounded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(100))
	const n = 100
	for range n {
		a.send("ag::w::i::b", "x", "")
	}
	for range n {
		nacked, err := b.box.Nack(b.message().GetDeliveryId(), true, "")
		if err != nil {
			t.Fatal(err)
		}
		w.r.Nacked(nacked)
	}
	if got := b.sub.again.size(); got == 0 || got > n {
		t.Fatalf("%d wait", got)
	}
	for range n {
		if m := b.message(); !m.GetRedelivered() {
			t.Fatalf("got %v", m)
		}
	}
	nacked, _ := b.box.Nack(n+1, true, "")
	w.r.Nacked(nacked)
	b.leave()
	w.eventually(func() bool { return !busy(b.sub.again) })
}

// Markers that were not confirmed in time were remembered for ever, and every
// later confirm looked each message up.
func TestP4UnknownIsForgotten(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.PublishTimeout = 100 * time.Millisecond })
	a := w.agent("a", client(0))
	w.log.HoldConfirms(true)
	p := w.r.parts[0]
	p.mu.Lock()
	p.mark()
	p.mu.Unlock()
	a.send("ag::w::i::b", "x", "r")
	if e := a.answer().GetError(); e.GetCode() != "ERR_PUBLISH_FAILED" {
		t.Fatalf("got %v: the test shows nothing", e)
	}
	w.log.HoldConfirms(false)
	w.eventually(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stored == p.seq && len(p.unknown) == 0
	})
}

// busy reports whether the backlog has its goroutine.
func busy(b *backlog) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}
