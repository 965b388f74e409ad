package router

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// logged collects what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// strange starts a gateway with another placement on the same log.
func (w *world) strange() *Router {
	driver := w.log.Driver()
	r := New(Options{
		Driver: driver, Positions: newMemoryStore(),
		Placement: streams.Placement{Partitions: 1, Rules: []streams.Rule{{Equals: "ag::w::i::own"}}},
	})
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = r.Close(ctx)
		_ = driver.Close()
	})
	return r
}

// Delivery rules M1 and C9: whose placement differs from that of the log does
// not serve; those that do, go on and say so; and what it has written does not
// keep others from starting.
func TestM1AnotherPlacement(t *testing.T) {
	t.Parallel()
	var log logged
	w := setup(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	r := w.strange()
	select {
	case <-r.Misplaced():
	case <-r.Ready():
		t.Fatal("it serves")
	case <-time.After(patience):
		t.Fatal("it does not notice")
	}
	if e := r.PlacementError(); e.Log != w.r.fingerprint || e.Own == e.Log || e.Error() == "" {
		t.Fatalf("got %v", e)
	}
	w.eventually(func() bool { return log.has("another placement has written") })
	a := w.agent("a", client(0))
	a.sendAs("ag::w::i::b", "x", "id")
	a.receipts(1)
	w.second().agent("b", client(0)).wants("x")
}

// After a time without gateways the first marker of the log is what there is.
func TestM1FirstMarker(t *testing.T) {
	t.Parallel()
	w := setup(t)
	driver := w.log.Driver()
	defer func() { _ = driver.Close() }()
	r := &Router{driver: driver}
	got, err := r.firstMarker(t.Context())
	if err != nil || got != w.r.fingerprint {
		t.Fatalf("got %q, %v", got, err)
	}
	w.log.Refuse(true)
	defer w.log.Refuse(false)
	if _, err := r.firstMarker(t.Context()); !errors.Is(err, streamstest.ErrRefused) {
		t.Fatalf("got %v", err)
	}
}

// A marker says how its gateway places addresses; without an answer it is of a
// gateway that did not say.
func TestMarkerCarriesPlacement(t *testing.T) {
	t.Parallel()
	e := envelope.Envelope{Kind: envelope.Marker, Metadata: map[string]string{"other": "x", placementKey: "p"}}
	var v envelope.View
	if err := v.Parse(e.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if got, ok := v.Meta(placementKey); !ok || string(got) != "p" {
		t.Fatalf("got %q", got)
	}
	if _, ok := v.Meta("none"); ok {
		t.Fatal("something is found")
	}
}
