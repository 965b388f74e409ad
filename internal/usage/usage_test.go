package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/aether-gateway/gateway/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a [store.Stored] of one partition.
type memory struct {
	mu      sync.Mutex
	u       store.StoredUsage
	ok      bool
	savedAt time.Time
	now     func() time.Time
	broken  bool
}

var errBroken = errors.New("broken")

func (m *memory) LoadStored(context.Context, int) (store.StoredUsage, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.u
	u.Rows = append([]store.StoredBytes(nil), u.Rows...)
	if m.broken {
		return u, false, errBroken
	}
	return u, m.ok, nil
}

func (m *memory) SaveStored(_ context.Context, _ int, u store.StoredUsage, oldest int64, notSince time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.broken:
		return false, errBroken
	case m.ok && (m.u.Position >= u.Position || m.savedAt.After(notSince)):
		return false, nil
	}
	rows := map[string]store.StoredBytes{}
	if m.u.Width == u.Width {
		for _, r := range m.u.Rows {
			rows[fmt.Sprint(r.Slot, r.Workspace)] = r
		}
	}
	for _, r := range u.Rows {
		rows[fmt.Sprint(r.Slot, r.Workspace)] = r
	}
	u.Rows = nil
	for _, r := range rows {
		if r.Slot >= oldest {
			u.Rows = append(u.Rows, r)
		}
	}
	m.u, m.ok, m.savedAt = u, true, m.now()
	return true, nil
}

func (m *memory) ResetStored(context.Context, int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.u, m.ok = store.StoredUsage{}, false
	return nil
}

// world is a log of one partition, counted by gateways.
type world struct {
	t     *testing.T
	now   time.Time
	first uint64
	last  uint64
	store *memory
}

func setup(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1_800_000_000, 0)}
	w.store = &memory{now: func() time.Time { return w.now }}
	return w
}

func (w *world) gateway() *Usage {
	w.t.Helper()
	u := New(Options{
		Partitions: 1, Quota: 1000, Keep: 64 * time.Hour, Store: w.store, Now: func() time.Time { return w.now },
		First: func(context.Context, int) (uint64, error) { return w.first, nil },
	})
	if err := u.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return u
}

// add appends an entry of one envelope, which the gateways count.
func (w *world) add(workspace string, bytes int, gateways ...*Usage) {
	w.last++
	for _, u := range gateways {
		w.show(u, workspace, bytes, w.last, false)
	}
}

func (w *world) show(u *Usage, workspace string, bytes int, offset uint64, own bool) {
	u.Partition(0).Add([]byte(workspace), w.now.UnixMilli(), int64(offset)*1024, bytes, own)
}

func (w *world) save(u *Usage) {
	w.t.Helper()
	if err := u.Save(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) want(u *Usage, workspace string, bytes int64) {
	w.t.Helper()
	if got := u.Of(workspace); got != bytes {
		w.t.Errorf("%s has %d bytes, want %d", workspace, got, bytes)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	u := w.gateway()
	w.add("a", 600, u)
	w.add("b", 10, u)
	if u.Over("a") || u.Over("b") || u.Over("nobody") {
		t.Error("over the quota below it")
	}
	w.add("a", 400, u)
	w.show(u, "a", 400, w.last, false) // shown again by a tail that was opened anew
	w.want(u, "a", 1000)
	if !u.Over("a") || u.Over("b") {
		t.Error("who has its quota is over it, nobody else")
	}
}

// Retention takes the counts along: by whole slots and by parts of them.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := setup(t)
	u := w.gateway()
	for hour := range 4 {
		w.add("a", 100, u)
		w.add("b", 1, u)
		if hour < 3 {
			w.now = w.now.Add(time.Hour)
		}
	}
	w.first = 3 // the first hour's entries are 1 and 2
	u.Trim(t.Context())
	w.want(u, "a", 300)
	w.first = 6 // one of the third hour's two
	u.Trim(t.Context())
	w.want(u, "a", 150)
	w.first = 9
	u.Trim(t.Context())
	w.want(u, "a", 0)
	if len(u.totals) != 0 || u.parts[0].cells != 0 {
		t.Errorf("%d totals and %d cells are left of nothing", len(u.totals), u.parts[0].cells)
	}
}

// A gateway that starts knows what was stored before, whoever saved it, and
// counts nothing twice; several count alike.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	one := w.gateway()
	for range 5 {
		w.add("a", 50, one)
		w.now = w.now.Add(time.Hour)
	}
	w.save(one)
	w.add("a", 7, one)
	two := w.gateway()
	w.want(two, "a", 250)
	for offset := w.last - 2; offset <= w.last; offset++ { // its tail looks back
		w.show(two, "a", map[bool]int{true: 7, false: 50}[offset == w.last], offset, false)
	}
	w.want(two, "a", 257)
	w.now = w.now.Add(time.Minute)
	w.add("b", 3, one, two)
	w.save(one)
	w.save(two) // has just been done
	w.now = w.now.Add(time.Minute)
	w.add("a", 1, one, two)
	w.save(two)
	w.save(one)
	three := w.gateway()
	w.want(three, "a", 258)
	w.want(three, "b", 3)
}

