package streams_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/streams"
)

// nullDriver confirms everything and stores nothing.
type nullDriver struct{}

func (nullDriver) Partitions() int { return 1 }

func (nullDriver) First(context.Context, int) (streams.Entry, error) { return streams.Entry{}, nil }
func (nullDriver) Close() error                                      { return nil }

func (nullDriver) OpenProducer(_ context.Context, _ int, _ string, confirmed func(uint64)) (streams.Producer, error) {
	p := &nullProducer{ids: make(chan uint64, 16), done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for {
			select {
			case id := <-p.ids:
				confirmed(id)
			case <-p.done:
				return
			}
		}
	}()
	return p, nil
}

func (nullDriver) OpenConsumer(context.Context, int, streams.Start, func(streams.Entry)) (streams.Consumer, error) {
	return nil, errors.ErrUnsupported
}

type nullProducer struct {
	ids   chan uint64
	once  sync.Once
	done  chan struct{}
	ended chan struct{}
}

func (p *nullProducer) LastID() uint64        { return 0 }
func (p *nullProducer) Done() <-chan struct{} { return p.done }

func (p *nullProducer) Send(id uint64, _ []byte) error {
	p.ids <- id
	return nil
}

func (p *nullProducer) Close() error {
	p.once.Do(func() { close(p.done) })
	<-p.ended
	return nil
}

type benchItem struct {
	session *int
	seq     uint64
}

// appendAll appends, and waits where a sender would be told to wait.
func appendAll(tb testing.TB, w *streams.Writer[benchItem], envelope []byte, item benchItem) {
	for {
		err := w.Append(envelope, item)
		if err == nil {
			return
		}
		if !errors.Is(err, streams.ErrFull) {
			tb.Error(err)
			return
		}
		runtime.Gosched()
	}
}

func benchWriter(b *testing.B, d streams.Driver, parallel bool) {
	stored := 0
	w := streams.NewWriter(streams.WriterOptions[benchItem]{
		Driver: d, Name: "bench", MaxPendingBytes: 4 << 20,
		Settled: func(items []benchItem, _ streams.Outcome) { stored += len(items) },
	})
	envelope := make([]byte, 256)
	session := new(int)
	for range 50_000 { // to the steady state
		appendAll(b, w, envelope, benchItem{session, 0})
	}
	if err := w.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(envelope)))
	b.ReportAllocs()
	b.ResetTimer()
	if parallel {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				appendAll(b, w, envelope, benchItem{session, 1})
			}
		})
	} else {
		for range b.N {
			appendAll(b, w, envelope, benchItem{session, 1})
		}
	}
	if err := w.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if stored != b.N+50_000 {
		b.Fatalf("%d stored, want %d", stored, b.N+50_000)
	}
}

func BenchmarkWriter(b *testing.B) { benchWriter(b, nullDriver{}, false) }

func BenchmarkWriterParallel(b *testing.B) { benchWriter(b, nullDriver{}, true) }

// TestWriterAllocatesNothing holds what the benchmark shows.
func TestWriterAllocatesNothing(t *testing.T) {
	w := streams.NewWriter(streams.WriterOptions[benchItem]{Driver: nullDriver{}, Name: "bench"})
	envelope := make([]byte, 256)
	const batch = 5000
	round := func() {
		for i := range batch {
			appendAll(t, w, envelope, benchItem{nil, uint64(i)})
		}
		if err := w.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(20, round) / batch; n > 0.02 {
		t.Errorf("%v allocations for each envelope", n)
	}
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}
