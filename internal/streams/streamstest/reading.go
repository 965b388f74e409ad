package streamstest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// readCases try where and how a consumer reads.
var readCases = []testCase{
	{"ReadsFirst", readsFirst},
	{"ReadsNext", readsNext},
	{"ReadsFrom", readsFrom},
	{"ReadsFromPastTheEnd", readsFromPastTheEnd},
	{"ReadsTheEmpty", readsTheEmpty},
	{"ReadsSince", readsSince},
	{"KnowsItsFirst", knowsFirst},
	{"ResumesInsideAnEntry", resumesInside},
	{"SlowHandlerHurtsNobodyElse", slowHandler},
	{"ConsumerClosesWhileHandling", closesWhileHandling},
	{"SeesAnotherDriversEntries", anotherDriver},
}

func readsFirst(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	fill(t, d, 0, 50)
	for range 2 {
		r := read(t, d, 0, streams.First())
		checkTexts(t, "from the first", r.entries.awaitLen(t, "entries", 50), numbers(1, 50))
	}
}

func readsNext(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	for _, old := range []int{0, 1, 30} {
		fill(t, d, 0, old)
		r := read(t, d, 0, streams.Next())
		fill(t, d, 0, 20)
		checkTexts(t, fmt.Sprintf("next after %d more", old), r.entries.awaitLen(t, "entries", 20), numbers(1, 20))
		_ = r.Close()
	}
}

func readsFrom(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	const count = 60
	fill(t, d, 0, count)
	all := readAll(t, d, 0)
	last := all[count-1].Offset
	for offset := uint64(0); offset <= last; offset++ {
		if offset > 8 && offset < last-8 && offset%7 != 0 {
			continue
		}
		first := slices.IndexFunc(all, func(e streams.Entry) bool { return e.Offset >= offset })
		r := read(t, d, 0, streams.From(offset))
		got := r.entries.awaitLen(t, fmt.Sprintf("entries from %d", offset), count-first)
		checkTexts(t, fmt.Sprintf("from %d", offset), got[:count-first], texts(all[first:]))
		_ = r.Close()
	}
}

// readsFromPastTheEnd: brokers are known to deliver nothing, or to pass over
// what is stored next, when a reader asks for more than there is.
func readsFromPastTheEnd(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	const count = 20
	fill(t, d, 0, count)
	last := readAll(t, d, 0)[count-1].Offset
	var readers []*reader
	var starts []uint64
	for _, beyond := range []uint64{1, 2, 3, 10} {
		starts = append(starts, last+beyond)
		readers = append(readers, read(t, d, 0, streams.From(last+beyond)))
	}
	for range 3 {
		fill(t, d, 0, count)
	}
	all := readAll(t, d, 0)
	for i, r := range readers {
		first := slices.IndexFunc(all, func(e streams.Entry) bool { return e.Offset >= starts[i] })
		want := texts(all[first:])
		// Entries that readAll stores to find the end come by as well.
		got := r.entries.awaitLen(t, fmt.Sprintf("entries from %d, past the end", starts[i]), len(want))
		numbered := slices.DeleteFunc(texts(got), isName)
		if want := slices.DeleteFunc(want, isName); !slices.Equal(numbered, want) {
			t.Errorf("from %d past the end: got %q, want %q", starts[i]-last, numbered, want)
		}
		for _, e := range got {
			if e.Offset < starts[i] {
				t.Errorf("from %d comes an entry at %d", starts[i], e.Offset)
			}
		}
		checkRising(t, "past the end", got)
	}
}

func readsTheEmpty(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	var readers []*reader
	for _, from := range []streams.Start{streams.First(), streams.Next(), streams.From(0)} {
		readers = append(readers, read(t, d, 0, from))
	}
	fill(t, d, 0, 10)
	for i, r := range readers {
		checkTexts(t, fmt.Sprintf("empty log, start %d", i), r.entries.awaitLen(t, "entries", 10), numbers(1, 10))
	}
}

