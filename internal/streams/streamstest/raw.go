package streamstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

var names atomic.Uint64

const namePrefix = "case-"

// newName returns a producer name that no log has seen.
func newName() string {
	return fmt.Sprintf("%s%d-%d", namePrefix, time.Now().UnixNano(), names.Add(1))
}

func isName(s string) bool { return strings.HasPrefix(s, namePrefix) }

// within returns a context that ends with patience, or with the test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, log Log) streams.Driver {
	t.Helper()
	d := log.Open(t)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// await waits for done and fails the test if it does not come.
func await(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// notebook is a list that many write to and one waits for.
type notebook[T any] struct {
	mu      sync.Mutex
	list    []T
	changed chan struct{}
}

func (n *notebook[T]) add(x T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, x)
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

func (n *notebook[T]) all() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// await waits until the list satisfies enough, which is called with the lock
// held, and returns it.
func (n *notebook[T]) await(t *testing.T, what string, enough func([]T) bool) []T {
	t.Helper()
	giveUp := time.After(patience)
	for {
		n.mu.Lock()
		if enough(n.list) {
			defer n.mu.Unlock()
			return slices.Clone(n.list)
		}
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		have, changed := len(n.list), n.changed
		n.mu.Unlock()
		select {
		case <-changed:
		case <-giveUp:
			t.Fatalf("waited in vain for %s; have %d", what, have)
		}
	}
}

func (n *notebook[T]) awaitLen(t *testing.T, what string, count int) []T {
	t.Helper()
	return n.await(t, fmt.Sprintf("%d %s", count, what), func(list []T) bool { return len(list) >= count })
}

// producer is an open producer that notes its confirms.
type producer struct {
	streams.Producer
	t         *testing.T
	confirmed notebook[uint64]
}

func produce(t *testing.T, d streams.Driver, partition int, name string) *producer {
	t.Helper()
	p := &producer{t: t}
	opened, err := d.OpenProducer(within(t), partition, name, p.confirmed.add)
	if err != nil {
		t.Fatalf("opening a producer: %v", err)
	}
	p.Producer = opened
	t.Cleanup(func() { _ = opened.Close() })
	return p
}

func (p *producer) send(id uint64, envelopes ...string) {
	p.t.Helper()
	if err := p.Send(id, entryOf(envelopes...)); err != nil {
		p.t.Fatalf("sending entry %d: %v", id, err)
	}
}

// awaitConfirmed waits for the confirm of id.
func (p *producer) awaitConfirmed(id uint64) {
	p.t.Helper()
	p.confirmed.await(p.t, fmt.Sprintf("the confirm of %d", id), func(ids []uint64) bool { return slices.Contains(ids, id) })
}

// fill stores entries of one envelope each, numbered from 1, and returns when
// they are confirmed.
func fill(t *testing.T, d streams.Driver, partition, count int) {
	t.Helper()
	p := produce(t, d, partition, newName())
	for i := 1; i <= count; i++ {
		p.send(uint64(i), fmt.Sprint(i))
	}
	p.confirmed.awaitLen(t, "confirms", count)
	if err := p.Close(); err != nil {
		t.Fatalf("closing a producer: %v", err)
	}
}

// reader is an open consumer that notes what it gets.
type reader struct {
	streams.Consumer
	entries notebook[streams.Entry]
}

func read(t *testing.T, d streams.Driver, partition int, from streams.Start) *reader {
	t.Helper()
	r := new(reader)
	opened, err := d.OpenConsumer(within(t), partition, from, r.entries.add)
	if err != nil {
		t.Fatalf("opening a consumer: %v", err)
	}
	r.Consumer = opened
	t.Cleanup(func() { _ = opened.Close() })
	return r
}

// readAll reads a partition from its first entry until an entry of its own,
// which it stores, comes by.
func readAll(t *testing.T, d streams.Driver, partition int) []streams.Entry {
	t.Helper()
	end := newName()
	p := produce(t, d, partition, end)
	p.send(1, end)
	p.awaitConfirmed(1)
	_ = p.Close()
	r := read(t, d, partition, streams.First())
	list := r.entries.await(t, "the end of the log", func(list []streams.Entry) bool {
		return len(list) > 0 && text(list[len(list)-1]) == end
	})
	_ = r.Close()
	return list[:len(list)-1]
}

func entryOf(envelopes ...string) []byte {
	data := streams.BeginEntry(nil)
	for _, e := range envelopes {
		data = streams.AppendEnvelope(data, []byte(e))
	}
	return data
}

// envelopes returns the envelopes of an entry as text.
func envelopes(e streams.Entry) []string {
	var list []string
	it := streams.Open(e.Data)
	for it.Next() {
		list = append(list, string(it.Bytes()))
	}
	if it.Damaged() || it.Skipped() > 0 {
		list = append(list, fmt.Sprintf("damaged entry at %d", e.Offset))
	}
	return list
}

func text(e streams.Entry) string { return strings.Join(envelopes(e), " ") }

func texts(entries []streams.Entry) []string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = text(e)
	}
	return list
}

func numbers(from, to int) []string {
	var list []string
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

func checkTexts(t *testing.T, what string, entries []streams.Entry, want []string) {
	t.Helper()
	if got := texts(entries); !slices.Equal(got, want) {
		t.Errorf("%s: got %d entries %.200q, want %d %.200q", what, len(got), got, len(want), want)
	}
	checkRising(t, what, entries)
}

func checkRising(t *testing.T, what string, entries []streams.Entry) {
	t.Helper()
	for i := 1; i < len(entries); i++ {
		if entries[i].Offset <= entries[i-1].Offset {
			t.Errorf("%s: offset %d comes after %d", what, entries[i].Offset, entries[i-1].Offset)
			return
		}
	}
}
