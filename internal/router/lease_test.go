package router

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/store"
)

// under connects an agent under a lease.
func (w *world) under(spec string, o delivery.Options, reads Reads) *session {
	w.t.Helper()
	a, err := address.Agent("w", "i", spec)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}
	reads.Exclusive = []string{a.String()}
	return w.join(p, a.String(), o, reads)
}

// A session that has lost its lease stores nothing, commits nothing and deletes
// no note, although it may not know yet (delivery rules L2, C1).
func TestL2LostLease(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const a, b = "ag::w::i::a", "ag::w::i::b"
	fence := presence.NewFence(time.Now, time.Hour, time.Now())
	held := presence.Lease{SessionID: "a", Names: []string{a}, Hold: presence.NewHold(fence)}
	one := w.under("a", client(0), Reads{Lease: held})
	two := w.agent("b", client(0))
	w.warm(two, one)
	two.send(a, "1", "1")
	at := one.message()
	w.settled()
	before, known, err := w.store.Position(context.Background(), a, a)
	if err != nil {
		t.Fatal(err)
	}
	one.ack(at.GetDeliveryId())
	fence.Fall()
	e := one.sender.Send(&aetherv1.SendMessage{TargetTopic: b, Payload: []byte("late"), RequestId: "late"})
	if e == nil || e.Code != "ERR_UNAVAILABLE" {
		t.Fatalf("a send under a lost lease: %v", e)
	}
	w.r.commit(context.Background())
	one.leave()
	after, still, err := w.store.Position(context.Background(), a, a)
	if err != nil || after != before || still != known {
		t.Errorf("the position was %d, %v, and is %d, %v after the lease was lost: %v", before, known, after, still, err)
	}
	two.send(b, "own", "own")
	two.wants("own")
}

// What the predecessor left decides where a session goes on: an exact watermark
// alone, another one if it is above what is stored; and what it was handed
// beyond that is flagged (delivery rule L4).
func TestL4Watermark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		stored, left        int // messages
		exact, unreadable   bool
		next                string
		handed, redelivered int
	}{
		{name: "exact above", stored: 1, left: 2, exact: true, next: "3"},
		{name: "exact below", stored: 2, left: 1, exact: true, next: "2"},
		{name: "larger", stored: 1, left: 2, next: "3"},
		{name: "smaller", stored: 2, left: 1, next: "3"},
		{name: "flagged", stored: 1, left: 1, exact: true, next: "2", handed: 3, redelivered: 2},
		{name: "of another version", stored: 1, left: 2, unreadable: true, next: "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			const a = "ag::w::i::a"
			sender := w.agent("s", client(0))
			first := w.agent("a", client(0))
			var at []int64
			for _, text := range []string{"1", "2", "3", "4"} {
				sender.send(a, text, text)
				sender.answer()
				w.settled()
			}
			for range 4 {
				m := first.message()
				position, known, _ := first.box.PositionOf(m.GetDeliveryId())
				if !known {
					t.Fatalf("%v has no position", m)
				}
				at = append(at, int64(position))
			}
			first.leave()
			store_ := []store.Commit{{Identity: a, Address: a, Position: uint64(at[c.stored-1]), Epoch: w.epoch.Add(1)}}
			if err := w.store.Commit(context.Background(), store_); err != nil {
				t.Fatal(err)
			}
			left := mark{position: at[c.left-1], handed: none}
			if c.handed > 0 {
				left.handed = at[c.handed-1]
			}
			b := watermark{a: left}.encode()
			if c.unreadable {
				b[0] = 99
			}
			// As a gateway that has never had the session.
			w.r.repeats.set(a, handed{position: none})
			second := w.under("a", client(0), Reads{Watermark: b, Exact: c.exact})
			m := second.message()
			if string(m.GetPayload()) != c.next {
				t.Fatalf("it goes on with %q, want %q", m.GetPayload(), c.next)
			}
			for i := range c.redelivered {
				if !m.GetRedelivered() {
					t.Errorf("%q is not flagged", m.GetPayload())
				}
				if m = second.message(); i == c.redelivered-1 && m.GetRedelivered() {
					t.Errorf("%q is flagged", m.GetPayload())
				}
			}
		})
	}
}

// A session that leaves says what it was done with, so that its successor
// repeats only the rest.
func TestL4HandOver(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const a = "ag::w::i::a"
	sender, one := w.agent("s", client(0)), w.agent("a", client(0))
	w.warm(sender, one)
	for _, text := range []string{"1", "2", "3"} {
		sender.send(a, text, text)
	}
	at := one.message().GetDeliveryId()
	one.wants("2", "3")
	one.ack(at)
	var left []byte
	one.left = true
	one.sub.Leave(context.Background(), Leaving{Hurry: true, Left: func(b []byte) { left = b }})
	marks, err := parseWatermark(left)
	if err != nil || len(marks) != 1 || marks[a].position == none || marks[a].handed <= marks[a].position {
		t.Fatalf("it left %v, %v", marks, err)
	}
	w.r.repeats.set(a, handed{position: none})
	two := w.under("a", client(0), Reads{Watermark: left, Exact: true})
	if m := two.message(); string(m.GetPayload()) != "2" || !m.GetRedelivered() {
		t.Errorf("it goes on with %v", m)
	}
}

// marks is presence that shows what is left in leases.
type marks struct {
	presence.Gateway
	last atomic.Pointer[[]byte]
}

func (m *marks) Mark(_ presence.Lease, watermark []byte) error {
	m.last.Store(&watermark)
	return nil
}

// A gateway that dies commits nothing more. What its lease's record was last
// told tells a successor elsewhere what has been delivered before (delivery rule
// L4), also what was never acknowledged.
func TestL4RepeatsAfterACrashAreFlagged(t *testing.T) {
	t.Parallel()
	m := &marks{Gateway: local.New(nil)}
	w := setup(t, func(o *Options) { o.Presence = m })
	const a = "ag::w::i::a"
	held := presence.Lease{SessionID: "a", Names: []string{a}, Hold: presence.NewHold(presence.NewFence(time.Now, time.Hour, time.Now()))}
	sender, one := w.agent("s", client(0)), w.under("a", client(0), Reads{Lease: held})
	for _, text := range []string{"1", "2"} {
		sender.send(a, text, text)
	}
	one.wants("1", "2")
	sender.send(a, "3", "3")
	w.settled()
	w.eventually(func() bool {
		b := m.last.Load()
		if b == nil {
			return false
		}
		left, err := parseWatermark(*b)
		return err == nil && left[a].handed > left[a].position
	})
	left := *m.last.Load()
	other := &world{t: t, log: w.log, store: w.store}
	other.epoch.Store(100)
	other.start()
	two := other.under("a", client(0), Reads{Watermark: left})
	for _, text := range []string{"1", "2", "3"} {
		if m := two.message(); string(m.GetPayload()) != text || m.GetRedelivered() != (text != "3") {
			t.Errorf("got %v", m)
		}
	}
}
