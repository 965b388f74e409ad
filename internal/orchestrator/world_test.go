package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/task"
)

const patience = 20 * time.Second

// world is what services of a test share: a store that can be away, who is
// connected, whose mail waits.
type world struct {
	t    *testing.T
	s    *sqlite.Store
	away atomic.Bool

	mu       sync.Mutex
	held     map[string]bool
	unread   map[string]bool
	waiting  []string
	gateways map[string]bool
	services []*Service
	heard    []func(presence.Notice)
}

var errAway = errors.New("the store is away")

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, s: newStore(t, time.Now), held: map[string]bool{}, unread: map[string]bool{}, gateways: map[string]bool{}}
}

// gateway adds a service, which ends with the test.
func (w *world) gateway(id string, change func(*Options)) *Service {
	w.t.Helper()
	w.mu.Lock()
	w.gateways[id] = true
	w.mu.Unlock()
	r := NewRegistry(w.s, w.s, nil)
	o := Options{
		Rows: rows{w.s, w}, Tasks: changes{w}, Registry: r, Presence: place{w, id}, Mail: w,
		StartDeadline: time.Hour, GraceWindow: time.Hour,
	}
	if change != nil {
		change(&o)
	}
	s := New(o)
	w.mu.Lock()
	w.services = append(w.services, s)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var due sync.WaitGroup
	due.Go(func() { w.sweep(ctx, s) })
	w.t.Cleanup(func() {
		cancel()
		due.Wait()
		s.Close()
		r.Close()
	})
	return s
}

// sweep does what the tasks' sweep does for starts.
func (w *world) sweep(ctx context.Context, s *Service) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := w.s.DueTasks(ctx, time.Now(), 100)
		for i := range list {
			if err == nil && list[i].Launch != "" {
				s.Due(ctx, list[i])
			}
		}
	}
}

func (w *world) register(s *Service, name string) {
	w.t.Helper()
	if _, err := s.o.Registry.Put(context.Background(), store.Implementation{Name: name, Profile: "process", Params: map[string]string{"model": "m"}, Overridable: []string{"model"}}); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.services {
		eventually(w.t, func() bool { _, ok := s.o.Registry.Find(name, "w"); return ok }, "registered")
	}
}

func (w *world) hold(identity string, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[identity] = held
}

func (w *world) mail(identity string, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread[identity] = waits
	if waits {
		w.waiting = append(w.waiting, identity)
	}
}

