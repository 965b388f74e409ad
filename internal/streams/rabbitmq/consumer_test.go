package rabbitmq

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// The entries are stored in a burst, so that the offset lies inside a chunk:
// First and Next begin at chunks, From must not.
func TestFromInsideAChunk(t *testing.T) {
	t.Parallel()
	d := shared(t)
	const n = 500
	store(t, d, n)
	for _, from := range []uint64{0, 1, 250, 333, n - 1} {
		_, entries := openConsumer(t, d, streams.From(from))
		got := offsets(entries.wait(t, n-int(from)))
		for i, offset := range got {
			if offset != from+uint64(i) {
				t.Fatalf("from %d: item %d has offset %d", from, i, offset)
			}
		}
	}
}

func TestNextBeginsBehindTheEnd(t *testing.T) {
	t.Parallel()
	d := shared(t)
	store(t, d, 3)
	_, entries := openConsumer(t, d, streams.Next())
	store(t, d, 2)
	if got := offsets(entries.wait(t, 2)); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("offsets %v, want 3, 4", got)
	}
}

// With an offset past the end the client library lost a credit for each chunk
// that it dropped: after ten single-entry chunks the consumer stood still.
func TestFromPastTheEnd(t *testing.T) {
	t.Parallel()
	for _, stored := range []int{0, 5} {
		t.Run(fmt.Sprintf("stored %d", stored), func(t *testing.T) {
			t.Parallel()
			d := shared(t)
			if stored > 0 {
				store(t, d, stored)
			}
			const ahead = 30
			from := uint64(stored + ahead)
			_, entries := openConsumer(t, d, streams.From(from))
			p, confirms := openProducer(t, d, "a")
			for i := range uint64(2 * ahead) { // each in a chunk of its own
				send(t, p, i+1, "x")
				confirms.wait(t, int(i+1))
			}
			for i, offset := range offsets(entries.wait(t, ahead)) {
				if offset != from+uint64(i) {
					t.Fatalf("item %d has offset %d, want %d", i, offset, from+uint64(i))
				}
			}
		})
	}
}

// A consumer got an offset that another replica had, and its own did not yet: it
// stood still for ever.
func TestBehindWhatIsKnown(t *testing.T) {
	t.Parallel()
	d := shared(t)
	store(t, d, 3)
	_, others := openConsumer(t, d, streams.First()) // keeps the era
	others.wait(t, 3)
	part, err := d.partition(0)
	if err != nil {
		t.Fatal(err)
	}
	part.mu.Lock()
	era := part.era
	part.mu.Unlock()
	part.saw(era, 200)
	c, _ := openConsumer(t, d, streams.From(100))
	store(t, d, 30)
	waitClosed(t, c.Done(), limit, "the end of a consumer that stands still")
}

// A tail that reads on where another one stopped opens at the end exactly.
func TestFromTheEnd(t *testing.T) {
	t.Parallel()
	d := shared(t)
	store(t, d, 5)
	for _, know := range []bool{false, true} {
		if know { // the driver has then seen the end
			_, seen := openConsumer(t, d, streams.First())
			seen.wait(t, 5)
		}
		_, entries := openConsumer(t, d, streams.From(5))
		if know {
			if got := offsets(entries.wait(t, 1)); got[0] != 5 {
				t.Errorf("offset %d, want 5", got[0])
			}
			continue
		}
		store(t, d, 1)
		if got := offsets(entries.wait(t, 1)); got[0] != 5 {
			t.Errorf("offset %d, want 5", got[0])
		}
	}
}

func TestCloseWaitsForTheHandler(t *testing.T) {
	t.Parallel()
	d := shared(t)
	store(t, d, 100)
	entered, leave := make(chan struct{}), make(chan struct{})
	calls := 0 // guarded by the contract: one goroutine, and none after Close
	c, err := d.OpenConsumer(testContext(t), 0, streams.First(), func(streams.Entry) {
		calls++
		if calls == 1 {
			close(entered)
			<-leave
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	waitClosed(t, entered, limit, "handler")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	select {
	case <-closed:
		t.Error("Close has returned while the handler runs")
	case <-time.After(100 * time.Millisecond):
	}
	close(leave)
	waitClosed(t, closed, limit, "close")
	if calls != 1 {
		t.Errorf("%d calls after Close had begun", calls)
	}
	waitClosed(t, c.Done(), limit, "done")
}

// A slow handler must not end its connection, nor hold up others.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	d := shared(t)
	store(t, d, 50)
	leave := make(chan struct{})
	slow := newRecord[streams.Entry]()
	c, err := d.OpenConsumer(testContext(t), 0, streams.First(), func(e streams.Entry) {
		<-leave
		slow.add(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_, entries := openConsumer(t, d, streams.First())
	entries.wait(t, 50)
	select {
	case <-c.Done():
		t.Fatal("the slow consumer has ended")
	case <-time.After(3 * heartbeat):
	}
	close(leave)
	slow.wait(t, 50)
}

// An entry's bytes may be kept: they are not overwritten by later ones.
func TestDataMayBeKept(t *testing.T) {
	t.Parallel()
	d := shared(t)
	store(t, d, 1000)
	_, entries := openConsumer(t, d, streams.First())
	for i, s := range data(entries.wait(t, 1000)) {
		if s != fmt.Sprint(i+1) {
			t.Fatalf("entry %d holds %q", i, s)
		}
	}
}
