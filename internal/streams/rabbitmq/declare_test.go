package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// declaredAs tells whether the broker holds the stream with these arguments:
// it refuses to declare one again with others.
func declaredAs(t *testing.T, d *Driver, o *stream.StreamOptions) bool {
	t.Helper()
	env, err := d.connect(d.endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	defer env.release()
	err = env.DeclareStream(d.parts[0].name, o)
	if err != nil && !errors.Is(err, stream.PreconditionFailed) {
		t.Fatal(err)
	}
	return err == nil
}

func arguments(age time.Duration, total, segment int64) *stream.StreamOptions {
	return stream.NewStreamOptions().SetMaxAge(age).
		SetMaxLengthBytes(stream.ByteCapacity{}.B(total)).
		SetMaxSegmentSizeBytes(stream.ByteCapacity{}.B(segment))
}

func TestRetentionIsDeclared(t *testing.T) {
	t.Parallel()
	d := shared(t)
	if !declaredAs(t, d, arguments(7*24*time.Hour, 20_000_000_000, 500_000_000)) {
		t.Error("the defaults are not what is documented")
	}
	if declaredAs(t, d, arguments(time.Hour, 20_000_000_000, 500_000_000)) {
		t.Error("this does not show anything: another retention is accepted too")
	}
	o := Options{
		URLs: []string{testservices.RabbitMQ(t).URL()}, Streams: newStreams(1),
		MaxAge: time.Hour, MaxBytes: 5_000_000, SegmentBytes: 1_000_000,
	}
	d = openDriver(t, o)
	if !declaredAs(t, d, arguments(time.Hour, 5_000_000, 1_000_000)) {
		t.Error("the options are not applied")
	}
}

// lockedBuffer is a log that many goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestExistingStreamIsKept(t *testing.T) {
	t.Parallel()
	o := Options{URLs: []string{testservices.RabbitMQ(t).URL()}, Streams: newStreams(1), MaxAge: time.Hour}
	store(t, openDriver(t, o), 3)

	same := new(lockedBuffer)
	o.Logger = slog.New(slog.NewTextHandler(same, nil))
	openDriver(t, o)
	if strings.Contains(same.String(), "WARN") {
		t.Errorf("opened with the same options: %s", same)
	}

	other := new(lockedBuffer)
	o.Logger = slog.New(slog.NewTextHandler(other, nil))
	o.MaxAge = 2 * time.Hour
	d := openDriver(t, o)
	if !strings.Contains(other.String(), "another retention") || !strings.Contains(other.String(), o.Streams[0]) {
		t.Errorf("opened with other options: %s", other)
	}
	_, entries := openConsumer(t, d, streams.First())
	entries.wait(t, 3)
}

// Retention removes whole segments from the front: reading from what is gone
// begins at what is left.
func TestFromBelowTheFirst(t *testing.T) {
	t.Parallel()
	d := openDriver(t, Options{
		URLs: []string{testservices.RabbitMQ(t).URL()}, Streams: newStreams(1),
		MaxBytes: 1_000_000, SegmentBytes: 200_000,
	})
	p, confirms := openProducer(t, d, "a")
	large := make([]byte, 20_000)
	sent := 0
	for deadline := time.Now().Add(limit); ; {
		for range 50 {
			sent++
			if err := p.Send(uint64(sent), large); err != nil {
				t.Fatal(err)
			}
		}
		confirms.wait(t, sent)
		c, entries := openConsumer(t, d, streams.First())
		first := entries.wait(t, 1)[0].Offset
		c.Close()
		if first > 10 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing has been removed of %d entries", sent)
		}
	}
	c, entries := openConsumer(t, d, streams.From(1))
	got := offsets(entries.wait(t, 1))
	c.Close()
	if got[0] <= 10 {
		t.Errorf("began at %d", got[0])
	}
}

// Open waits for a broker that is not there yet.
func TestOpenRetries(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	o := d.opts
	proxy.Refuse(true)
	opened := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		d, err := Open(ctx, o)
		if err == nil {
			d.Close()
		}
		opened <- err
	}()
	for accepted := proxy.Accepted(); proxy.Accepted() < accepted+2; {
		select {
		case err := <-opened:
			t.Fatalf("open: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	proxy.Refuse(false)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}
