package subject

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func filter(t testing.TB, texts ...string) *Filter {
	t.Helper()
	f, err := NewFilter(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for _, everything := range []*Filter{filter(t), filter(t, ""), filter(t, "a", "#"), nil} {
		if everything != nil || !everything.Match(nil) || !everything.Match([]byte("a.b")) || everything.Patterns() != nil {
			t.Errorf("%v does not take everything", everything)
		}
	}
	f := filter(t, "a.*", "b.#", "a.*", "a.*")
	if n := len(f.Patterns()); n != 2 {
		t.Errorf("%d patterns: repeated ones count", n)
	}
	for s, want := range map[string]bool{"a.x": true, "a": false, "b": true, "b.c.d": true, "": false, "a.x.y": false} {
		if got := f.Match([]byte(s)); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
	var broken *Error
	if f, err := NewFilter("a", "b*"); !errors.As(err, &broken) || broken.Code != StarNotAlone || f != nil {
		t.Errorf("%v, %v", f, err)
	}
}

// Readers come and go; what a reader takes is what its own filter takes, also
// when there are more distinct patterns than bits.
func TestClassesAgainstFilters(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	segment := func() string { return []string{"a", "b", "c", "*"}[r.IntN(4)] }
	type reader struct {
		f *Filter
		i Interest
	}
	var c Classes
	var readers []reader
	most := 0
	for range 3000 {
		if len(readers) > 0 && r.IntN(5) < 2 {
			n := r.IntN(len(readers))
			c.Leave(readers[n].i)
			readers[n] = readers[len(readers)-1]
			readers = readers[:len(readers)-1]
		} else if len(readers) < 60 {
			texts := make([]string, 1+r.IntN(4))
			for i := range texts {
				texts[i] = strings.Join([]string{segment(), segment(), segment(), segment()}[r.IntN(4):], ".")
				if r.IntN(3) == 0 {
					texts[i] += ".#"
				}
			}
			if r.IntN(20) == 0 {
				texts = nil
			}
			f := filter(t, texts...)
			readers = append(readers, reader{f, c.Join(f)})
		}
		s := []byte(strings.Join([]string{"a", "b", "c", "a", "b"}[r.IntN(5):], "."))
		if r.IntN(10) == 0 {
			s = nil
		}
		m := c.Match(s)
		for _, rd := range readers {
			if rd.i.Takes(m) != rd.f.Match(s) {
				t.Fatalf("%q for %q: %v", s, rd.f.Patterns(), rd.i.Takes(m))
			}
		}
		if most = max(most, len(c.bits)); len(c.bits) > maxClasses || len(c.slots) > maxClasses {
			t.Fatalf("%d classes", len(c.bits))
		}
	}
	if most < maxClasses {
		t.Errorf("only %d classes were in use at once", most)
	}
	for _, rd := range readers {
		c.Leave(rd.i)
	}
	if c.used != 0 || len(c.bits) != 0 {
		t.Errorf("%b, %d are left behind", c.used, len(c.bits))
	}
	if (&Interest{}).Takes(c.Match(nil)) {
		t.Error("the zero interest takes something")
	}
}

func TestClassesAllocateNothing(t *testing.T) {
	var c Classes
	var readers []Interest
	for i := range 100 {
		readers = append(readers, c.Join(filter(t, fmt.Sprintf("x.%d.*", i), "y.#")))
	}
	s := []byte("x.99.z")
	if n := testing.AllocsPerRun(100, func() {
		m := c.Match(s)
		for i := range readers {
			sink = readers[i].Takes(m)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// One message of six segments for 1,000 readers who share eight patterns.
func BenchmarkClasses(b *testing.B) {
	name := []byte("llm.v1.response.chunk.anthropic.delta")
	var c Classes
	readers := make([]Interest, 1000)
	for i := range readers {
		readers[i] = c.Join(filter(b, fmt.Sprintf("llm.v%d.response.#", i%8)))
	}
	b.ReportAllocs()
	for b.Loop() {
		m := c.Match(name)
		for i := range readers {
			sink = readers[i].Takes(m)
		}
	}
}
