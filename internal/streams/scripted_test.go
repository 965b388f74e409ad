package streams_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// scripted is a driver whose producers do what a test says.
type scripted struct {
	nullDriver
	mu   sync.Mutex
	open []*scriptedProducer
}

type scriptedProducer struct {
	confirmed func(uint64)
	mu        sync.Mutex
	sent      []uint64
	once      sync.Once
	done      chan struct{}
}

func (d *scripted) OpenProducer(_ context.Context, _ int, _ string, confirmed func(uint64)) (streams.Producer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &scriptedProducer{confirmed: confirmed, done: make(chan struct{})}
	d.open = append(d.open, p)
	return p, nil
}

func (p *scriptedProducer) LastID() uint64        { return 0 }
func (p *scriptedProducer) Done() <-chan struct{} { return p.done }

func (p *scriptedProducer) Send(id uint64, _ []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, id)
	return nil
}

func (p *scriptedProducer) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// producer waits until the n-th producer has sent so many entries.
func (d *scripted) producer(t *testing.T, n, sends int) *scriptedProducer {
	t.Helper()
	var p *scriptedProducer
	eventually(t, "the producer to send", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.open) < n {
			return false
		}
		p = d.open[n-1]
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.sent) >= sends
	})
	return p
}

func setupScripted(t *testing.T) (*fixture, *scripted) {
	t.Helper()
	d := new(scripted)
	f := setup(t, func(o *streams.WriterOptions[send]) { o.Driver = d })
	return f.connected(), d
}

// TestWriterTakesConfirmsOneByOne: a confirm speaks for its own entry only,
// and outcomes keep the order of the entries.
func TestWriterTakesConfirmsOneByOne(t *testing.T) {
	t.Parallel()
	f, d := setupScripted(t)
	f.append("a1")
	p := d.producer(t, 1, 1)
	f.clock.Advance(timeout / 100)
	f.append("a2")
	d.producer(t, 1, 2)
	p.confirmed(7)
	p.confirmed(2)
	p.confirmed(2)
	if got := f.tellings(); len(got) > 0 {
		t.Errorf("told %q by the confirm of another entry", got)
	}
	p.confirmed(1)
	f.checkTold("a1 a2 stored")
}

// TestWriterIgnoresConfirmsOfOldProducers: their entries are being sent again,
// and the bytes must stay until that is confirmed.
func TestWriterIgnoresConfirmsOfOldProducers(t *testing.T) {
	t.Parallel()
	f, d := setupScripted(t)
	f.append("a1")
	first := d.producer(t, 1, 1)
	f.Reset()
	f.comeBack()
	second := d.producer(t, 2, 1)
	first.confirmed(1)
	if got := f.tellings(); len(got) > 0 {
		t.Errorf("told %q by an old producer", got)
	}
	second.confirmed(1)
	f.checkTold("a1 stored")
}

// TestWriterFlushWaitsForTelling: not only for the confirm.
func TestWriterFlushWaitsForTelling(t *testing.T) {
	t.Parallel()
	telling, release := make(chan struct{}), make(chan struct{})
	d := new(scripted)
	f := setup(t, func(o *streams.WriterOptions[send]) {
		o.Driver = d
		o.Settled = func([]send, streams.Outcome) {
			close(telling)
			<-release
		}
	}).connected()
	f.append("a1")
	p := d.producer(t, 1, 1)
	go p.confirmed(1)
	<-telling
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Flush(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a flush while the outcome is being told: %v", err)
	}
	close(release)
	f.flush()
}

// TestWriterSendsFullEntriesAtOnce: they have nothing to gain from the pace.
func TestWriterSendsFullEntriesAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.entry(1, "x")
	large := strings.Repeat("x", streams.MaxEntryBytes)
	f.append("a"+large, "b"+large, "c"+large, "d")
	f.clock.AwaitTimer(t, 2*time.Millisecond)
	f.clock.Advance(2 * time.Millisecond)
	sends := f.awaitSends(4)
	if took := sends[3].at.Sub(sends[0].at); took > 2*time.Millisecond {
		t.Errorf("three full entries went within %v", took)
	}
	f.flush()
}

// TestWriterReportsALogThatForgets: confirmed entries are gone, or the
// producer's name is. It goes on, and says so.
func TestWriterReportsALogThatForgets(t *testing.T) {
	t.Parallel()
	d := new(scripted) // whose last id is always 0
	var mu sync.Mutex
	var logged strings.Builder
	f := setup(t, func(o *streams.WriterOptions[send]) {
		o.Driver = d
		o.Logger = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return logged.Write(p)
		}), nil))
	}).connected()
	f.append("a1")
	d.producer(t, 1, 1).confirmed(1)
	f.checkTold("a1 stored")
	f.Reset()
	f.comeBack()
	f.append("a2")
	d.producer(t, 2, 1).confirmed(2)
	f.checkTold("a2 stored")
	mu.Lock()
	defer mu.Unlock()
	if got := logged.String(); strings.Count(got, "has lost entries") != 1 || !strings.Contains(got, "confirmed=1") {
		t.Errorf("logged %s", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
