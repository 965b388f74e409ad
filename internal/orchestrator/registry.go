package orchestrator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/store"
)

// Registry knows which implementations can be started: a copy in memory of what
// the store keeps. It is safe for concurrent use, and must be closed.
type Registry struct {
	store store.Implementations
	copy  *mirror.Copy
	known atomic.Pointer[table] // nil until the first copy
	looks int                   // of the copy's goroutine

	mu       sync.Mutex
	onChange func()
}

// table is a version of the registry. It is not changed any more.
type table struct {
	version int64
	list    []store.Implementation
	by      map[entryKey]*store.Implementation
}

type entryKey struct{ name, workspace string }

// reloadEvery is after how many looks the registry is read anew whatever its
// version: a restored database may have another past.
const reloadEvery = 20

// NewRegistry begins to keep the copy. feed may be nil.
func NewRegistry(s store.Implementations, feed store.Feed, log *slog.Logger) *Registry {
	r := &Registry{store: s}
	r.copy = mirror.Keep(mirror.Options{
		Name: "implementations", Feed: feed, Subjects: []store.Subject{store.SubjectImplementations}, Refresh: r.refresh, Logger: log,
	})
	return r
}

// Close ends the upkeep. Of nil it does nothing.
func (r *Registry) Close() {
	if r != nil {
		r.copy.Close()
	}
}

// OnChange sets what is called when the registry has changed, also for the first
// time, by one goroutine at a time.
func (r *Registry) OnChange(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = f
}

func (r *Registry) refresh(ctx context.Context) error {
	r.looks++
	was := r.known.Load()
	if was != nil && r.looks%reloadEvery != 0 {
		version, err := r.store.ImplementationsVersion(ctx)
		if err != nil || version == was.version {
			return err
		}
	}
	return r.load(ctx)
}

// load reads the whole registry. Of two that do so at the same time the newer
// counts.
func (r *Registry) load(ctx context.Context) error {
	list, version, err := r.store.Implementations(ctx)
	if err != nil {
		return err
	}
	t := &table{version: version, list: list, by: make(map[entryKey]*store.Implementation, len(list))}
	for i := range list {
		t.by[entryKey{list[i].Name, list[i].Workspace}] = &list[i]
	}
	was := r.known.Swap(t)
	r.mu.Lock()
	f := r.onChange
	r.mu.Unlock()
	if f != nil && (was == nil || was.version != version) {
		f()
	}
	return nil
}

// Empty reports whether nothing can be started, as far as is known. It costs
// nothing.
func (r *Registry) Empty() bool {
	t := r.known.Load()
	return t == nil || len(t.list) == 0
}

// Find returns how an implementation is started in a workspace: by the entry for
// it, or by the one for all workspaces. It must not be changed.
func (r *Registry) Find(name, workspace string) (*store.Implementation, bool) {
	t := r.known.Load()
	if t == nil {
		return nil, false
	}
	i := t.by[entryKey{name, workspace}]
	if i == nil {
		i = t.by[entryKey{name, ""}]
	}
	return i, i != nil
}

// Put registers an implementation, in place of an entry of the same name and
// workspace. An error wraps [ErrEntry] or [store.ErrFull], or is the store's,
// which may be repeated.
func (r *Registry) Put(ctx context.Context, i store.Implementation) (store.Implementation, error) {
	i.Overridable = slices.Compact(slices.Sorted(slices.Values(i.Overridable)))
	if err := checkEntry(&i); err != nil {
		return store.Implementation{}, err
	}
	i, err := r.store.PutImplementation(ctx, i)
	if err != nil {
		return store.Implementation{}, err
	}
	_ = r.load(ctx) // the others, and this one if it fails, learn it by the feed
	return i, nil
}

// Remove takes an entry away. An error wraps [store.ErrNotFound], or is the
// store's, which may be repeated.
func (r *Registry) Remove(ctx context.Context, name, workspace string) (store.Implementation, error) {
	i, err := r.store.RemoveImplementation(ctx, name, workspace)
	if err != nil {
		return store.Implementation{}, err
	}
	_ = r.load(ctx)
	return i, nil
}

// List returns all entries, by name and workspace.
func (r *Registry) List(ctx context.Context) ([]store.Implementation, error) {
	list, _, err := r.store.Implementations(ctx)
	return list, err
}
