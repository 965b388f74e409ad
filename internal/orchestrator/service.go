package orchestrator

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// Rows is what this package reads of the tasks.
type Rows interface {
	Task(ctx context.Context, id string) (t store.Task, ok bool, err error)
	TaskPayload(ctx context.Context, id string) ([]byte, error)
	TaskByToken(ctx context.Context, hash string) (t store.Task, ok bool, err error)
	Tasks(ctx context.Context, f store.TaskFilter, after store.TaskPage, limit int) ([]store.Task, error)
	QueuedTasks(ctx context.Context, f store.TaskFilter, limit int) ([]store.Task, error)
	CountTasks(ctx context.Context, f store.TaskFilter, most int) (int, error)
}

// Tasks makes tasks and changes them, and what follows from that: it is a
// [task.Service].
type Tasks interface {
	Create(ctx context.Context, t store.Task) (stored store.Task, created bool, err error)
	Change(ctx context.Context, id string, decide func(t *store.Task) error) (store.Task, error)
}

// Presence is what it needs to know of who is where.
type Presence interface {
	Held(name string) (held, certain bool)
	Self() presence.Instance
	Instances() (list []presence.Instance, certain bool)
	Send(to, kind string, payload []byte) error
	Listen(kind string, f func(presence.Notice)) (stop func())
}

// Mail says whose mail waits.
type Mail interface {
	// Unread reports for which of these addresses mail surely waits, and for
	// which it is not known; of the others there is none. An error says that it
	// is known of none.
	Unread(ctx context.Context, addresses []string) (unread, unknown map[string]bool, err error)
	// Waiting returns up to limit addresses behind one, in their order, whose
	// mail may wait without anybody there to read it.
	Waiting(ctx context.Context, prefix, after string, limit int) ([]string, error)
}

// Budgets are how many starts there may be within a minute; 0 is no limit.
type Budgets struct {
	// Sender is for what one identity has caused, Workspace for a workspace, and
	// Implementation for an implementation in a workspace.
	Sender, Workspace, Implementation int
}

// Options configure a [Service]. Rows, Tasks, Registry, Presence and Mail are
// required.
type Options struct {
	Rows     Rows
	Tasks    Tasks
	Registry *Registry
	Presence Presence
	Mail     Mail
	// StartDeadline is how long a worker may take to connect, default 60 s;
	// GraceWindow how long it may be gone, default 30 s.
	StartDeadline, GraceWindow time.Duration
	// MaxAttempts is how often a start is tried, default 3.
	MaxAttempts int32
	Budgets     Budgets
	Logger      *slog.Logger
	Now         func() time.Time
}

// Service is the orchestration on one gateway. All methods are safe for
// concurrent use. It must be closed.
type Service struct {
	o     Options
	stats Stats
	stops []func()

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ending sync.RWMutex // held while the service is closed
	closed bool

	looks   looks
	sweeps  sweeps
	starter starters
	workers workers
	orphans orphans
}

// Stats are counters since the process began.
type Stats struct {
	// Triggered counts mail that was to start somebody, Started the starts that
	// were made of it, OverBudget those that were put off.
	Triggered, Started, OverBudget atomic.Uint64
	// Assigned counts assignments to orchestrators here; Arrived workers that
	// have come; Retried and Failed attempts that came to nothing.
	Assigned, Arrived, Retried, Failed atomic.Uint64
}

const (
	defaultDeadline = time.Minute
	defaultGrace    = 30 * time.Second
	defaultAttempts = 3
	// callTimeout bounds a call of the store.
	callTimeout = 5 * time.Second
)

// New begins to work. What is missed before it is made up for by [Service.Sweep].
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.StartDeadline = cmp.Or(o.StartDeadline, defaultDeadline)
	o.GraceWindow = cmp.Or(o.GraceWindow, defaultGrace)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, defaultAttempts)
	s := &Service{o: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.looks.init()
	s.sweeps.wake = make(chan struct{}, 1)
	s.starter.wake = make(chan struct{}, 1)
	s.workers.wake = make(chan struct{}, 1)
	s.stops = []func(){o.Presence.Listen(kindQueued, func(presence.Notice) { s.starter.signal() })}
	o.Registry.OnChange(func() { s.Sweep() })
	s.wg.Go(s.runLooks)
	s.wg.Go(s.runSweeps)
	s.wg.Go(s.runStarts)
	s.wg.Go(s.runOrphans)
	s.wg.Go(s.runWorkers)
	s.wg.Go(s.runUntaken)
	return s
}

// Stats returns the counters.
func (s *Service) Stats() *Stats { return &s.stats }

// Close ends the work. All sessions must have ended. Of nil it does nothing.
func (s *Service) Close() {
	if s == nil {
		return
	}
	for _, stop := range s.stops {
		stop()
	}
	s.o.Registry.OnChange(nil)
	s.storeEnds()
	s.ending.Lock()
	s.closed = true
	s.ending.Unlock()
	s.cancel()
	s.wg.Wait()
}

// spawn runs f in a goroutine that Close waits for, unless that is over.
func (s *Service) spawn(f func()) {
	s.ending.RLock()
	defer s.ending.RUnlock()
	if !s.closed {
		s.wg.Go(f)
	}
}

// every calls f again and again, and when wake says so, until the service ends.
func (s *Service) every(interval time.Duration, wake <-chan struct{}, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
		f()
	}
}

// call is a context for one call of the store.
func (s *Service) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, callTimeout)
}

// elected reports whether this gateway does what one of them has to do. For a
// moment two may: what they do is guarded.
func (s *Service) elected() bool {
	list, certain := s.o.Presence.Instances()
	if !certain {
		return false
	}
	self := s.o.Presence.Self().ID
	for _, i := range list {
		if i.ID < self {
			return false
		}
	}
	return true
}

func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
