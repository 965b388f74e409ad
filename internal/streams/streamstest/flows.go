package streamstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/streams"
)

// flowCases try Writers and Tails on the driver, without faults of the broker.
var flowCases = []testCase{
	{"OrderPerAddress", orderPerAddress},
	{"ManyAddressesInOneStream", manyAddresses},
	{"WriterResetsInMidFlow", writerResets},
	{"TailResetsInMidFlow", tailResets},
	{"NothingConfirmedIsLost", nothingLost},
	{"NameIsNeverUsedAgain", nameUsed},
	{"LargeEnvelopes", largeEnvelopes},
	{"FlushAndClose", flushAndClose},
	{"TailBeginsAtTheEnd", tailBeginsAtTheEnd},
	{"SlowTail", slowTail},
}

func orderPerAddress(t *testing.T, h Harness) {
	f := startFlow(t, h.New(t, 3), flowOptions{partitions: 3, senders: 24, each: 300, size: 200})
	f.awaitStored(24 * 300)
	f.finish()
}

func manyAddresses(t *testing.T, h Harness) {
	f := startFlow(t, h.New(t, 1), flowOptions{partitions: 1, senders: 2000, each: 5, size: 100})
	f.awaitStored(2000 * 5)
	f.finish()
}

func writerResets(t *testing.T, h Harness) {
	f := startFlow(t, h.New(t, 2), flowOptions{partitions: 2, senders: 12, size: 100})
	for round := range 6 {
		f.awaitStored((round + 1) * 800)
		for _, w := range f.writers {
			w.Reset()
		}
	}
	f.awaitStored(7 * 800)
	f.finish()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed > 0 {
		t.Errorf("%d sends failed although the log was there", f.failed)
	}
}

func tailResets(t *testing.T, h Harness) {
	f := startFlow(t, h.New(t, 2), flowOptions{partitions: 2, senders: 12, size: 100})
	for round := range 6 {
		f.awaitRead((round + 1) * 800)
		for _, tail := range f.tails {
			tail.Reset()
		}
	}
	f.awaitRead(7 * 800)
	f.finish()
}

func nothingLost(t *testing.T, h Harness) {
	log := h.New(t, 1)
	var want []string
	for round := range 3 {
		d := open(t, log)
		var told sync.Map
		w := streams.NewWriter(streams.WriterOptions[string]{
			Driver: d, Name: newName(),
			Settled: func(items []string, outcome streams.Outcome) {
				for _, i := range items {
					told.Store(i, outcome)
				}
			},
		})
		var sent []string
		for i := range 1500 {
			s := fmt.Sprintf("%d.%d", round, i)
			if err := w.Append([]byte(s), s); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, s)
		}
		if round < 2 {
			if err := w.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close(within(t))
		_ = d.Close()
		for _, s := range sent {
			if outcome, _ := told.Load(s); outcome != streams.Stored {
				t.Fatalf("%s is told %v", s, outcome)
			}
		}
		want = append(want, sent...)
	}
	var got []string
	for _, e := range readAll(t, open(t, log), 0) {
		got = append(got, envelopes(e)...)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d envelopes are stored, want the %d that were confirmed", len(got), len(want))
	}
}

