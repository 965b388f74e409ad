package router

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
)

func openStore(t *testing.T) *sqlite.Store {
	t.Helper()
	file := sqlitetest.Open(t, filepath.Join(t.TempDir(), "gateway.db"))
	t.Cleanup(func() { _ = file.Close() })
	s, err := sqlite.Open(context.Background(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMembers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := openStore(t)
	now := time.UnixMilli(1_000_000_000_000)
	clock := func() time.Time { return now }
	spaces := newSpaces(nil, true)
	here, there := newMembers(clock, s, spaces), newMembers(clock, s, spaces)

	if here.InWorkspace("u", "w") || here.InAny("u", acl.All()) {
		t.Fatal("a user is a member of what nobody said")
	}
	if err := here.Learn(ctx, "u", []string{"w", "v"}, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := here.Learn(ctx, "u", []string{"w"}, now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if !here.InWorkspace("u", "w") || here.InWorkspace("u", "x") || !here.InAny("u", acl.Workspaces("v")) || here.InAny("u", acl.Workspaces("x")) {
		t.Fatal("the earlier token is forgotten, or more is known than it said")
	}
	if there.InWorkspace("u", "w") {
		t.Fatal("known before it was asked for")
	}
	if err := there.refresh(ctx); err != nil || !there.InWorkspace("u", "w") {
		t.Fatalf("not known to another gateway: %v", err)
	}
	if err := s.RuleMembership(ctx, "u", "w", store.RuledOut); err != nil {
		t.Fatal(err)
	}
	if err := there.refresh(ctx); err != nil || there.InWorkspace("u", "w") {
		t.Fatalf("a ruling does not beat the token: %v", err)
	}
	if err := there.Learn(ctx, "u", []string{"w"}, now.Add(time.Hour)); err != nil || there.InWorkspace("u", "w") {
		t.Fatalf("a new token beats the ruling: %v", err)
	}
	now = now.Add(time.Hour)
	if here.InWorkspace("u", "v") {
		t.Fatal("a membership outlives its token")
	}
	here.forget()
	there.forget()
	if len(here.users) != 0 || len(there.users["u"]) != 1 {
		t.Fatalf("left are %v and %v", here.users, there.users)
	}
}
