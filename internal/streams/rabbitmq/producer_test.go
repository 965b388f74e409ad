package rabbitmq

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/streams"
)

func TestConfirmsRise(t *testing.T) {
	t.Parallel()
	d := shared(t)
	p, confirms := openProducer(t, d, "a")
	if p.LastID() != 0 {
		t.Errorf("last id of a new name: %d", p.LastID())
	}
	const n = 5000 // more than may be in flight, so that Send waits too
	for i := uint64(1); i <= n; i++ {
		send(t, p, 2*i, fmt.Sprint(i)) // ids need not be dense
	}
	for i, id := range confirms.wait(t, n) {
		if id != uint64(2*(i+1)) {
			t.Fatalf("confirm %d has id %d", i, id)
		}
	}
	_, entries := openConsumer(t, d, streams.First())
	for i, e := range entries.wait(t, n) {
		if string(e.Data) != fmt.Sprint(i+1) {
			t.Fatalf("entry %d holds %q", i, e.Data)
		}
	}
}

// The story of delivery rule P2: entries 1, 2, 4, 5 were sent and then 3. All
// five are confirmed, four are stored.
func TestLowerIDIsConfirmedNotStored(t *testing.T) {
	t.Parallel()
	d := shared(t)
	for _, ids := range [][]uint64{{1, 2, 4, 5}, {3}} {
		p, confirms := openProducer(t, d, "a")
		for _, id := range ids {
			send(t, p, id, fmt.Sprint(id))
		}
		if got := confirms.wait(t, len(ids)); !slices.Equal(got, ids) {
			t.Fatalf("confirmed %v, want %v", got, ids)
		}
		p.Close()
	}
	p, confirms := openProducer(t, d, "a")
	if p.LastID() != 5 {
		t.Errorf("last id %d, want 5", p.LastID())
	}
	// A resend of a suffix: what is stored already and what is not.
	for _, id := range []uint64{4, 5, 6} {
		send(t, p, id, fmt.Sprint(id))
	}
	if got := confirms.wait(t, 3); !slices.Equal(got, []uint64{4, 5, 6}) {
		t.Fatalf("confirmed %v", got)
	}
	_, entries := openConsumer(t, d, streams.First())
	if got := data(entries.wait(t, 5)); !slices.Equal(got, []string{"1", "2", "4", "5", "6"}) {
		t.Errorf("stored %v", got)
	}
}

func TestIDsMustRise(t *testing.T) {
	t.Parallel()
	d := shared(t)
	p, confirms := openProducer(t, d, "a")
	send(t, p, 7, "x")
	for _, id := range []uint64{7, 6, 0, 1 << 63} {
		if err := p.Send(id, []byte("y")); err == nil || errors.Is(err, streams.ErrClosed) {
			t.Errorf("send %d: %v", id, err)
		}
	}
	send(t, p, 8, "z")
	confirms.wait(t, 2)
}

func TestEntrySizes(t *testing.T) {
	t.Parallel()
	d := shared(t)
	p, confirms := openProducer(t, d, "a")
	if err := p.Send(1, make([]byte, MaxEntry+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("one byte too many: %v", err)
	}
	sizes := []int{0, 1, 255, 256, 65_535, 65_536, MaxEntry}
	for i, n := range sizes {
		if err := p.Send(uint64(i+1), bytes.Repeat([]byte{byte(i)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	confirms.wait(t, len(sizes))
	_, entries := openConsumer(t, d, streams.First())
	for i, e := range entries.wait(t, len(sizes)) {
		if !bytes.Equal(e.Data, bytes.Repeat([]byte{byte(i)}, sizes[i])) {
			t.Errorf("entry of %d bytes came back with %d", sizes[i], len(e.Data))
		}
	}
}

func TestProducerAfterClose(t *testing.T) {
	t.Parallel()
	d := shared(t)
	p, _ := openProducer(t, d, "a")
	p.Close()
	waitClosed(t, p.Done(), limit, "done")
	if err := p.Send(1, []byte("x")); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("send: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestProducerArguments(t *testing.T) {
	t.Parallel()
	d := shared(t)
	for _, n := range []int{-1, 1} {
		if _, err := d.OpenProducer(testContext(t), n, "a", func(uint64) {}); err == nil {
			t.Errorf("partition %d: no error", n)
		}
	}
	for _, name := range []string{"", string(make([]byte, 256))} {
		if _, err := d.OpenProducer(testContext(t), 0, name, func(uint64) {}); err == nil {
			t.Errorf("name of %d bytes: no error", len(name))
		}
	}
}
