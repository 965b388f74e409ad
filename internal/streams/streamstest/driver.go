package streamstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/streams"
)

// driverCases try the driver alone: what it stores and confirms.
var driverCases = []testCase{
	{"StoresInOrder", storesInOrder},
	{"ConfirmsRise", confirmsRise},
	{"PartitionsAreApart", partitionsAreApart},
	{"ManyProducers", manyProducers},
	{"LowerIDIsConfirmedAndNotStored", lowerID},
	{"LastID", lastID},
	{"ResendsUnconfirmedSuffix", resendsSuffix},
	{"LargeEntries", largeEntries},
	{"ProducerCloses", producerCloses},
	{"DriverCloses", driverCloses},
	{"RefusesNonsense", refusesNonsense},
	{"LeavesNothingBehind", leavesNothingBehind},
}

func storesInOrder(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	const count = 2000
	r := read(t, d, 0, streams.First())
	fill(t, d, 0, count)
	live := r.entries.awaitLen(t, "entries", count)
	checkTexts(t, "reading along", live, numbers(1, count))
	checkTexts(t, "reading later", readAll(t, d, 0), numbers(1, count))
	if want := entryOf("1"); string(live[0].Data) != string(want) {
		t.Errorf("an entry comes back as %x, was %x", live[0].Data, want)
	}
}

func confirmsRise(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	p := produce(t, d, 0, newName())
	var want []uint64
	for id := uint64(3); id < 1500; id += 1 + id%3 { // ids rise and need not be dense
		p.send(id, fmt.Sprint(id))
		want = append(want, id)
	}
	if got := p.confirmed.awaitLen(t, "confirms", len(want)); !slices.Equal(got, want) {
		t.Errorf("confirms come as %d, want %d", got, want)
	}
}

func partitionsAreApart(t *testing.T, h Harness) {
	d := open(t, h.New(t, 3))
	if n := d.Partitions(); n != 3 {
		t.Fatalf("the driver has %d partitions, want 3", n)
	}
	name := newName() // a producer's ids are counted for each partition
	for i := range 3 {
		p := produce(t, d, i, name)
		p.send(1, fmt.Sprintf("of %d", i))
		p.awaitConfirmed(1)
	}
	for i := range 3 {
		checkTexts(t, fmt.Sprintf("partition %d", i), readAll(t, d, i), []string{fmt.Sprintf("of %d", i)})
	}
}

func manyProducers(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	const producers, count = 5, 200
	open := make([]*producer, producers)
	for i := range open {
		open[i] = produce(t, d, 0, newName())
	}
	for n := 1; n <= count; n++ {
		for i, p := range open {
			p.send(uint64(n), fmt.Sprintf("%d/%d", i, n))
		}
	}
	for _, p := range open {
		p.confirmed.awaitLen(t, "confirms", count)
	}
	next := make([]int, producers)
	all := readAll(t, d, 0)
	for _, e := range all {
		var i, n int
		if _, err := fmt.Sscanf(text(e), "%d/%d", &i, &n); err != nil {
			t.Fatalf("entry %q: %v", text(e), err)
		}
		if next[i]++; n != next[i] {
			t.Fatalf("of producer %d comes %d, want %d", i, n, next[i])
		}
	}
	if len(all) != producers*count {
		t.Errorf("%d entries are stored, want %d", len(all), producers*count)
	}
}

func lowerID(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	name := newName()
	p := produce(t, d, 0, name)
	for _, id := range []uint64{1, 2, 4, 5} {
		p.send(id, fmt.Sprint(id))
	}
	p.awaitConfirmed(5)
	_ = p.Close()

	p = produce(t, d, 0, name)
	for _, id := range []uint64{3, 5, 6} {
		p.send(id, fmt.Sprint("again ", id))
	}
	if got, want := p.confirmed.awaitLen(t, "confirms", 3), []uint64{3, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("confirms come as %d, want %d", got, want)
	}
	checkTexts(t, "the log", readAll(t, d, 0), []string{"1", "2", "4", "5", "again 6"})
}

func lastID(t *testing.T, h Harness) {
	log := h.New(t, 1)
	d := open(t, log)
	name := newName()
	p := produce(t, d, 0, name)
	if id := p.LastID(); id != 0 {
		t.Errorf("a new name has the last id %d", id)
	}
	for id := uint64(1); id <= 7; id++ {
		p.send(id, fmt.Sprint(id))
	}
	p.awaitConfirmed(7)
	_ = p.Close()
	if id := produce(t, d, 0, name).LastID(); id != 7 {
		t.Errorf("after 7 entries the last id is %d", id)
	}
	if id := produce(t, d, 0, newName()).LastID(); id != 0 {
		t.Errorf("another new name has the last id %d", id)
	}
	_ = d.Close()
	if id := produce(t, open(t, log), 0, name).LastID(); id != 7 {
		t.Errorf("to another driver the last id is %d, want 7", id)
	}
}

