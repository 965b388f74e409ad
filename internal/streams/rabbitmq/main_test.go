package rabbitmq

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// The library's login waits for ever, without a connection, when that ends
// between two of its messages (see doc.go).
const library = "github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream."

func TestMain(m *testing.M) {
	// Most tests wait for what a broker does not do: that costs nothing, and
	// more of them at a time than there are cores take half as long.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(testservices.Main(m,
		goleak.IgnoreAnyFunction(library+"(*Client).getSaslMechanisms"),
		goleak.IgnoreAnyFunction(library+"(*Client).sendSaslAuthenticate"),
	))
}

// limit is how long a test waits for something that must come.
const limit = 30 * time.Second

var streamNames atomic.Int64

// newStreams returns names that no other test uses.
func newStreams(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("t%d.%d", os.Getpid(), streamNames.Add(1))
	}
	return names
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// settle waits for the calls into the library that are underway, but for those
// that wait for ever: some end only when the library stops waiting for an answer
// or has connected again.
func settle(t testing.TB) {
	t.Helper()
	calls := make(map[any]any)
	underway.Range(func(number, v any) bool {
		calls[number] = v
		return true
	})
	timeout := time.After(limit)
	for {
		for number, v := range calls {
			if now, ok := underway.Load(number); !ok || now != v || waitsForEver(number) {
				delete(calls, number)
			}
		}
		if len(calls) == 0 {
			return
		}
		select {
		case <-timeout:
			t.Errorf("%d calls into the library do not end", len(calls))
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// waitsForEver tells whether a call hangs in the library's login.
func waitsForEver(number any) bool {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	_, stack, found := bytes.Cut(stacks, fmt.Appendf(nil, "goroutine %s [chan receive", number))
	stack, _, _ = bytes.Cut(stack, []byte("\n\n"))
	return found && (bytes.Contains(stack, []byte(library+"(*Client).getSaslMechanisms")) ||
		bytes.Contains(stack, []byte(library+"(*Client).sendSaslAuthenticate")))
}

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func openDriver(t testing.TB, o Options) *Driver {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quietLog()
	}
	d, err := Open(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// shared opens a driver with one stream of its own on the broker of all tests.
func shared(t testing.TB) *Driver {
	t.Helper()
	return openDriver(t, Options{URLs: []string{testservices.RabbitMQ(t).URL()}, Streams: newStreams(1)})
}

// record collects what callbacks hand on, and lets a test wait for it.
type record[T any] struct {
	mu      sync.Mutex
	list    []T
	changed chan struct{}
}

func newRecord[T any]() *record[T] { return &record[T]{changed: make(chan struct{})} }

func (r *record[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *record[T]) get() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.list...)
}

// wait returns the list as soon as it has n items.
func (r *record[T]) wait(t testing.TB, n int) []T {
	t.Helper()
	timeout := time.After(limit)
	for {
		r.mu.Lock()
		list, changed := append([]T(nil), r.list...), r.changed
		r.mu.Unlock()
		if len(list) >= n {
			return list
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("waited for %d, got %d: %v", n, len(list), list)
		}
	}
}

func waitClosed(t testing.TB, c <-chan struct{}, within time.Duration, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(within):
		t.Fatalf("%s: not within %v", what, within)
	}
}

func openProducer(t testing.TB, d *Driver, name string) (streams.Producer, *record[uint64]) {
	t.Helper()
	confirms := newRecord[uint64]()
	p, err := d.OpenProducer(testContext(t), 0, name, confirms.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, confirms
}

func openConsumer(t testing.TB, d *Driver, from streams.Start) (streams.Consumer, *record[streams.Entry]) {
	t.Helper()
	entries := newRecord[streams.Entry]()
	c, err := d.OpenConsumer(testContext(t), 0, from, entries.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, entries
}

func send(t testing.TB, p streams.Producer, id uint64, data string) {
	t.Helper()
	if err := p.Send(id, []byte(data)); err != nil {
		t.Fatalf("send %d: %v", id, err)
	}
}

// store stores n entries named by their ids, beginning with 1.
func store(t testing.TB, d *Driver, n int) {
	t.Helper()
	p, confirms := openProducer(t, d, fmt.Sprintf("store%d", streamNames.Add(1)))
	for i := 1; i <= n; i++ {
		send(t, p, uint64(i), fmt.Sprint(i))
	}
	confirms.wait(t, n)
	p.Close()
}

func data(entries []streams.Entry) []string {
	s := make([]string, len(entries))
	for i, e := range entries {
		s[i] = string(e.Data)
	}
	return s
}

func offsets(entries []streams.Entry) []uint64 {
	s := make([]uint64, len(entries))
	for i, e := range entries {
		s[i] = e.Offset
	}
	return s
}
