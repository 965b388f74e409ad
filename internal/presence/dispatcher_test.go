package presence

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDispatcher(t *testing.T) {
	t.Parallel()
	var d Dispatcher
	d.Put(Notice{Kind: "nobody"})
	got := make(chan string, 10)
	stop := d.Listen("k", func(n Notice) { got <- "old " + string(n.Payload) })
	d.Listen("k", func(n Notice) { got <- string(n.Payload) })
	stop() // of the one that was replaced
	for i := range 5 {
		d.Put(Notice{Kind: "k", Payload: fmt.Append(nil, i)})
	}
	for i := range 5 {
		if text := <-got; text != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", text, i)
		}
	}
	d.Close()
	d.Put(Notice{Kind: "k"})
	if len(got) > 0 {
		t.Fatal("called after Close")
	}
}

// TestDispatcherIsBounded: a listener that does not return costs later notices,
// not memory.
func TestDispatcherIsBounded(t *testing.T) {
	t.Parallel()
	var d Dispatcher
	called, free := make(chan struct{}), make(chan struct{})
	first := true
	d.Listen("k", func(Notice) {
		if first {
			first = false
			close(called)
			<-free
		}
	})
	d.Put(Notice{Kind: "k"})
	<-called
	for range maxQueued + 10 {
		d.Put(Notice{Kind: "k"})
	}
	if n := d.Dropped(); n != 10 {
		t.Errorf("%d dropped, want 10", n)
	}
	close(free)
	d.Close()
}
