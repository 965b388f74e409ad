package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{Partitions: 3})
	if n := b.d.Partitions(); n != 3 {
		t.Errorf("%d partitions", n)
	}
	for _, o := range []embedded.Options{
		{}, {Partitions: -1}, {Partitions: 257}, {Partitions: 3, MaxAge: -1}, {Partitions: 3, MaxBytes: -1}, {Partitions: 3, Extra: -1},
	} {
		if _, err := embedded.Open(b.file, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	var format *embedded.FormatError
	if _, err := embedded.Open(b.file, embedded.Options{Partitions: 4}); !errors.As(err, &format) || format.Have != 3 {
		t.Errorf("another number of partitions: %v", err)
	}
	err := b.file.Write(context.Background(), func(tx *sqlitefile.Tx) error {
		_, err := tx.Exec("update log_meta set format = 99")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(b.file, embedded.Options{Partitions: 3}); !errors.As(err, &format) || format.Have != 99 {
		t.Errorf("another format: %v", err)
	}
}

// A log that was born without further partitions gets them, and keeps what it
// has.
func TestExtraPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{Partitions: 2})
	b.producer(1, "p").append(1, "a")
	more := embedded.Options{Partitions: 2, Extra: 1}
	for _, text := range []string{"x", "y"} {
		b.reopen(more)
		if n := b.d.Partitions(); n != 3 {
			t.Fatalf("%d partitions", n)
		}
		b.producer(2, "q"+text).append(1, text)
	}
	first, _ := b.consumer(1, streams.First())
	expect(t, first, 0, "a")
	added, _ := b.consumer(2, streams.First())
	expect(t, added, 0, "x", "y")
	b.reopen(embedded.Options{Partitions: 2}) // an older program
	if n := b.d.Partitions(); n != 2 {
		t.Errorf("%d partitions", n)
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	ctx := context.Background()
	none := func(uint64) {}
	for _, bad := range []struct {
		partition int
		name      string
	}{{-1, "p"}, {2, "p"}, {0, ""}, {0, strings.Repeat("n", 256)}} {
		if _, err := b.d.OpenProducer(ctx, bad.partition, bad.name, none); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for _, n := range []int{-1, 2} {
		if _, err := b.d.OpenConsumer(ctx, n, streams.First(), func(streams.Entry) {}); err == nil {
			t.Errorf("partition %d was accepted", n)
		}
	}
	p := b.producer(0, "p")
	for _, id := range []uint64{0, math.MaxInt64 + 1, math.MaxUint64} {
		if err := p.Send(id, []byte("x")); err == nil {
			t.Errorf("id %d was accepted", id)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.d.OpenProducer(ended, 0, "p", none); !errors.Is(err, context.Canceled) {
		t.Errorf("OpenProducer with an ended context: %v", err)
	}
	if _, err := b.d.OpenConsumer(ended, 0, streams.First(), func(streams.Entry) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("OpenConsumer with an ended context: %v", err)
	}
}

func TestAppendAndRead(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	live, _ := b.consumer(0, streams.First())
	beyond, _ := b.consumer(0, streams.From(2))
	p := b.producer(0, "p")
	if id := p.LastID(); id != 0 {
		t.Errorf("LastID = %d", id)
	}
	p.append(1, "a", "", "c")
	expect(t, live, 0, "a", "", "c")
	expect(t, beyond, 2, "c")
	next, _ := b.consumer(0, streams.Next())
	other := b.producer(1, "p") // the same name is another one elsewhere
	other.append(1, "other")
	p.append(10, "d")
	expect(t, live, 3, "d")
	expect(t, beyond, 3, "d")
	expect(t, next, 3, "d")

	b.reopen(embedded.Options{})
	again, _ := b.consumer(0, streams.First())
	expect(t, again, 0, "a", "", "c", "d")
	middle, _ := b.consumer(0, streams.From(2))
	expect(t, middle, 2, "c", "d")
	far, _ := b.consumer(0, streams.From(math.MaxUint64))
	p = b.producer(0, "p")
	if id := p.LastID(); id != 10 {
		t.Errorf("LastID = %d", id)
	}
	p.append(11, "e")
	expect(t, again, 4, "e")
	select {
	case e := <-far:
		t.Errorf("got %d", e.Offset)
	default:
	}
}

// Delivery rule P2: an id that is not above the last one is confirmed and not
// stored.
func TestRepeats(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	entries, _ := b.consumer(0, streams.First())
	p := b.producer(0, "p")
	p.append(1, "a", "b")
	for _, id := range []uint64{1, 2, 4, 5, 3} {
		if err := p.Send(id, fmt.Append(nil, id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []uint64{1, 2, 4, 5, 3} {
		if got := <-p.confirmed; got != id {
			t.Fatalf("confirmed %d, want %d", got, id)
		}
	}
	expect(t, entries, 0, "a", "b", "4", "5")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = b.producer(0, "p")
	if id := p.LastID(); id != 5 {
		t.Errorf("LastID = %d", id)
	}
	p.append(5, "repeat", "f")
	expect(t, entries, 4, "f")
}

// A producer's bytes are its user's again once it is closed, confirmed or not.
func TestBytesAreCopied(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	entries, _ := b.consumer(0, streams.First())
	p := b.producer(0, "p")
	data := []byte("before")
	if err := p.Send(1, data); err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	copy(data, "after!")
	expect(t, entries, 0, "before")
}

func TestCloseProducer(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	p := b.producer(0, "p")
	p.append(1, "a")
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-p.Done()
	if err := p.Send(2, []byte("b")); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestCloseDriver(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	p := b.producer(0, "p")
	_, c := b.consumer(0, streams.First())
	if err := b.d.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	<-c.Done()
	ctx := context.Background()
	if _, err := b.d.OpenProducer(ctx, 0, "p", func(uint64) {}); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("OpenProducer: %v", err)
	}
	if _, err := b.d.OpenConsumer(ctx, 0, streams.First(), func(streams.Entry) {}); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("OpenConsumer: %v", err)
	}
}

// Drivers on one file are one log; closing one leaves the other alone.
func TestTwoDrivers(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	other, err := embedded.Open(b.file, embedded.Options{Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := b.consumer(0, streams.First())
	confirmed := make(chan uint64, 1)
	foreign, err := other.OpenProducer(context.Background(), 0, "foreign", func(id uint64) { confirmed <- id })
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Send(1, []byte("a")); err != nil {
		t.Fatal(err)
	}
	<-confirmed
	p := b.producer(0, "p")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	<-foreign.Done()
	p.append(1, "b")
	expect(t, mine, 0, "a", "b")
}

// When the file goes, producers end and say so.
func TestFileIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	p := b.producer(0, "p")
	p.append(1, "a")
	if err := b.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(2, []byte("b")); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("got %v", err)
	}
	<-p.Done()
}

// A failed commit ends the producers that took part, and nothing that they
// had sent behind the failed entry is stored: it would make the log take the
// resend for a repeat.
func TestFailedAppend(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	entries, _ := b.consumer(0, streams.First())
	p := b.producer(0, "p")
	other := b.producer(1, "p")
	p.append(1, "a")
	exec := func(query string) {
		t.Helper()
		err := b.file.Write(context.Background(), func(tx *sqlitefile.Tx) error {
			_, err := tx.Exec(query)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	exec("create trigger refuse before insert on log_entry_0 begin select raise(abort, 'refused'); end")
	if err := p.Send(2, []byte("b")); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Send(3, []byte("c")); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("got %v", err)
	}
	other.append(1, "x") // another partition is not touched
	exec("drop trigger refuse")
	p = b.producer(0, "p")
	if id := p.LastID(); id != 1 {
		t.Fatalf("LastID = %d", id)
	}
	p.append(2, "b", "c")
	expect(t, entries, 0, "a", "b", "c")
}

// More than a batch, more bytes than are read at once or kept in memory.
func TestLongLog(t *testing.T) {
	t.Parallel()
	b := setup(t, embedded.Options{})
	p := b.producer(0, "p")
	const n = 700
	send := func(from, to int) {
		for i := from; i < to; i++ {
			data := make([]byte, i*1000%40_000)
			if i%100 == 0 {
				data = make([]byte, 1<<20) // larger than a read
			}
			data = strconv.AppendInt(data, int64(i), 10)
			if err := p.Send(uint64(i+1), data); err != nil {
				t.Error(err)
			}
		}
	}
	check := func(entries <-chan streams.Entry, from int) {
		for i := from; i < n; i++ {
			e := <-entries
			if e.Offset != uint64(i) || !bytes.HasSuffix(e.Data, strconv.AppendInt(nil, int64(i), 10)) {
				t.Fatalf("entry %d is not %d", e.Offset, i)
			}
		}
	}
	early, _ := b.consumer(0, streams.First())
	send(0, n/2)
	mid, _ := b.consumer(0, streams.First())
	send(n/2, n)
	check(early, 0)
	check(mid, 0)
	late, _ := b.consumer(0, streams.From(123))
	check(late, 123)
	for range n {
		<-p.confirmed
	}
	b.reopen(embedded.Options{})
	again, _ := b.consumer(0, streams.First())
	check(again, 0)
}

// A process that is killed while it appends has stored all that it confirmed,
// byte for byte, once, in order; its name and offsets go on from there.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/gateway.db"
	last := uint64(0)
	for round := range 3 {
		confirmed := runUntilKilled(t, path, 100+50*round)
		b := &bench{t: t, path: path}
		b.open(embedded.Options{})
		p := b.producer(1, "child")
		if p.LastID() < confirmed || p.LastID() > confirmed+8 {
			t.Errorf("%d confirmed, LastID = %d", confirmed, p.LastID())
		}
		entries, _ := b.consumer(1, streams.First())
		for id := uint64(1); id <= p.LastID(); id++ {
			e := <-entries
			if e.Offset != id-1 || !bytes.Equal(e.Data, payload(id)) {
				t.Fatalf("entry %d is not that of id %d", e.Offset, id)
			}
		}
		p.append(p.LastID()+1, string(payload(p.LastID()+1)))
		expect(t, entries, p.LastID(), string(payload(p.LastID()+1)))
		if confirmed <= last {
			t.Errorf("confirmed %d after %d", confirmed, last)
		}
		last = confirmed
		b.close()
	}
}

// runUntilKilled returns the last id that a child confirmed before it was
// killed, after n confirms or some more.
func runUntilKilled(t *testing.T, path string, n int) (last uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	count := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		id, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Errorf("child: %s", lines.Text())
			break
		}
		last = id
		if count++; count == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if count < n {
		t.Fatalf("the child confirmed %d entries", count)
	}
	return last
}
