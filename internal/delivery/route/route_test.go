package route

import (
	"fmt"
	"testing"
)

func names(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, "ag::w::i::%d", i)
	}
	return list
}

// filled is a route in which each principal has something waiting, and as much
// as fits in all.
func filled(principals [][]byte, each int) *Route[int] {
	r := New[int](Options{Budget: len(principals) * each * 1000, Principals: len(principals)}, nil)
	for range each {
		for _, p := range principals {
			r.Push(p, 1000, 0)
		}
	}
	return r
}

// Once a route has the memory that it needs, neither what comes, nor what goes,
// nor what is pushed out takes any more, also if principals come and go.
func TestAllocatesNothing(t *testing.T) {
	many := names(5000)
	for name, r := range map[string]*Route[int]{"standing": filled(many, 2), "coming and going": filled(many, 1)} {
		i := 0
		if n := testing.AllocsPerRun(20_000, func() { r.Pop(); r.Push(many[i%len(many)], 1000, 0); i += 7 }); n > 0 {
			t.Errorf("%s: %v allocations for a push and a pop", name, n)
		}
		if n := testing.AllocsPerRun(20_000, func() { r.Push(many[i%len(many)], 1000, 0); i += 7 }); n > 0 {
			t.Errorf("%s: %v allocations for a push that evicts", name, n)
		}
	}
}

// A hundred principals, half of whom send 64 KiB at a time and half 1 KiB, get
// the same number of bytes.
func TestByteFairness(t *testing.T) {
	t.Parallel()
	principals := names(100)
	r := New[int](Options{Budget: 1 << 30, PerPrincipal: 1 << 20}, nil)
	cost := func(i int) int { return 1 << 10 << (6 * (i % 2)) }
	for i, p := range principals {
		for sent := 0; sent < 4<<20; sent += cost(i) {
			r.Push(p, cost(i), i)
		}
	}
	got := make([]float64, len(principals))
	for range 100_000 {
		i, ok := r.Pop()
		if !ok {
			t.Fatal("it is empty")
		}
		got[i] += float64(cost(i))
	}
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if jain := sum * sum / (float64(len(got)) * squares); jain < 0.99 {
		t.Errorf("Jain index %.4f", jain)
	}
}

// A route can be opened shut, and let messages in from one moment on.
func TestGate(t *testing.T) {
	t.Parallel()
	r := New[string](Options{Shut: true}, nil)
	if res := r.Push(nil, 1, "a"); res.Reject != AtGate || res.Woke {
		t.Fatalf("got %+v", res)
	}
	if !r.Open() || r.Open() {
		t.Fatal("it opens twice")
	}
	if res := r.Push(nil, 1, "b"); res.Reject != Taken || !res.Woke {
		t.Fatalf("got %+v", res)
	}
	if m, ok := r.Pop(); m != "b" || !ok {
		t.Fatalf("got %q", m)
	}
}

// An idle route costs little, also after a burst.
func TestIdleIsSmall(t *testing.T) {
	t.Parallel()
	r := filled(names(1000), 3)
	for ok := true; ok; {
		_, ok = r.Pop()
	}
	if cap(r.nodes) > maxIdleNodes || len(r.table) > maxIdleTable || r.spare != nil {
		t.Errorf("it keeps %d nodes and %d of its table", cap(r.nodes), len(r.table))
	}
}

func BenchmarkPushPop(b *testing.B) {
	for _, n := range []int{1, 5000} {
		b.Run(fmt.Sprint("principals=", n), func(b *testing.B) {
			p := names(n)
			r := filled(p, 10_000/n+1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Pop()
				r.Push(p[i*7%n], 1000, 0)
			}
		})
	}
}

func BenchmarkPush(b *testing.B) {
	for _, n := range []int{1, 5000} {
		p := names(n)
		b.Run(fmt.Sprint("evicting/principals=", n), func(b *testing.B) {
			r := New[int](Options{Budget: 10_000 * 1000, Principals: n}, nil)
			for i := range 20_000 {
				r.Push(p[i%n], 1000, 0)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Push(p[i*7%n], 1000, 0)
			}
		})
		b.Run(fmt.Sprint("roomy/principals=", n), func(b *testing.B) {
			r := New[int](Options{Budget: 1 << 40, Principals: n, PerPrincipal: 1 << 30}, nil)
			for i := range 20_000 {
				r.Push(p[i%n], 1000, 0)
			}
			for i := 0; b.Loop(); i++ {
				r.Push(p[i*7%n], 1000, 0)
			}
		})
	}
}
