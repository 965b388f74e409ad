package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
	"go.uber.org/goleak"
)

// childEnv names the file that a child process of a test appends to until it
// is killed; with feedEnv it does what the conformance suite asks for.
const (
	childEnv = "EMBEDDED_TEST_CHILD"
	feedEnv  = "EMBEDDED_TEST_FEED"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := child(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// child is a process that stores until it is killed, one way or the other.
func child(path string) error {
	f, err := sqlitefile.Open(path)
	if err != nil {
		return err
	}
	d, err := embedded.Open(f, embedded.Options{Partitions: 2})
	if err != nil {
		return err
	}
	if os.Getenv(feedEnv) != "" {
		return streamstest.Feed(d, os.Stdout)
	}
	return append8(d)
}

// payload is what the entry of an id holds.
func payload(id uint64) []byte {
	data := make([]byte, 1000+id%5000)
	copy(data, fmt.Sprintf("entry %d ", id))
	return data
}

// append8 appends as fast as it can, with eight entries unconfirmed, and
// prints each id that is confirmed.
func append8(d *embedded.Driver) error {
	confirmed := make(chan uint64, 64)
	p, err := d.OpenProducer(context.Background(), 1, "child", func(id uint64) { confirmed <- id })
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	sent := p.LastID()
	for unconfirmed := 0; ; unconfirmed-- {
		for ; unconfirmed < 8; unconfirmed++ {
			sent++
			if err := p.Send(sent, payload(sent)); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, <-confirmed)
		_ = out.Flush()
	}
}

type bench struct {
	t    testing.TB
	path string
	file *sqlitefile.File
	d    *embedded.Driver
}

func setup(t testing.TB, o embedded.Options) *bench {
	t.Helper()
	b := &bench{t: t, path: t.TempDir() + "/gateway.db"}
	b.open(o)
	t.Cleanup(b.close)
	return b
}

func (b *bench) open(o embedded.Options) {
	b.t.Helper()
	if o.Partitions == 0 {
		o.Partitions = 2
	}
	var err error
	if b.file, err = sqlitefile.Open(b.path); err != nil {
		b.t.Fatal(err)
	}
	if b.d, err = embedded.Open(b.file, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) close() {
	b.t.Helper()
	if err := b.d.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.file.Close(); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) reopen(o embedded.Options) {
	b.t.Helper()
	b.close()
	b.open(o)
}

// producer is a producer whose confirms can be waited for.
type producer struct {
	streams.Producer
	t         testing.TB
	confirmed chan uint64
}

func (b *bench) producer(partition int, name string) *producer {
	b.t.Helper()
	p := &producer{t: b.t, confirmed: make(chan uint64, 10_000)}
	var err error
	p.Producer, err = b.d.OpenProducer(context.Background(), partition, name, func(id uint64) { p.confirmed <- id })
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// append sends entries and waits for their confirms.
func (p *producer) append(first uint64, entries ...string) {
	p.t.Helper()
	for i, e := range entries {
		if err := p.Send(first+uint64(i), []byte(e)); err != nil {
			p.t.Fatal(err)
		}
	}
	for i := range entries {
		if id := <-p.confirmed; id != first+uint64(i) {
			p.t.Fatalf("confirmed %d, want %d", id, first+uint64(i))
		}
	}
}

// consumer opens a consumer whose entries come through the channel.
func (b *bench) consumer(partition int, from streams.Start) (<-chan streams.Entry, streams.Consumer) {
	b.t.Helper()
	entries := make(chan streams.Entry, 10_000)
	c, err := b.d.OpenConsumer(context.Background(), partition, from, func(e streams.Entry) { entries <- e })
	if err != nil {
		b.t.Fatal(err)
	}
	return entries, c
}

// expect wants the next entries to have these offsets, and texts if given.
func expect(t testing.TB, entries <-chan streams.Entry, first uint64, texts ...string) {
	t.Helper()
	for i, want := range texts {
		e := <-entries
		if e.Offset != first+uint64(i) || string(e.Data) != want {
			t.Fatalf("got %q at %d, want %q at %d", e.Data, e.Offset, want, first+uint64(i))
		}
	}
}