// nameUsed: whoever comes with a name that the log knows would have entries
// confirmed and dropped (delivery rule P1).
func nameUsed(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	name := newName()
	p := produce(t, d, 0, name)
	p.send(1, "of the first")
	p.awaitConfirmed(1)
	_ = p.Close()

	var outcomes notebook[streams.Outcome]
	w := streams.NewWriter(streams.WriterOptions[int]{
		Driver: d, Name: name,
		Settled: func(items []int, outcome streams.Outcome) {
			for range items {
				outcomes.add(outcome)
			}
		},
	})
	defer func() { _ = w.Close(within(t)) }()
	early := w.Append([]byte("of the second"), 1) == nil
	if err := w.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if early {
		if got := outcomes.awaitLen(t, "outcomes", 1); got[0] != streams.NotStored {
			t.Errorf("a send under a used name is told %v", got[0])
		}
	}
	for w.Err() == nil {
		if err := w.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{"Err": w.Err(), "Append": w.Append([]byte("later"), 2)} {
		if !errors.Is(err, streams.ErrNameUsed) {
			t.Errorf("%s: %v, want %v", what, err, streams.ErrNameUsed)
		}
	}
	checkTexts(t, "the log", readAll(t, d, 0), []string{"of the first"})
}

func largeEnvelopes(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	sizes := []int{10, 1_000_000, 20, streams.MaxEnvelopeBytes, 200 << 10, 200 << 10, 30}
	var got notebook[int]
	tail := streams.NewTail(streams.TailOptions{Driver: d, Start: streams.First(), Handle: func(e streams.Entry) {
		it := streams.Open(e.Data)
		for it.Next() {
			got.add(len(it.Bytes()))
		}
		if it.Damaged() || it.Skipped() > 0 {
			t.Errorf("the entry at %d is damaged", e.Offset)
		}
	}})
	defer tail.Close()
	w := streams.NewWriter(streams.WriterOptions[int]{Driver: d, Name: newName()})
	for i, size := range sizes {
		if err := w.Append(make([]byte, size), i); err != nil {
			t.Errorf("appending %d bytes: %v", size, err)
		}
	}
	if err := w.Append(make([]byte, streams.MaxEnvelopeBytes+1), 0); !errors.Is(err, streams.ErrTooLarge) {
		t.Errorf("an envelope too large: %v, want %v", err, streams.ErrTooLarge)
	}
	if err := w.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if list := got.awaitLen(t, "envelopes", len(sizes)); fmt.Sprint(list) != fmt.Sprint(sizes) {
		t.Errorf("sizes come as %v, want %v", list, sizes)
	}
}

func flushAndClose(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	var stored notebook[int]
	w := streams.NewWriter(streams.WriterOptions[int]{
		Driver: d, Name: newName(),
		Settled: func(items []int, outcome streams.Outcome) {
			for _, i := range items {
				if outcome != streams.Stored {
					i = -i
				}
				stored.add(i)
			}
		},
	})
	if err := w.Flush(within(t)); err != nil {
		t.Errorf("flushing nothing: %v", err)
	}
	n := 0
	for _, count := range []int{1, 500, 3000} {
		for range count {
			n++
			if err := w.Append(fmt.Appendf(nil, "envelope %d", n), n); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
		list := stored.all()
		if len(list) != n {
			t.Fatalf("after a flush %d of %d have an outcome", len(list), n)
		}
		for i, got := range list {
			if got != i+1 {
				t.Fatalf("outcome %d is that of %d", i+1, got)
			}
		}
	}
	for range 100 {
		n++
		if err := w.Append(fmt.Appendf(nil, "envelope %d", n), n); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(within(t)); err != nil {
		t.Errorf("closing: %v", err)
	}
	if got := len(stored.all()); got != n {
		t.Errorf("after Close %d of %d have an outcome", got, n)
	}
	if err := w.Append([]byte("late"), 0); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("appending to a closed writer: %v, want %v", err, streams.ErrClosed)
	}
	if err := w.Close(context.Background()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func tailBeginsAtTheEnd(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	fill(t, d, 0, 25)
	up := make(chan struct{})
	var got notebook[streams.Entry]
	var once sync.Once
	tail := streams.NewTail(streams.TailOptions{
		Driver: d, Start: streams.Next(), Handle: got.add,
		Up: func() {
			if len(got.all()) > 0 {
				t.Error("Up comes after an entry")
			}
			once.Do(func() { close(up) })
		},
	})
	await(t, up, "the tail to open")
	fill(t, d, 0, 40)
	checkTexts(t, "the tail", got.awaitLen(t, "entries", 40), numbers(1, 40))
	tail.Close()
	fill(t, d, 0, 10)
	if n := len(got.all()); n != 40 {
		t.Errorf("%d entries were handed on after Close had returned", n-40)
	}
}

// slowTail: one tail stands still, the writer and another tail go on.
func slowTail(t *testing.T, h Harness) {
	log := h.New(t, 1)
	handling, release := make(chan struct{}), make(chan struct{})
	var slow notebook[streams.Entry]
	first := true
	tail := streams.NewTail(streams.TailOptions{Driver: open(t, log), Start: streams.First(), Handle: func(e streams.Entry) {
		if first {
			first = false
			close(handling)
			<-release
		}
		slow.add(e)
	}})
	defer tail.Close()
	f := startFlow(t, log, flowOptions{partitions: 1, senders: 10, each: 400, size: 300})
	await(t, handling, "the slow tail")
	f.awaitRead(10 * 400)
	f.finish()
	close(release)
	want := f.entries[0]
	got := slow.await(t, "the slow tail to catch up", func(list []streams.Entry) bool {
		return len(list) > 0 && list[len(list)-1].Offset >= want[len(want)-1].Offset
	})
	checkRising(t, "the slow tail", got)
	if fmt.Sprint(texts(got[:len(want)])) != fmt.Sprint(texts(want)) {
		t.Error("the slow tail gets other entries")
	}
}
