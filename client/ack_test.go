package client

import (
	"fmt"
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
				if !a.received(id) {
					t.Fatalf("%d refused", id)
				}
				truth[id] = open
				pending = append(pending, id)
				if a.received(id) {
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
		a.received(id)
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
	key := func(i int) messageKey { return messageKey{source: "s", id: fmt.Sprint(i)} }
	for i := range 10 {
		w.begin(key(i), &Message{})
	}
	for i := range 10 {
		w.finish(key(i), acked)
	}
	for i := range 10 {
		if _, known := w.find(key(i)); known != (i >= 7) {
			t.Errorf("%d known: %v", i, known)
		}
	}
	w.begin(key(10), &Message{})
	w.finish(key(10), requeued)
	if _, known := w.find(key(10)); known {
		t.Error("what failed is remembered")
	}
	for i := range 1000 {
		w.begin(key(i), &Message{})
		w.finish(key(i), dropped)
	}
	if len(w.entries) != 3 || len(w.done) != 3 {
		t.Errorf("%d and %d entries", len(w.entries), len(w.done))
	}
	none := newWindow(-1)
	none.begin(key(1), &Message{})
	none.finish(key(1), acked)
	if len(none.entries) != 0 {
		t.Error("a window of none remembers")
	}
}
