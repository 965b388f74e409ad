package gateway_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/testservices"
	"github.com/aether-gateway/gateway/internal/trust"
)

// Two gateways with a connection of their own each to one PostgreSQL: a
// revocation at one takes effect at the other. While the database is away, or
// hangs, known keys connect as before, unknown ones may come again, and a gateway
// that starts lets nobody in. When it is back, what is revoked takes effect again.
func TestRevocationThroughPostgres(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database := testservices.NewPostgres(t)
	check(t, migrateUp(database.URL()))
	open := func() *postgres.Store {
		s, err := postgres.Open(ctx, database.URL(), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	start := func(s *postgres.Store) *gatewaytest.Gateway {
		return gatewaytest.Start(t, gatewaytest.Shared(t), func(o *gateway.Options) { o.Credentials, o.Feed = s, s })
	}
	a, b, late := start(open()), start(open()), open()
	key := func(name string) string {
		t.Helper()
		text, _, err := a.Trust.CreateKey(ctx, trust.NewKey{Name: name, Claims: auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "*"}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	connect := func(g *gatewaytest.Gateway, spec, key string) (*gatewaytest.Peer, error) {
		init := gatewaytest.AgentInit("w", "echo", spec)
		init.Credentials = map[string]string{"api_key": key}
		return gatewaytest.Dial(t, g.Addr, "", init)
	}
	must := func(p *gatewaytest.Peer, err error) *gatewaytest.Peer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	revoke := func(key string) time.Time {
		t.Helper()
		if _, _, err := a.Trust.RevokeKey(ctx, key[len(auth.APIKeyPrefix):][:16], "op"); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}

	first, second := key("k"), key("k2")
	session := must(connect(b, "1", first))
	stays := must(connect(b, "2", second))
	revokedSession(t, session, revoke(first), effect)
	if _, err := connect(b, "1", first); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked key: %v", err)
	}

	database.Kill()
	must(connect(b, "3", second))
	if _, err := connect(b, "4", "ak_aaaaaaaaaaaaaaaa_"+second[len(second)-52:]); status.Code(err) != codes.Unavailable {
		t.Errorf("an unknown key while the database is away: %v", err)
	}
	if _, _, err := a.Trust.RevokeKey(ctx, "k", "op"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoked while the database is away: %v", err)
	}
	notReady(t, late)

	database.Start()
	stays.Heartbeat()
	begun := time.Now()
	for { // the first call after a restart may meet dead connections
		if _, _, err := a.Trust.RevokeKey(ctx, second[len(auth.APIKeyPrefix):][:16], "op"); err == nil {
			break
		} else if time.Since(begun) > 20*time.Second {
			t.Fatal(err)
		}
	}
	revokedSession(t, stays, time.Now(), 20*time.Second)
}

// notReady wants a gateway that cannot know what is revoked to serve nobody.
func notReady(t *testing.T, away *postgres.Store) {
	t.Helper()
	key, err := auth.NewKey("test", []byte(gatewaytest.Secret))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.NewKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	var o gateway.Options
	if o.Verifier, err = auth.NewVerifier(auth.Options{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Shared(t)(&o)
	o.Credentials, o.Feed = away, nil
	g := gateway.New(o)
	if err := g.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := g.Ready(waiting); !errors.Is(err, router.ErrUnready) {
		t.Errorf("ready without knowing what is revoked: %v", err)
	}
	if err := g.Trust.Revoked(&auth.Credential{}, ""); !errors.Is(err, auth.ErrKeysAway) {
		t.Errorf("before it is known what is revoked: %v", err)
	}
	stopping, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := g.Stop(stopping); err != nil {
		t.Error(err)
	}
}
