// Package gatewaytest starts gateways inside a test's process.
package gatewaytest

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
)

// Gateway is a gateway of a test. It is stopped when the test ends.
type Gateway struct {
	*gateway.Gateway
	// Addr is host and port of its gRPC server.
	Addr string
	// Members is the store's, for what an operator rules.
	Members store.Members

	tb   testing.TB
	key  auth.Key
	stop func()
}

// Secret signs the tokens of tests. It protects nothing.
const Secret = "a-secret-of-tests-that-protects-nothing"

// Option changes how a gateway is started.
type Option func(*gateway.Options)

// On makes the gateway use a given log and store.
func On(driver streams.Driver, partitions int, positions router.Store) Option {
	return func(o *gateway.Options) {
		o.Driver, o.Placement, o.Positions = driver, streams.Placement{Partitions: partitions}, positions
	}
}

// WithRedis makes the gateway one of those that share a Redis. change may
// change the presence's options; nil leaves them.
func WithRedis(tb testing.TB, url string, change func(*redis.Options)) Option {
	return func(o *gateway.Options) {
		tb.Helper()
		o.Boot = router.NewBoot()
		r := redis.Options{URL: url, Instance: o.Boot.String(), ID: o.Boot.String(), Logger: o.Logger}
		if change != nil {
			change(&r)
		}
		p, err := redis.New(r)
		check(tb, err)
		o.Presence = p
	}
}

// Shared returns an option for each gateway of a deployment: all get the same
// embedded log and store. They end with the test, after its gateways.
func Shared(tb testing.TB) Option {
	tb.Helper()
	return SharedAt(tb, time.Now)
}

// SharedAt is Shared with a clock for the store.
func SharedAt(tb testing.TB, now func() time.Time) Option {
	tb.Helper()
	var shared gateway.Options
	tb.Cleanup(openEmbedded(tb, tb.TempDir(), now, &shared))
	return func(o *gateway.Options) {
		o.Driver, o.Placement = shared.Driver, shared.Placement
		o.Positions, o.Members, o.Feed, o.Rules = shared.Positions, shared.Members, shared.Feed, shared.Rules
		o.Records = shared.Records
		o.Implementations = shared.Implementations
		o.Workspaces = shared.Workspaces
		o.Credentials = shared.Credentials
		o.Grants = shared.Grants
		o.Keys.Store = shared.Keys.Store
		o.Tasks = shared.Tasks
	}
}

// Clock is a clock that a test sets forward. It is safe for concurrent use.
type Clock struct{ ahead atomic.Int64 }

// Now is the time on it.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Forward sets the clock forward.
func (c *Clock) Forward(d time.Duration) { c.ahead.Add(int64(d)) }

// WithClock makes credentials expire by a clock of the test. Streams are not
// taken for blocked when it is set forward.
func WithClock(c *Clock) Option {
	return func(o *gateway.Options) { o.Now, o.WriteTimeout = c.Now, 10_000*time.Hour }
}

// Start starts a gateway, by default on an embedded log and store in a fresh
// directory.
func Start(tb testing.TB, options ...Option) *Gateway {
	tb.Helper()
	return StartIn(tb, tb.TempDir(), options...)
}

// StartIn is Start with the data in dir, where an earlier gateway of the test
// may have left some.
func StartIn(tb testing.TB, dir string, options ...Option) *Gateway {
	tb.Helper()
	key, err := auth.NewKey("test", []byte(Secret))
	check(tb, err)
	keys, err := auth.NewKeys(key)
	check(tb, err)
	o := gateway.Options{Version: "test", AutoCreate: true, Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))}
	for _, option := range options {
		option(&o)
	}
	if o.Verifier == nil {
		o.Verifier, err = auth.NewVerifier(auth.Options{Keys: keys, Clock: o.Now})
		check(tb, err)
	}
	closeData := func() {}
	if o.Driver == nil {
		closeData = openEmbedded(tb, dir, time.Now, &o)
	}
	g := &Gateway{Gateway: gateway.New(o), Members: o.Members, tb: tb, key: key}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(tb, err)
	g.Addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	check(tb, g.Join(ctx))
	check(tb, g.Ready(ctx))
	stopped := false
	g.stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Gateway.Stop(ctx); err != nil {
			tb.Errorf("the gateway did not stop cleanly: %v", err)
		}
		if err := <-served; err != nil {
			tb.Errorf("the gateway's server failed: %v", err)
		}
		closeData()
	}
	tb.Cleanup(g.stop)
	return g
}

func openEmbedded(tb testing.TB, dir string, now func() time.Time, o *gateway.Options) (closeData func()) {
	tb.Helper()
	file := sqlitetest.Open(tb, filepath.Join(dir, "aether.db"))
	positions, err := sqlite.Open(context.Background(), file, sqlite.Options{Now: now})
	check(tb, err)
	if o.Placement.Partitions == 0 {
		o.Placement.Partitions = 2
	}
	driver, err := embedded.Open(file, embedded.Options{Partitions: o.Placement.Count(), Extra: 1})
	check(tb, err)
	o.Driver, o.Positions, o.Members, o.Feed, o.Rules = driver, positions, positions, positions, positions
	o.Records = positions
	o.Implementations = positions
	o.Workspaces = positions
	o.Credentials = positions
	o.Grants = positions
	o.Keys.Store = positions
	o.Tasks = positions
	return func() {
		_ = driver.Close()
		_ = positions.Close()
		_ = file.Close()
	}
}

// Stop stops the gateway before the test ends.
func (g *Gateway) Stop() { g.stop() }

// Token returns a token for claims that is good for an hour, unless they say
// otherwise.
func (g *Gateway) Token(c auth.Claims) string {
	g.tb.Helper()
	if c.ExpiresAt.IsZero() {
		c.ExpiresAt = time.Now().Add(time.Hour)
	}
	token, err := auth.Mint(g.key, c)
	check(g.tb, err)
	return token
}

// AgentToken returns a token for every agent of a workspace and implementation.
func (g *Gateway) AgentToken(workspace, implementation string) string {
	return g.Token(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{workspace}, Impl: implementation, Spec: "*"})
}

// UserToken returns a token for a user.
func (g *Gateway) UserToken(user string, workspaces ...string) string {
	return g.Token(auth.Claims{Kind: auth.KindUser, User: user, Workspaces: workspaces})
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
