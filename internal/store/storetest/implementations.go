package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var implementationTests = []test{
	{"NoImplementations", noImplementations},
	{"PutAndRemoveImplementations", putAndRemoveImplementations},
	{"ImplementationTexts", implementationTexts},
	{"ImplementationsEndWithTheirWorkspace", implementationsEnd},
	{"ImplementationsAreTold", implementationsAreTold},
	{"RaceOfImplementations", raceOfImplementations},
}

func (b *bench) put(i store.Implementation) store.Implementation {
	b.t.Helper()
	got, err := b.s.PutImplementation(context.Background(), i)
	if err != nil || time.Since(got.CreatedAt).Abs() > time.Hour {
		b.t.Fatalf("PutImplementation: %+v, %v", got, err)
	}
	return got
}

// wantImplementations checks the entries and returns their version.
func (b *bench) wantImplementations(want ...store.Implementation) int64 {
	b.t.Helper()
	got, version, err := b.s.Implementations(context.Background())
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		b.t.Errorf("Implementations: %v %s", err, diff)
	}
	if alone, err := b.s.ImplementationsVersion(context.Background()); alone != version || err != nil {
		b.t.Errorf("ImplementationsVersion: %d, %v, want %d", alone, err, version)
	}
	return version
}

func noImplementations(t *testing.T, b *bench) {
	if v := b.wantImplementations(); v != 0 {
		t.Errorf("version %d", v)
	}
	if _, err := b.s.RemoveImplementation(context.Background(), "i", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
	if v := b.wantImplementations(); v != 0 {
		t.Errorf("version %d after nothing was removed", v)
	}
}

func putAndRemoveImplementations(t *testing.T, b *bench) {
	ctx := context.Background()
	everywhere := b.put(store.Implementation{Name: "echo", Profile: "p", CreatedBy: "ops"})
	here := b.put(store.Implementation{
		Name: "echo", Workspace: "w", Profile: "q", Params: map[string]string{"model": "größer", "": "x"}, Overridable: []string{"model"}, CreatedBy: "ops",
	})
	first := b.wantImplementations(everywhere, here)
	everywhere = b.put(store.Implementation{Name: "echo", Profile: "other", Params: map[string]string{"a": "b"}, CreatedBy: "another"})
	second := b.wantImplementations(everywhere, here)
	if got, err := b.s.RemoveImplementation(ctx, "echo", "w"); err != nil || !cmp.Equal(got, here) {
		t.Errorf("removed %+v, %v", got, err)
	}
	third := b.wantImplementations(everywhere)
	if first >= second || second >= third {
		t.Errorf("versions %d, %d, %d", first, second, third)
	}
	_ = b.s.Close()
	b.s = b.open()
	b.wantImplementations(everywhere)
}

func implementationTexts(t *testing.T, b *bench) {
	for _, bad := range []string{"\xff", "a\x00b"} {
		for _, i := range []store.Implementation{
			{Name: bad}, {Workspace: bad}, {Profile: bad}, {CreatedBy: bad}, {Params: map[string]string{bad: ""}}, {Params: map[string]string{"": bad}}, {Overridable: []string{bad}},
		} {
			if _, err := b.s.PutImplementation(context.Background(), i); !errors.Is(err, store.ErrText) {
				t.Errorf("%+v: %v", i, err)
			}
		}
		if _, err := b.s.RemoveImplementation(context.Background(), bad, ""); !errors.Is(err, store.ErrText) {
			t.Errorf("removed %q: %v", bad, err)
		}
	}
	b.wantImplementations()
}

func implementationsEnd(t *testing.T, b *bench) {
	ctx := context.Background()
	if _, _, err := b.s.CreateWorkspace(ctx, "w", "ops"); err != nil {
		t.Fatal(err)
	}
	everywhere := b.put(store.Implementation{Name: "echo", Profile: "p"})
	b.put(store.Implementation{Name: "echo", Workspace: "w", Profile: "p"})
	other := b.put(store.Implementation{Name: "echo", Workspace: "ww", Profile: "p"})
	if deleted, err := b.s.DeleteWorkspace(ctx, "w"); !deleted || err != nil {
		t.Fatal(deleted, err)
	}
	b.wantImplementations(everywhere, other)
}

func implementationsAreTold(t *testing.T, b *bench) {
	changed, stop := b.s.Follow(store.SubjectImplementations)
	defer stop()
	<-changed
	b.put(store.Implementation{Name: "echo", Profile: "p"})
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("nobody was told")
	}
}

func raceOfImplementations(t *testing.T, b *bench) {
	const n = 20
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := b.s.PutImplementation(context.Background(), store.Implementation{Name: fmt.Sprint("i", i%4), Profile: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, version, err := b.s.Implementations(context.Background()); err != nil || len(list) != 4 || version != n {
		t.Errorf("%d entries, version %d, %v", len(list), version, err)
	}
}