// A log that was made anew is found out by what the process itself has written,
// or told; what was counted of the old one goes.
func TestLogMadeAnew(t *testing.T) {
	t.Parallel()
	w := setup(t)
	u := w.gateway()
	for range 10 {
		w.add("a", 50, u)
	}
	w.save(u)
	next := w.gateway()
	w.show(next, "a", 1, 3, false) // looks like what was counted
	w.show(next, "a", 2, 4, true)
	w.show(next, "a", 4, 5, false)
	w.want(next, "a", 6)
	w.now = w.now.Add(time.Minute)
	w.save(next)
	w.want(w.gateway(), "a", 6)

	next.Partition(0).Rewind(-1)
	w.want(next, "a", 0)
	w.show(next, "a", 8, 0, false)
	w.want(next, "a", 8)
	w.show(next, "a", 16, 9, false)
	next.Partition(0).Rewind(5 * 1024) // the end of the log was lost
	w.show(next, "a", 1, 6, false)
	w.want(next, "a", 25)
	w.now = w.now.Add(time.Minute)
	w.save(next)
	w.want(w.gateway(), "a", 25)
}

func TestSlotsOfAnotherWidth(t *testing.T) {
	t.Parallel()
	w := setup(t)
	u := w.gateway()
	for range 10 {
		w.add("a", 50, u)
		w.now = w.now.Add(30 * time.Minute)
	}
	w.save(u)
	other := New(Options{
		Partitions: 1, Keep: 128 * time.Hour, Store: w.store, Now: func() time.Time { return w.now },
		First: func(context.Context, int) (uint64, error) { return w.first, nil },
	})
	if err := other.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.want(other, "a", 500)
	w.now = w.now.Add(time.Minute)
	w.add("a", 1, other)
	w.save(other)
	w.first = 6
	other.Trim(t.Context())
	if got := other.Of("a"); got < 200 || got > 350 {
		t.Errorf("%d bytes are left of about the half", got)
	}
}

func TestStoreAway(t *testing.T) {
	t.Parallel()
	w := setup(t)
	u := w.gateway()
	w.add("a", 50, u)
	w.store.broken = true
	if err := u.Save(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	w.store.broken = false
	w.save(u)
	w.want(w.gateway(), "a", 50)
}

// What is kept is bounded, in workspaces and in time, whatever stamps come.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	u := w.gateway()
	for i := range maxWorkspaces + 500 {
		w.add(fmt.Sprint("w", i), 1, u)
	}
	if n := len(u.totals); n > maxWorkspaces+1 {
		t.Errorf("%d workspaces are counted", n)
	}
	w.want(u, "w5", 1)
	w.want(u, fmt.Sprint("w", maxWorkspaces+3), 500) // as all others together
	for i := range 500 {
		w.now = w.now.Add(time.Hour)
		w.add("w5", 1, u)
		u.Partition(0).Add([]byte("w5"), int64(i)*1e15, int64(w.last)*1024+1, 1, false) // a clock gone wrong
	}
	if n := len(u.parts[0].slots); n > slots+2 {
		t.Errorf("%d slots", n)
	}
	w.want(u, "w5", 1001)
	w.first = w.last + 1
	u.Trim(t.Context())
	if len(u.totals) != 0 || u.parts[0].cells != 0 {
		t.Errorf("%d totals and %d cells are left of nothing", len(u.totals), u.parts[0].cells)
	}
}

// However entries, retention, saves and restarts follow each other, the counts
// are those of the log, to the part of a slot that retention has cut.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := setup(t)
		u := w.gateway()
		type entry struct {
			workspace string
			bytes     int
		}
		var log []entry
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				e := entry{rapid.SampledFrom([]string{"a", "b"}).Draw(r, "workspace"), rapid.IntRange(1, 100).Draw(r, "bytes")}
				log = append(log, e)
				w.add(e.workspace, e.bytes, u)
			},
			"hour": func(*rapid.T) { w.now = w.now.Add(time.Hour) },
			"save": func(*rapid.T) { w.now = w.now.Add(time.Minute); w.save(u) },
			"restart": func(*rapid.T) {
				from := w.store.u.Position / 1024
				u = w.gateway()
				for i := max(int(from)-3, 0); i < len(log); i++ {
					w.show(u, log[i].workspace, log[i].bytes, uint64(i+1), false)
				}
			},
			"": func(r *rapid.T) {
				for _, workspace := range []string{"a", "b"} {
					total := int64(0)
					for _, e := range log {
						if e.workspace == workspace {
							total += int64(e.bytes)
						}
					}
					if got := u.Of(workspace); got != total {
						r.Fatalf("%s: %d, want %d", workspace, got, total)
					}
				}
			},
		})
	})
}

func TestAddDoesNotAllocate(t *testing.T) {
	w := setup(t)
	u := w.gateway()
	name := []byte("workspace")
	position := int64(0)
	u.Partition(0).Add(name, w.now.UnixMilli(), position, 1, false)
	if n := testing.AllocsPerRun(1000, func() {
		position++
		u.Partition(0).Add(name, w.now.UnixMilli(), position, 100, false)
		u.Over("workspace")
	}); n != 0 {
		t.Errorf("%v allocations per message", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	u := New(Options{Partitions: 1, Quota: 1 << 40})
	name, now := []byte("workspace"), time.Now().UnixMilli()
	position := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		position++
		u.Partition(0).Add(name, now, position, 256, false)
	}
}
