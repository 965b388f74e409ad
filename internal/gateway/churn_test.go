package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/metrics"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// forgetful is a store that keeps nothing: what is durable is not what the test
// is about.
type forgetful struct{ router.Store }

func (forgetful) Position(context.Context, string, string) (uint64, bool, error) {
	return 0, false, nil
}

func (forgetful) PositionsUnder(context.Context, string) ([]store.Position, error) { return nil, nil }
func (forgetful) Commit(context.Context, []store.Commit) error                     { return nil }
func (forgetful) CommitClean(context.Context, []store.Commit) error                { return nil }
func (forgetful) TouchSessions(context.Context, []store.Session) error             { return nil }
func (forgetful) RaiseNotes(context.Context, []store.Raise) (int64, error)         { return 0, nil }
func (forgetful) DeleteNotes(context.Context, []store.Note) (int64, error)         { return 0, nil }
func (forgetful) Note(context.Context, string) (uint64, bool, error)               { return 0, false, nil }

func (forgetful) BeginSession(context.Context, store.Session) (store.Mark, error) {
	return store.Mark{}, nil
}

func (forgetful) NoteAbsence(_ context.Context, notes []store.Note) ([]uint64, error) {
	at := make([]uint64, len(notes))
	for i, n := range notes {
		at[i] = n.Position
	}
	return at, nil
}

// visitor is the stream of a client that connects, sends one message to all
// agents, reads its receipt and leaves.
type visitor struct {
	ctx   context.Context
	init  *aetherv1.InitConnection
	step  int
	done  chan struct{} // the receipt has come
	once  sync.Once
	wrong atomic.Pointer[string]
}

func (v *visitor) Context() context.Context  { return v.ctx }
func (v *visitor) Lost() bool                { return false }
func (v *visitor) Authorization() []string   { return nil }
func (v *visitor) Peer() string              { return "visitor" }
func (v *visitor) Transport() auth.Transport { return auth.Transport{} }

func (v *visitor) Recv() (*aetherv1.UpstreamMessage, error) {
	v.step++
	switch v.step {
	case 1:
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: v.init}}, nil
	case 2:
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: send("ga::w", "here", "r")}}, nil
	}
	select {
	case <-v.done:
		return nil, io.EOF
	case <-v.ctx.Done():
		return nil, v.ctx.Err()
	}
}

func (v *visitor) Send(frame []byte) error {
	var m aetherv1.DownstreamMessage
	if err := proto.Unmarshal(frame, &m); err != nil {
		return err
	}
	if e := m.GetError(); e != nil {
		text := e.String()
		v.wrong.Store(&text)
	}
	if m.GetReceipt() != nil || m.GetError() != nil {
		v.once.Do(func() { close(v.done) })
	}
	return nil
}

// A hundred thousand identities that connect, send and leave leave nothing:
// neither memory nor goroutines nor series of metrics. Unless AETHER_TEST_LONG=1
// they are 6,000, as the race detector makes them slow.
func TestChurnLeavesNothing(t *testing.T) {
	const crowd = 64
	warm, visitors, pause := 1500, 6000, 400*time.Millisecond
	if os.Getenv("AETHER_TEST_LONG") != "" {
		warm, visitors, pause = 10_000, 100_000, 100*time.Millisecond
	}
	var moved atomic.Int64
	began := time.Now()
	// Time passes with each visitor, so that what is remembered for a while is not
	// remembered for the whole test.
	now := func() time.Time { return began.Add(time.Duration(moved.Load()) * pause) }
	key, err := auth.NewKey("test", []byte(gatewaytest.Secret))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.NewKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := auth.NewVerifier(auth.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	log := streamstest.NewMemory(1)
	driver := log.Driver()
	g := gateway.New(gateway.Options{
		Driver: driver, Placement: streams.Placement{Partitions: 1}, Positions: forgetful{}, Verifier: verifier,
		Presence: local.New(now), RingBytes: 1 << 20, Retention: time.Hour,
		ByteQuota: 1 << 40, Limits: limits.Options{
			Identity: limits.Rate{Messages: 1000, Bytes: 16 << 20}, Source: limits.Rate{Messages: 1000, Bytes: 16 << 20},
			Workspace: limits.Rate{Messages: 1e6}, WorkspaceSessions: 1000, Now: now,
		},
	})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
		_ = driver.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Join(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	visit := func(i int) error {
		token, err := auth.Mint(key, auth.Claims{
			Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "i", Spec: fmt.Sprint(i), ExpiresAt: time.Now().Add(time.Hour),
		})
		if err != nil {
			return err
		}
		init := gatewaytest.AgentInit("w", "i", fmt.Sprint(i))
		init.Credentials = map[string]string{"authorization": "Bearer " + token}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		v := &visitor{ctx: ctx, init: init, done: make(chan struct{})}
		if err := g.Sessions.Serve(v); err != nil {
			return err
		}
		if wrong := v.wrong.Load(); wrong != nil {
			return fmt.Errorf("refused: %s", *wrong)
		}
		moved.Add(1)
		return nil
	}
	run := func(from, to int) {
		t.Helper()
		var next atomic.Int64
		next.Store(int64(from))
		var failed atomic.Bool
		var all sync.WaitGroup
		for range crowd {
			all.Go(func() {
				for !failed.Load() {
					i := int(next.Add(1)) - 1
					if i >= to {
						return
					}
					if err := visit(i); err != nil && !failed.Swap(true) {
						t.Errorf("visitor %d: %v", i, err)
					}
				}
			})
		}
		all.Wait()
		// The log is not what is measured: what it holds is gone, as with retention.
		if entries := log.Entries(0); len(entries) > 0 {
			log.Trim(0, entries[len(entries)-1].Offset)
		}
	}
	measure := func() (heap uint64, goroutines, series int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w := httptest.NewRecorder()
		metrics.Handler("test", func() metrics.Counts {
			limited := g.Limits.Refused()
			return metrics.Counts{Sessions: g.Sessions.Count(), Connects: g.Sessions.Stats().Connects.Load(), RateLimited: limited[:]}
		}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return m.HeapAlloc, runtime.NumGoroutine(), strings.Count(w.Body.String(), "\naether_")
	}
	run(0, warm)
	heap, goroutines, series := measure()
	for from := warm; from < visitors && !t.Failed(); from += 15_000 {
		run(from, min(from+15_000, visitors))
	}
	heapAfter, goroutinesAfter, seriesAfter := measure()
	t.Logf("after %d: %d KiB, %d goroutines, %d series; after %d: %d KiB, %d, %d",
		warm, heap>>10, goroutines, series, visitors, heapAfter>>10, goroutinesAfter, seriesAfter)
	if heapAfter > heap+heap/4+(1<<20) { // some 400 bytes a visitor
		t.Errorf("the heap grew from %d to %d KiB", heap>>10, heapAfter>>10)
	}
	if goroutinesAfter > goroutines+10 {
		t.Errorf("goroutines: %d, then %d", goroutines, goroutinesAfter)
	}
	if seriesAfter != series {
		t.Errorf("series: %d, then %d", series, seriesAfter)
	}
	if n := g.Sessions.Count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
