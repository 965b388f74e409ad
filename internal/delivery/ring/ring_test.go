package ring

import (
	"testing"
)

// crowd is a ring with readers of one class, who count their wake-ups.
func crowd(n, class int) (r *Ring[[]byte], readers []*Reader[[]byte], wakes *int) {
	r, wakes = New[[]byte](Options[[]byte]{}), new(int)
	for range n {
		readers = append(readers, r.Join(Join{Class: class, Wake: func() { *wakes++ }}))
	}
	return r, readers, wakes
}

// A message that matches none of a thousand parked readers wakes none of them,
// and is not kept.
func TestParkedReadersSleepOn(t *testing.T) {
	t.Parallel()
	r, readers, wakes := crowd(1000, 3)
	for range 5000 {
		r.Publish(Message[[]byte]{Size: 100, Classes: 1 << 2})
	}
	if *wakes > 0 || r.Stats().Messages > 0 {
		t.Fatalf("%d were woken, %+v", *wakes, r.Stats())
	}
	r.Publish(Message[[]byte]{Size: 100, Classes: 1 << 3})
	r.Publish(Message[[]byte]{Size: 100, Classes: 1 << 3})
	if *wakes != len(readers) {
		t.Fatalf("%d were woken", *wakes)
	}
	for _, rd := range readers {
		if items, lag, more, _ := rd.Read(nil, 10, 1000); len(items) != 2 || lag != (Lag{}) || more {
			t.Fatalf("got %d, %+v, %v", len(items), lag, more)
		}
	}
	if r.Stats().Messages > 0 {
		t.Fatalf("what everybody has read is kept: %+v", r.Stats())
	}
}

// A reader that has stopped altogether is found by the writer, and told once;
// nobody else notices.
func TestStoppedReaderIsFound(t *testing.T) {
	t.Parallel()
	r := New[[]byte](Options[[]byte]{Capacity: 4})
	lagged := 0
	slow := r.Join(Join{Class: Every, Disconnect: true, Wake: func() {}, Lagged: func() { lagged++ }})
	fast := r.Join(Join{Class: Every, Wake: func() {}})
	for range 20 {
		r.Publish(Message[[]byte]{Size: 1})
		if items, lag, _, _ := fast.Read(nil, 1, 1); len(items) != 1 || lag != (Lag{}) {
			t.Fatalf("the other reader got %d, %+v", len(items), lag)
		}
	}
	if lagged != 1 {
		t.Fatalf("told %d times", lagged)
	}
	if _, lag, _, closed := slow.Read(nil, 1, 1); !closed || lag != (Lag{Missed: 16, Bytes: 16, Raw: 16}) {
		t.Fatalf("got %+v, %v", lag, closed)
	}
	if _, lag, _, closed := slow.Read(nil, 1, 1); !closed || lag != (Lag{}) {
		t.Fatalf("then got %+v, %v", lag, closed)
	}
}

// A message above the ring's bytes reaches those who have read everything, and
// costs the others what they had not read.
func TestLargerThanTheRing(t *testing.T) {
	t.Parallel()
	r := New[int](Options[int]{Bytes: 100})
	rd := r.Join(Join{Class: Every, Wake: func() {}})
	r.Publish(Message[int]{Item: 1, Size: 60})
	r.Publish(Message[int]{Item: 2, Size: 1000})
	if items, lag, _, _ := rd.Read(nil, 10, 10); len(items) != 1 || items[0] != 2 || lag != (Lag{1, 60, 1}) {
		t.Fatalf("got %v, %+v", items, lag)
	}
}

// What a ring keeps of its memory does not stay as large as its largest burst.
func TestIdleIsSmall(t *testing.T) {
	t.Parallel()
	r, readers, _ := crowd(1, Every)
	for range 1000 {
		r.Publish(Message[[]byte]{Size: 1})
	}
	for range 20 {
		_, _, _, _ = readers[0].Read(nil, 1000, 1000)
		r.Publish(Message[[]byte]{Size: 1})
	}
	if n := len(r.slots); n > minSlots {
		t.Errorf("it keeps %d slots", n)
	}
	readers[0].Leave()
	if r.slots != nil {
		t.Error("without readers it keeps slots")
	}
}

func TestAllocatesNothing(t *testing.T) {
	r, readers, _ := crowd(100, Every)
	dst := make([][]byte, 0, 64)
	for range 2000 {
		r.Publish(Message[[]byte]{Size: 1})
	}
	i := 0
	if n := testing.AllocsPerRun(2000, func() {
		r.Publish(Message[[]byte]{Size: 1, Classes: 5})
		_, _, _, _ = readers[i%len(readers)].Read(dst, 64, 1<<20)
		i++
	}); n > 0 {
		t.Errorf("%v allocations for a message", n)
	}
}

// A thousand readers who have something to read cost a writer nothing. Compared
// with a channel for each.
func BenchmarkPublish(b *testing.B) {
	const n = 1000
	frame := make([]byte, 100)
	b.Run("ring", func(b *testing.B) {
		r, _, _ := crowd(n, Every)
		b.ReportAllocs()
		for b.Loop() {
			r.Publish(Message[[]byte]{Item: frame, Size: len(frame)})
		}
	})
	b.Run("channels", func(b *testing.B) {
		var list []chan []byte
		for range n {
			list = append(list, make(chan []byte, DefaultCapacity))
		}
		for b.Loop() {
			for _, c := range list {
				for sent := false; !sent; {
					select {
					case c <- frame:
						sent = true
					default:
						select {
						case <-c: // the oldest goes
						default:
						}
					}
				}
			}
		}
	})
	b.Run("read", func(b *testing.B) { // published and read by all
		r, readers, _ := crowd(n, Every)
		dst := make([][]byte, 0, 64)
		for b.Loop() {
			r.Publish(Message[[]byte]{Item: frame, Size: len(frame)})
			for _, rd := range readers {
				_, _, _, _ = rd.Read(dst, 64, 1<<20)
			}
		}
	})
}
