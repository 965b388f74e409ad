package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is settled in whatever order: the gateway learns of each delivery
// exactly what became of it, and never of an open one that it is done.
func TestAckLogAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a ackLog
		var id uint64
		truth := make(map[uint64]verdict) // what was settled
		told := make(map[uint64]verdict)  // what the gateway was told
		var pending []uint64
		now := time.Now()
		learn := func(id uint64, v verdict) {
			if truth[id] == open {
				t.Fatalf("the gateway was told that the open delivery %d is done", id)
			}
			if told[id] == open {
				told[id] = v
			}
		}
		flush := func() {
			for _, f := range a.flush() {
				for _, n := range f.GetNack() {
					v := dropped
					if n.GetRequeue() {
						v = requeued
					}
					learn(n.GetDeliveryId(), v)
				}
				if f.GetUpTo() > id {
					t.Fatalf("acknowledges %d, which never came", f.GetUpTo())
				}
				for i := uint64(1); i <= f.GetUpTo(); i++ {
					if _, came := truth[i]; came {
						learn(i, acked)
					}
				}
				for _, i := range f.GetIds() {
					if i <= f.GetUpTo() {
						t.Fatalf("%d is acknowledged twice in a frame", i)
					}
					learn(i, acked)
				}
			}
			for id, v := range truth {
				if told[id] != v {
					t.Fatalf("delivery %d is %d, the gateway thinks %d", id, v, told[id])
				}
			}
			if due, wait := a.due(64, now); due || wait != 0 {
				t.Fatal("something is due after a flush")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"receive": func(t *rapid.T) {
				id += rapid.Uint64Range(1, 3).Draw(t, "step") // ids may be left out
				if !a.received(id, false) {
					t.Fatalf("%d refused", id)
				}
				truth[id] = open
				pending = append(pending, id)
				if a.received(id, false) {
					t.Fatalf("%d accepted twice", id)
				}
			},
			"settle": func(t *rapid.T) {
				if len(pending) == 0 {
					return
				}
				i := rapid.IntRange(0, len(pending)-1).Draw(t, "which")
				v := rapid.SampledFrom([]verdict{acked, acked, acked, requeued, dropped}).Draw(t, "verdict")
				one := pending[i]
				pending = append(pending[:i], pending[i+1:]...)
				truth[one] = v
				a.settle(one, v, "r", 64, now)
				if a.settle(one, acked, "", 64, now) {
					t.Fatal("settled twice")
				}
			},
			"flush": func(*rapid.T) { flush() },
			"": func(t *rapid.T) {
				if a.open != len(pending) {
					t.Fatalf("%d open, not %d", a.open, len(pending))
				}
			},
		})
		flush()
	})
}

// A window's worth of open deliveries at a time: the log does not grow with what
// has passed through it.
func TestAckLogIsBounded(t *testing.T) {
	t.Parallel()
	var a ackLog
	for id := uint64(1); id <= 100_000; id++ {
		a.received(id, false)
		if id > 256 {
			a.settle(id-256, acked, "", 64, time.Time{})
		}
		if id%64 == 0 {
			a.flush()
		}
	}
	if cap(a.entries) > 4096 || cap(a.singles) > 256 {
		t.Errorf("%d entries, %d singles", cap(a.entries), cap(a.singles))
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	w := newWindow(3)
	key := func(i int) messageKey { return newKey("s", "t", fmt.Sprint(i)) }
	for i := range 10 {
		w.begin(key(i), &Message{})
	}
	for i := range 10 {
		w.finish(key(i), acked)
	}
	for i := range 10 {
		if _, v := w.find(key(i)); (v == acked) != (i >= 7) {
			t.Errorf("%d: %v", i, v)
		}
	}
	w.begin(key(10), &Message{})
	w.finish(key(10), requeued)
	if m, v := w.find(key(10)); m != nil || v != open {
		t.Error("what failed is remembered")
	}
	for i := range 1000 {
		w.begin(key(i), &Message{})
		w.finish(key(i), dropped)
	}
	if len(w.working) != 0 || len(w.done) != 3 || len(w.order) != 3 {
		t.Errorf("%d, %d and %d entries", len(w.working), len(w.done), len(w.order))
	}
	none := newWindow(-1)
	none.begin(key(1), &Message{})
	none.finish(key(1), acked)
	if len(none.working)+len(none.done) != 0 {
		t.Error("a window of none remembers")
	}
}

// Where one part ends and the next begins counts, too.
func TestKeys(t *testing.T) {
	t.Parallel()
	seen := make(map[messageKey]string)
	long := strings.Repeat("x", 2000)
	for _, k := range [][3]string{
		{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"}, {"a", "bc", ""}, {"abc", "", ""}, {"", "", "abc"}, {long, "b", "c"}, {long, "b", "d"},
	} {
		key := newKey(k[0], k[1], k[2])
		if other, taken := seen[key]; taken || key == (messageKey{}) {
			t.Errorf("%.20q and %.20q are the same", k, other)
		}
		seen[key] = k[0] + "|" + k[1] + "|" + k[2]
		if key != newKey(k[0], k[1], k[2]) {
			t.Errorf("%.20q is not always the same", k)
		}
	}
}

// Repeats are recognised across a second's traffic, not only across the last few.
func TestManyRepeats(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.MaxUnacked = 1 << 20
		handled := make(chan string, 20_002)
		o.Handler = func(_ context.Context, m *Message) error { handled <- m.ID; return nil }
		c, p := g.connect(o, g.welcome)
		acked := func(upTo uint64) {
			for a := uint64(0); a < upTo; a = max(a, p.nextAck().GetUpTo()) {
			}
		}
		const n = 10_000 // more than any window of unacknowledged ones
		for i := range n {
			p.deliver(uint64(i+1), fmt.Sprint("m", i), "")
		}
		acked(n)
		g.cut()
		p = g.welcome()
		for i := range n + 1 { // the gateway forgot all acknowledgements
			p.deliver(uint64(i+1), fmt.Sprint("m", i), "")
		}
		acked(n + 1)
		if len(handled) != n+1 {
			t.Errorf("%d messages were handled", len(handled))
		}
		g.close(c, p)
	})
}

func BenchmarkKey(b *testing.B) {
	for b.Loop() {
		newKey("ag::demo::other::1", "ag::demo::echo::1", "0198c0de-0000-7000-8000-000000000000")
	}
}
