package router

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// A gateway that starts knows what was stored before: a repeat is answered, not
// stored.
func TestP6RestartRemembers(t *testing.T) {
	t.Parallel()
	w1 := setup(t)
	a := w1.agent("a", client(0))
	for i := range 20 {
		a.sendAs("ag::w::i::b", fmt.Sprint(i), fmt.Sprint("id", i))
	}
	a.receipts(20)
	a.leave()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w1.r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	w2 := w1.second()
	a = w2.agent("a", client(0))
	for i := range 20 {
		a.sendAs("ag::w::i::b", fmt.Sprint(i), fmt.Sprint("id", i))
	}
	for i := range 20 {
		if r := a.answer().GetReceipt(); !r.GetDuplicate() || r.GetRequestId() != fmt.Sprint(i) {
			t.Fatalf("repeat %d: got %v", i, r)
		}
	}
	a.sendAs("ag::w::i::b", "new", "new")
	a.receipts(1)
	b := w2.agent("b", client(0))
	for i := range 20 {
		b.wants(fmt.Sprint(i))
	}
	b.wants("new")
}

// slowPast is a log whose past is read very slowly.
type slowPast struct {
	streams.Driver
	mu     sync.Mutex
	starts []streams.Start
}

type closing struct {
	streams.Consumer
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Consumer.Close()
}

func (d *slowPast) OpenConsumer(ctx context.Context, n int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	d.mu.Lock()
	d.starts = append(d.starts, from)
	d.mu.Unlock()
	closed := make(chan struct{})
	slow := func(e streams.Entry) {
		if _, past := from.Time(); past {
			<-closed
			return
		}
		handle(e)
	}
	c, err := d.Driver.OpenConsumer(ctx, n, from, slow)
	if err != nil {
		return nil, err
	}
	return &closing{Consumer: c, closed: closed}, nil
}

// Where the past is too much to read, the gateway starts all the same.
func TestP6LookbackIsBounded(t *testing.T) {
	t.Parallel()
	w1 := setup(t)
	a := w1.agent("a", client(0))
	a.sendAs("ag::w::i::b", "x", "id")
	a.receipts(1)
	var past *slowPast
	w2 := w1.second(func(o *Options) {
		past = &slowPast{Driver: o.Driver}
		o.Driver, o.lookbackTime = past, time.Millisecond
	})
	past.mu.Lock()
	var since []time.Duration
	for _, s := range past.starts {
		if at, ok := s.Time(); ok {
			since = append(since, time.Since(at).Round(time.Minute/2))
		}
	}
	last := past.starts[len(past.starts)-1]
	past.mu.Unlock()
	if len(since) != 2 || since[0] < idsFor || since[1] != time.Minute || !last.IsNext() {
		t.Fatalf("the tail began %v ago, and at last: at the end %v", since, last.IsNext())
	}
	// What it does not know it takes for new.
	a.leave()
	a = w2.agent("a", client(0))
	a.sendAs("ag::w::i::b", "x", "id")
	if r := a.answer().GetReceipt(); r == nil || r.GetDuplicate() {
		t.Fatalf("got %v", r)
	}
}