// readsSince: from before the log, from between two entries, from after all.
func readsSince(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	fill(t, d, 0, 30)
	<-time.After(50 * time.Millisecond) // clocks are read in milliseconds
	between := time.Now()
	<-time.After(50 * time.Millisecond)
	fill(t, d, 0, 30)
	for _, c := range []struct {
		since  time.Time
		passed int
	}{{between.Add(-time.Hour), 0}, {between, 30}, {between.Add(time.Hour), -1}} {
		var want []string
		if c.passed >= 0 {
			want = texts(readAll(t, d, 0)[c.passed:])
		}
		r := read(t, d, 0, streams.Since(c.since))
		fill(t, d, 0, 5)
		// Entries that readAll stores to find the end come by as well.
		want = slices.DeleteFunc(append(want, numbers(1, 5)...), isName)
		var got []string
		r.entries.await(t, "entries since then", func(list []streams.Entry) bool {
			got = slices.DeleteFunc(texts(list), isName)
			return len(got) >= len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("since %v: got %q, want %q", c.since.Sub(between), got, want)
		}
		_ = r.Close()
	}
}

// knowsFirst asks for the first entry while nothing is removed. What it is
// afterwards, each driver's own tests show.
func knowsFirst(t *testing.T, h Harness) {
	d := open(t, h.New(t, 2))
	if e, err := d.First(within(t), 0); err != nil || e.Data != nil {
		t.Errorf("of an empty log: %v, %v", e, err)
	}
	for range 2 {
		fill(t, d, 0, 200)
		e, err := d.First(within(t), 0)
		if err != nil {
			t.Fatal(err)
		}
		if all := readAll(t, d, 0); e.Offset != all[0].Offset || !slices.Equal(e.Data, all[0].Data) {
			t.Errorf("the first is %d %q, want %d %q", e.Offset, text(e), all[0].Offset, text(all[0]))
		}
	}
	if e, err := d.First(within(t), 1); err != nil || e.Data != nil {
		t.Errorf("of another partition: %v, %v", e, err)
	}
	for _, n := range []int{-1, 2} {
		if _, err := d.First(within(t), n); err == nil {
			t.Errorf("partition %d has a first entry", n)
		}
	}
	_ = d.Close()
	if _, err := d.First(within(t), 0); err == nil {
		t.Error("a closed driver knows the first entry")
	}
}

// resumesInside reads on after every position of a few entries (delivery rule
// C1).
func resumesInside(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	p := produce(t, d, 0, newName())
	sizes := []int{1, 5, 1, 3}
	for i, size := range sizes {
		var list []string
		for k := range size {
			list = append(list, fmt.Sprintf("%d.%d", i, k))
		}
		p.send(uint64(i+1), list...)
	}
	p.confirmed.awaitLen(t, "confirms", len(sizes))

	type place struct {
		at   streams.Position
		text string
	}
	places := func(entries []streams.Entry, after *streams.Position) (list []place) {
		for _, e := range entries {
			it := streams.Open(e.Data)
			for it.Next() {
				at := streams.At(e.Offset, it.Index())
				if after == nil || at > *after {
					list = append(list, place{at, string(it.Bytes())})
				}
			}
		}
		return list
	}
	all := places(readAll(t, d, 0), nil)
	if len(all) != 10 {
		t.Fatalf("%d envelopes are stored, want 10", len(all))
	}
	for i, done := range all[:len(all)-1] {
		r := read(t, d, 0, streams.From(done.at.Offset()))
		want := all[i+1:]
		r.entries.await(t, "the rest", func(list []streams.Entry) bool { return len(places(list, &done.at)) >= len(want) })
		if got := places(r.entries.all(), &done.at)[:len(want)]; !slices.Equal(got, want) {
			t.Errorf("after %v: got %v, want %v", done.at, got, want)
		}
		_ = r.Close()
	}
}

func slowHandler(t *testing.T, h Harness) {
	d := open(t, h.New(t, 2))
	blocked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	slow := new(reader)
	first := true
	c, err := d.OpenConsumer(within(t), 0, streams.First(), func(e streams.Entry) {
		if first {
			first = false
			close(blocked)
			<-release
		}
		slow.entries.add(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	const count = 3000
	same, other := read(t, d, 0, streams.First()), read(t, d, 1, streams.First())
	fill(t, d, 0, count)
	await(t, blocked, "the slow handler")
	fill(t, d, 1, count)
	same.entries.awaitLen(t, "entries beside a slow handler", count)
	other.entries.awaitLen(t, "entries of another partition", count)
	if n := len(slow.entries.all()); n != 0 {
		t.Errorf("the blocked handler was called for %d more entries", n)
	}
	release <- struct{}{}
	checkTexts(t, "the slow handler", slow.entries.awaitLen(t, "entries", count), numbers(1, count))
}

// closesWhileHandling: Close waits for the handler that runs.
func closesWhileHandling(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	fill(t, d, 0, 100)
	handling, release := make(chan struct{}), make(chan struct{})
	var handled notebook[uint64]
	c, err := d.OpenConsumer(within(t), 0, streams.First(), func(e streams.Entry) {
		if len(handled.all()) == 0 {
			close(handling)
			<-release
		}
		handled.add(e.Offset)
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, handling, "the handler")
	closed := make(chan int, 1)
	go func() {
		_ = c.Close()
		closed <- len(handled.all())
	}()
	select {
	case <-closed:
		t.Error("Close returned while the handler was running")
		close(release)
		return
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	n := <-closed
	if n == 0 {
		t.Error("Close returned before the handler")
	}
	fill(t, d, 0, 20)
	if later := len(handled.all()); later != n {
		t.Errorf("%d entries were handled after Close had returned", later-n)
	}
}

func anotherDriver(t *testing.T, h Harness) {
	log := h.New(t, 1)
	writer := open(t, log)
	fill(t, writer, 0, 10)
	reading := open(t, log)
	r := read(t, reading, 0, streams.First())
	r.entries.awaitLen(t, "entries", 10)
	fill(t, writer, 0, 10)
	checkTexts(t, "another driver", r.entries.awaitLen(t, "entries", 20), append(numbers(1, 10), numbers(1, 10)...))
}
