package router

import (
	"fmt"
	"strings"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func (s *session) sendAs(to, text, id string) {
	s.w.t.Helper()
	err := s.sender.Send(&aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), RequestId: text, MessageId: id})
	if err != nil {
		s.w.t.Fatalf("send %q: %v", text, err)
	}
}

// receipts reads n answers, which must be receipts, and returns their request
// ids.
func (s *session) receipts(n int) string {
	s.w.t.Helper()
	var ids []string
	for range n {
		d := s.answer()
		if d.GetReceipt() == nil {
			s.w.t.Fatalf("got %v", d)
		}
		ids = append(ids, d.GetReceipt().GetRequestId())
	}
	return strings.Join(ids, " ")
}

// sequence returns the last origin_seq given.
func (w *world) sequence() uint64 {
	p := w.r.parts[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// A send that waits for the log to come back holds up what its sender sends to
// the same address, and nothing else.
func TestM2SendsWaitInOrder(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("c", client(0))
	w.settled()
	w.log.Stall(true)
	before := w.sequence()
	a.sendAs(b.name, "1", "id1")
	a.send(b.name, "2", "2")
	a.send(c.name, "other", "other")
	a.sendAs(b.name, "3", "id3")
	if got := w.sequence() - before; got != 2 {
		t.Fatalf("%d envelopes were numbered, want a marker and the send to another address", got)
	}
	w.log.Stall(false)
	if got := a.receipts(4); got != "other 1 2 3" {
		t.Fatalf("stored in the order %s", got)
	}
	b.wants("1", "2", "3")
	c.wants("other")
	w.settled()
	// From now on nothing waits.
	w.log.Stall(true)
	before = w.sequence()
	a.sendAs(b.name, "4", "id4")
	if w.sequence() != before+1 {
		t.Fatal("a later send waits as well")
	}
	w.log.Stall(false)
	a.receipts(1)
}

// One marker serves all who wait.
func TestM2OneMarkerForAll(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const n = 20
	w.log.Stall(true)
	before := w.sequence()
	var list []*session
	for i := range n {
		s := w.agent(fmt.Sprint("s", i), client(0))
		s.sendAs("ag::w::i::b", fmt.Sprint(i), "id")
		list = append(list, s)
	}
	if got := w.sequence() - before; got != 1 {
		t.Fatalf("%d markers for %d sessions that wait", got, n)
	}
	w.log.Stall(false)
	for _, s := range list {
		s.receipts(1)
	}
	// Whoever came after the first marker was written needed another, once.
	if got := w.sequence() - before; got > n+2 {
		t.Fatalf("%d markers for %d sessions that wait", got-n, n)
	}
}

// What waits too long was never stored, and says so; what stands behind it
// must not overtake it.
func TestM2TimeoutIsUnavailable(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.PublishTimeout = 200 * time.Millisecond })
	a := w.agent("a", client(0))
	w.log.Stall(true)
	a.sendAs("ag::w::i::b", "1", "id")
	a.send("ag::w::i::b", "2", "2")
	for range 2 {
		if e := a.answer().GetError(); e.GetCode() != "ERR_UNAVAILABLE" || !e.GetRetryable() {
			t.Fatalf("got %v", e)
		}
	}
	<-a.sender.Settled()
	w.log.Stall(false)
	w.eventually(func() bool { return w.r.Check(t.Context()) == nil })
	// It may be repeated until the log takes it: a busy machine may need longer
	// than the time-out of this test.
	for a.sendAs("ag::w::i::b", "3", "id"); a.answer().GetReceipt() == nil; {
		a.sendAs("ag::w::i::b", "3", "id")
	}
	b := w.agent("b", client(0))
	b.wants("3")
}

// What waits is bounded.
func TestM2WaitingIsBounded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	w.log.Stall(true)
	for i := range maxHeldSends {
		a.sendAs(fmt.Sprint("ag::w::i::b", i%3), fmt.Sprint(i), fmt.Sprint(i))
	}
	err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::b0", MessageId: "one more"})
	if err == nil || err.Code != "ERR_UNAVAILABLE" {
		t.Fatalf("got %v", err)
	}
	w.log.Stall(false)
	a.receipts(maxHeldSends)
	w.settled()
	// Metadata counts, also that of a send without contents.
	b := w.agent("many", client(0))
	w.log.Stall(true)
	metadata, held := map[string]string{"k": strings.Repeat("x", maxMetadataBytes-1)}, 0
	for held = 0; ; held++ {
		if err := b.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::b0", MessageId: fmt.Sprint(held), RequestId: "r", Metadata: metadata}); err != nil {
			break
		}
	}
	if held > maxHeldSendBytes/maxMetadataBytes {
		t.Errorf("%d sends with %d bytes of metadata wait", held, maxMetadataBytes)
	}
	w.log.Stall(false)
	b.receipts(held)
	for _, s := range []*Sender{a.sender, b.sender} {
		if s.heldSends.Load() != 0 || s.heldBytes.Load() != 0 {
			t.Fatal("the bounds do not count down")
		}
	}
	p := w.r.parts[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines.byKey) != 0 || p.lines.bytes != 0 {
		t.Fatalf("%d lines, %d bytes are left", len(p.lines.byKey), p.lines.bytes)
	}
}