// resendsSuffix closes a producer in mid-flow, again and again, and resends
// what it has not seen confirmed (delivery rule P2).
func resendsSuffix(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	const count, rounds = 1200, 6
	name := newName()
	next := uint64(1)
	for round := 1; round <= rounds; round++ {
		p := produce(t, d, 0, name)
		if last := p.LastID(); last >= next+count {
			t.Fatalf("the last id is %d, given were less than %d", last, next+count)
		}
		upTo := uint64(round * count / rounds)
		for id := next; id <= upTo; id++ {
			p.send(id, fmt.Sprint(id))
		}
		if round == rounds {
			p.awaitConfirmed(upTo)
		} else {
			p.confirmed.awaitLen(t, "confirms", 1)
		}
		_ = p.Close()
		for _, id := range p.confirmed.all() {
			if id >= next {
				next = id + 1
			}
		}
	}
	checkTexts(t, "the log", readAll(t, d, 0), numbers(1, count))
}

func largeEntries(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	large := strings.Repeat("large one ", streams.MaxEnvelopeBytes/10)
	want := []string{"small", large, "small too", large, large, "end"}
	p := produce(t, d, 0, newName())
	r := read(t, d, 0, streams.Next())
	for i, s := range want {
		p.send(uint64(i+1), s)
	}
	p.confirmed.awaitLen(t, "confirms", len(want))
	checkTexts(t, "reading along", r.entries.awaitLen(t, "entries", len(want)), want)
	checkTexts(t, "reading later", readAll(t, d, 0), want)
}

func producerCloses(t *testing.T, h Harness) {
	d := open(t, h.New(t, 1))
	p := produce(t, d, 0, newName())
	for id := uint64(1); id <= 300; id++ {
		p.send(id, fmt.Sprint(id))
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing a producer: %v", err)
	}
	confirmed := len(p.confirmed.all())
	await(t, p.Done(), "Done of a closed producer")
	if err := p.Send(301, entryOf("301")); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("sending through a closed producer: %v, want %v", err, streams.ErrClosed)
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing a producer twice: %v", err)
	}
	stored := readAll(t, d, 0)
	if len(stored) < confirmed {
		t.Errorf("%d entries were confirmed, %d are stored", confirmed, len(stored))
	}
	checkTexts(t, "the log", stored, numbers(1, len(stored)))
	if n := len(p.confirmed.all()); n != confirmed {
		t.Errorf("%d confirms came after Close had returned", n-confirmed)
	}
}

func driverCloses(t *testing.T, h Harness) {
	d := open(t, h.New(t, 2))
	p, r := produce(t, d, 0, newName()), read(t, d, 1, streams.Next())
	if err := d.Close(); err != nil {
		t.Errorf("closing a driver: %v", err)
	}
	await(t, p.Done(), "Done of a producer whose driver was closed")
	await(t, r.Done(), "Done of a consumer whose driver was closed")
	if err := p.Send(1, entryOf("1")); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("sending after the driver was closed: %v, want %v", err, streams.ErrClosed)
	}
	if _, err := d.OpenProducer(within(t), 0, newName(), func(uint64) {}); err == nil {
		t.Error("a closed driver opens a producer")
	}
	if _, err := d.OpenConsumer(within(t), 0, streams.First(), func(streams.Entry) {}); err == nil {
		t.Error("a closed driver opens a consumer")
	}
	for what, err := range map[string]error{"producer": p.Close(), "consumer": r.Close(), "driver": d.Close()} {
		if err != nil {
			t.Errorf("closing a %s whose driver is closed: %v", what, err)
		}
	}
}

func refusesNonsense(t *testing.T, h Harness) {
	d := open(t, h.New(t, 2))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		what      string
		ctx       context.Context
		partition int
	}{
		{"a partition below 0", within(t), -1},
		{"a partition too many", within(t), 2},
		{"a context that is over", over, 0},
	} {
		if p, err := d.OpenProducer(c.ctx, c.partition, newName(), func(uint64) {}); err == nil {
			_ = p.Close()
			t.Errorf("a producer opens with %s", c.what)
		}
		if r, err := d.OpenConsumer(c.ctx, c.partition, streams.First(), func(streams.Entry) {}); err == nil {
			_ = r.Close()
			t.Errorf("a consumer opens with %s", c.what)
		}
	}
}

// leavesNothingBehind opens and closes in mid-flow and looks for goroutines
// that stay.
func leavesNothingBehind(t *testing.T, h Harness) {
	log := h.New(t, 1)
	before := goleak.IgnoreCurrent()
	d := log.Open(t)
	defer func() { _ = d.Close() }()
	p := produce(t, d, 0, newName())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for id := uint64(1); p.Send(id, entryOf(fmt.Sprint(id))) == nil && id < 100_000; id++ {
		}
	}()
	for range 5 {
		r := read(t, d, 0, streams.First())
		r.entries.awaitLen(t, "entries", 10)
		if err := r.Close(); err != nil {
			t.Errorf("closing a consumer: %v", err)
		}
		got := len(r.entries.all())
		await(t, r.Done(), "Done of a closed consumer")
		p.confirmed.awaitLen(t, "confirms", 10)
		if n := len(r.entries.all()); n != got {
			t.Errorf("%d entries came after Close had returned", n-got)
		}
	}
	_ = p.Close()
	await(t, sent, "the end of sending through a closed producer")
	if err := d.Close(); err != nil {
		t.Errorf("closing a driver: %v", err)
	}
	// A connection that the broker has not answered, as happens to one of a
	// hundred, lasts until the broker gives it up after some 10 s.
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = goleak.Find(before); err == nil { // tries for a while
			return
		}
	}
	t.Errorf("a closed driver leaves goroutines behind: %v", err)
}
