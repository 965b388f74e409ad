package redis

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		os.Exit(child(url))
	}
	os.Exit(testservices.Main(m))
}

// world is gateways on one Redis. Its clock is theirs and the server's, and
// heartbeats come when it moves.
type world struct {
	t      *testing.T
	server *testservices.RedisServer
	raw    *goredis.Client

	mu      sync.Mutex
	now     time.Time
	members []*member
}

type member struct {
	presencetest.Member
	p *Presence
	// skew is how far the member's own clock is from the world's; frozen ones
	// send no heartbeats.
	skew   atomic.Int64
	frozen atomic.Bool
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: testservices.Redis(t), now: time.Unix(1_800_000_000, 0)}
	w.raw = goredis.NewClient(&goredis.Options{Addr: w.server.Addr()})
	t.Cleanup(func() { w.raw.Close() })
	return w
}

// settled returns a world with gateways that hand out leases.
func settled(t *testing.T, n int) (*world, []*member) {
	t.Helper()
	w := setup(t)
	list := make([]*member, n)
	for i := range list {
		list[i] = w.start(fmt.Sprint("gw", i))
	}
	w.Advance(presence.TTL + time.Second)
	for _, m := range list {
		if err := m.Status(); err != nil {
			t.Fatal(err)
		}
	}
	return w, list
}

func (w *world) start(name string, change ...func(*Options)) *member {
	w.t.Helper()
	m, err := w.tryStart(name, change...)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) tryStart(name string, change ...func(*Options)) (*member, error) {
	w.t.Helper()
	m := &member{}
	o := Options{
		URL: w.server.URL(), Instance: name, manual: true, Beat: time.Second,
		now:       func() time.Time { return w.Now().Add(time.Duration(m.skew.Load())) },
		serverNow: func() int64 { return w.Now().UnixMilli() },
	}
	for _, f := range change {
		f(&o)
	}
	p, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	m.p, m.Member = p, presencetest.Member{Gateway: p, Handler: &presencetest.Handler{}}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
	})
	if err := p.Start(w.t.Context(), m.Handler); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = append(w.members, m)
	return m, nil
}

func (w *world) Gateways() (a, b *presencetest.Member) {
	return &w.members[0].Member, &w.members[1].Member
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Advance moves the clock a second at a time; each live gateway sends a
// heartbeat after each step.
func (w *world) Advance(d time.Duration) {
	for ; d > 0; d -= time.Second {
		w.mu.Lock()
		w.now = w.now.Add(min(d, time.Second))
		members := append([]*member(nil), w.members...)
		w.mu.Unlock()
		for _, m := range members {
			if !m.frozen.Load() {
				m.p.beat(context.Background())
			}
		}
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	presencetest.Run(t, func(t *testing.T) presencetest.World {
		w, _ := settled(t, 2)
		return w
	})
}
