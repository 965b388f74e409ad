package orchestrator

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStore returns an embedded store that ends with the test.
func newStore(t *testing.T, now func() time.Time) *sqlite.Store {
	t.Helper()
	file := sqlitetest.Open(t, filepath.Join(t.TempDir(), "aether.db"))
	t.Cleanup(func() { _ = file.Close() })
	s, err := sqlite.Open(context.Background(), file, sqlite.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The entry for a workspace goes before the one for all, and what one gateway
// registers another one knows.
func TestRegistryFinds(t *testing.T) {
	t.Parallel()
	s := newStore(t, time.Now)
	here, there := NewRegistry(s, s, nil), NewRegistry(s, s, nil)
	defer here.Close()
	defer there.Close()
	told := make(chan struct{}, 16)
	there.OnChange(func() { told <- struct{}{} })
	await := func(found func() bool) {
		t.Helper()
		for !found() {
			select {
			case <-told:
			case <-time.After(10 * time.Second):
				t.Fatal("it is not known elsewhere")
			}
		}
	}
	ctx := context.Background()
	for _, bad := range []store.Implementation{{}, {Name: "echo"}, {Name: "echo", Profile: "*"}} {
		if _, err := here.Put(ctx, bad); !errors.Is(err, ErrEntry) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if !here.Empty() {
		t.Error("something bad was stored")
	}
	for _, i := range []store.Implementation{{Name: "echo", Profile: "all"}, {Name: "echo", Workspace: "w", Profile: "mine", Overridable: []string{"b", "a", "b"}}} {
		if _, err := here.Put(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	if i, ok := here.Find("echo", "w"); !ok || i.Profile != "mine" || len(i.Overridable) != 2 {
		t.Errorf("not known at once: %+v, %v", i, ok)
	}
	await(func() bool { i, ok := there.Find("echo", "w"); return ok && i.Profile == "mine" })
	if i, ok := there.Find("echo", "v"); !ok || i.Profile != "all" {
		t.Errorf("in another workspace: %+v, %v", i, ok)
	}
	if _, ok := there.Find("other", "w"); ok {
		t.Error("an unknown implementation is found")
	}
	if _, err := here.Remove(ctx, "echo", ""); err != nil {
		t.Fatal(err)
	}
	await(func() bool { _, ok := there.Find("echo", "v"); return !ok })
	if _, err := here.Remove(ctx, "echo", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	if list, err := there.List(ctx); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
