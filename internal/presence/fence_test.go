package presence

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a wall clock alone, or a real time with its monotonic reading moved
// by add.
type clock struct {
	at atomic.Pointer[time.Time]
}

func (c *clock) set(t time.Time) { c.at.Store(&t) }
func (c *clock) now() time.Time  { return *c.at.Load() }

func TestL2Fence(t *testing.T) {
	t.Parallel()
	start := time.Now() // with both readings
	c := &clock{}
	c.set(start)
	f := NewFence(c.now, FenceAfter, start)
	c.set(start.Add(FenceAfter - 1))
	if f.Fenced() || f.Age() != FenceAfter-1 {
		t.Fatalf("fenced after %v", f.Age())
	}
	if !f.Renew(start.Add(time.Second)) {
		t.Fatal("a renewal in time was refused")
	}
	c.set(start.Add(FenceAfter))
	if f.Fenced() {
		t.Fatal("fenced in spite of the renewal")
	}
	select {
	case <-f.Done():
		t.Fatal("done")
	default:
	}
	c.set(start.Add(FenceAfter + time.Second))
	// The confirmation of a renewal that was sent in time comes too late.
	if f.Renew(start.Add(4 * time.Second)) {
		t.Fatal("renewed after the fall")
	}
	<-f.Done()
	c.set(start)
	if !f.Fenced() {
		t.Fatal("the fence has risen again")
	}
	f.Fall()
}

// TestL2SuspendedMachine: the monotonic clock stood still, the wall clock did
// not.
func TestL2SuspendedMachine(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := &clock{}
	c.set(start.Round(0).Add(10 * time.Second)) // the wall clock alone
	f := NewFence(c.now, FenceAfter, start)
	if !f.Fenced() {
		t.Fatal("not fenced")
	}
}

// TestL2WallClockSetBack: the monotonic clock counts.
func TestL2WallClockSetBack(t *testing.T) {
	t.Parallel()
	wall := time.Unix(1_800_000_000, 0)
	if got := Elapsed(wall, wall.Add(-time.Hour)); got != 0 {
		t.Fatalf("got %v", got)
	}
	start := time.Now()
	c := &clock{}
	c.set(start.Add(5 * time.Second))
	f := NewFence(c.now, FenceAfter, start)
	if !f.Fenced() {
		t.Fatal("not fenced")
	}
}

func TestNoFence(t *testing.T) {
	t.Parallel()
	var f *Fence
	if f.Fenced() || f.Age() != 0 || f.Done() != nil {
		t.Fatal("a nil fence has fallen")
	}
	if (Lease{}).Lost() {
		t.Fatal("a lease without a hold is lost")
	}
	h := NewHold(nil)
	if h.Lost() {
		t.Fatal("lost")
	}
	h.Drop()
	if !h.Lost() {
		t.Fatal("not lost")
	}
}

// TestFenceFallsOnce: many ask at the moment of the fall.
func TestFenceFallsOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		start := time.Unix(0, 0)
		c := &clock{}
		c.set(start)
		f := NewFence(c.now, FenceAfter, start)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if i == 0 {
					c.set(start.Add(FenceAfter))
				}
				f.Fenced()
				f.Renew(start.Add(time.Second))
			})
		}
		wg.Wait()
		done := false
		select {
		case <-f.Done():
			done = true
		default:
		}
		if f.Fenced() != done {
			t.Fatal("Fenced and Done differ")
		}
	}
}

func BenchmarkLost(b *testing.B) {
	lease := Lease{Hold: NewHold(NewFence(time.Now, time.Hour, time.Now()))}
	b.ReportAllocs()
	for b.Loop() {
		if lease.Lost() {
			b.Fatal("lost")
		}
	}
}

func TestWildcardAndPrefixes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"event::*": "event::", "a::b::*": "a::b::", "::*": "::", "event:*": "", "*": "", "event::": ""} {
		if got, ok := Wildcard(name); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v", name, got, ok)
		}
	}
	var got []string
	for prefix := range Prefixes("a::b:::c::") {
		got = append(got, prefix)
	}
	want := []string{"a::", "a::b::", "a::b:::", "a::b:::c::"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %q", got)
		}
	}
	for range Prefixes("a::b::") {
		break
	}
}