// Unread implements [Mail].
func (w *world) Unread(_ context.Context, list []string) (unread, unknown map[string]bool, err error) {
	if w.away.Load() {
		return nil, nil, errAway
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	unread = map[string]bool{}
	for _, identity := range list {
		if w.unread[identity] {
			unread[identity] = true
		}
	}
	return unread, nil, nil
}

// Waiting implements [Mail].
func (w *world) Waiting(_ context.Context, prefix, after string, _ int) ([]string, error) {
	if w.away.Load() {
		return nil, errAway
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if prefix != "ag::" || after != "" {
		return nil, nil
	}
	return append([]string(nil), w.waiting...), nil
}

// rows is the store, unless it is away.
type rows struct {
	*sqlite.Store
	w *world
}

func (r rows) TaskByToken(ctx context.Context, hash string) (store.Task, bool, error) {
	if r.w.away.Load() {
		return store.Task{}, false, errAway
	}
	return r.Store.TaskByToken(ctx, hash)
}

func (r rows) Tasks(ctx context.Context, f store.TaskFilter, p store.TaskPage, limit int) ([]store.Task, error) {
	if r.w.away.Load() {
		return nil, errAway
	}
	return r.Store.Tasks(ctx, f, p, limit)
}

func (r rows) QueuedTasks(ctx context.Context, f store.TaskFilter, limit int) ([]store.Task, error) {
	if r.w.away.Load() {
		return nil, errAway
	}
	return r.Store.QueuedTasks(ctx, f, limit)
}

// changes are guarded changes of rows, as the tasks' service makes them.
type changes struct{ w *world }

func (c changes) Create(ctx context.Context, t store.Task) (store.Task, bool, error) {
	if c.w.away.Load() {
		return store.Task{}, false, errAway
	}
	return c.w.s.CreateTask(ctx, t)
}

func (c changes) Change(ctx context.Context, id string, decide func(*store.Task) error) (store.Task, error) {
	for {
		if c.w.away.Load() {
			return store.Task{}, errAway
		}
		t, ok, err := c.w.s.Task(ctx, id)
		if err != nil {
			return t, err
		}
		if !ok {
			return t, store.ErrNotFound
		}
		if err := decide(&t); errors.Is(err, task.ErrUnchanged) {
			return t, nil
		} else if err != nil {
			return t, err
		}
		stored, done, err := c.w.s.UpdateTask(ctx, t)
		if err != nil || done {
			return stored, err
		}
	}
}

// place is presence as one gateway sees it.
type place struct {
	w  *world
	id string
}

func (p place) Held(name string) (held, certain bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.held[name], true
}

func (p place) Self() presence.Instance { return presence.Instance{ID: p.id} }

func (p place) Instances() (list []presence.Instance, certain bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for id := range p.w.gateways {
		list = append(list, presence.Instance{ID: id})
	}
	return list, true
}

func (p place) Send(_, kind string, _ []byte) error {
	p.w.mu.Lock()
	heard := append([]func(presence.Notice){}, p.w.heard...)
	p.w.mu.Unlock()
	for _, f := range heard {
		f(presence.Notice{From: p.id, Kind: kind})
	}
	return nil
}

func (p place) Listen(_ string, f func(presence.Notice)) (stop func()) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.heard = append(p.w.heard, f)
	return func() {}
}

// starts returns the tasks that start an identity.
func (w *world) starts(identity string) []store.Task {
	w.t.Helper()
	list, err := w.s.Tasks(context.Background(), store.TaskFilter{Launch: identity}, store.TaskPage{}, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// orc is an orchestrator of a test.
type orc struct {
	w     *world
	id    string
	got   chan *aetherv1.TaskAssignment
	leave func(bool)
}

func (w *world) orchestrator(s *Service, name string, profiles ...string) *orc {
	got := make(chan *aetherv1.TaskAssignment, 4096)
	o := w.orchestratorThat(s, name, func(a *aetherv1.TaskAssignment) bool {
		got <- a
		return true
	}, profiles...)
	o.got = got
	return o
}

// orchestratorThat is one that is handed starts by a function. Without profiles
// it has the usual one.
func (w *world) orchestratorThat(s *Service, name string, assign func(*aetherv1.TaskAssignment) bool, profiles ...string) *orc {
	o := &orc{w: w, id: "orc::test::" + name}
	if len(profiles) == 0 {
		profiles = []string{"process"}
	}
	w.hold(o.id, true)
	o.leave = s.Join(Orchestrator{
		Session: uuid.NewString(), Identity: o.id, Profiles: profiles, Covers: func(string) bool { return true }, Assign: assign,
	})
	return o
}

// gone ends the orchestrator's session.
func (o *orc) gone(forGood bool) {
	o.w.hold(o.id, false)
	o.leave(forGood)
}

func (o *orc) next() *aetherv1.TaskAssignment {
	o.w.t.Helper()
	select {
	case a := <-o.got:
		return a
	case <-time.After(patience):
		o.w.t.Fatalf("%s got nothing", o.id)
		return nil
	}
}

func (o *orc) nothing(d time.Duration) {
	o.w.t.Helper()
	select {
	case a := <-o.got:
		o.w.t.Errorf("%s got %v", o.id, a.GetTaskId())
	case <-time.After(d):
	}
}

// connect begins a worker's session with the token of an assignment.
func (w *world) connect(s *Service, a *aetherv1.TaskAssignment, session string) (*Worker, chan string, error) {
	w.t.Helper()
	hash, ok := auth.TaskTokenHash(a.GetLaunchParams()[AuthToken])
	if !ok {
		w.t.Fatalf("no token in %v", a.GetTaskId())
	}
	run, _, err := s.Find(context.Background(), hash)
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan string, 1)
	x := Worker{Session: session, Identity: a.GetAssignedTo(), Run: run, End: func(why string) { ended <- why }}
	if err := s.Came(context.Background(), x); err != nil {
		return nil, nil, err
	}
	w.hold(x.Identity, true)
	return &x, ended, nil
}

func (w *world) disconnect(s *Service, x *Worker, clean bool) {
	w.hold(x.Identity, false)
	s.Went(*x, clean)
}

func eventually(t *testing.T, is func() bool, what string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// state waits until the newest start of an identity is in a state.
func (w *world) state(identity string, want store.TaskState, attempt int32) store.Task {
	w.t.Helper()
	var last store.Task
	eventually(w.t, func() bool {
		if list := w.starts(identity); len(list) > 0 {
			last = list[0]
		}
		return last.State == want && last.Attempt == attempt
	}, fmt.Sprintf("%s is %s in attempt %d", identity, want, attempt))
	return last
}
