package task

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Router is what tasks need of the message path.
type Router interface {
	// Decide says whether a principal may send to an address.
	Decide(p *acl.Principal, to address.Address) acl.Decision
	// Notify publishes progress that the gateway itself makes. stored, if it is not
	// nil, is called when the log has it, which it may never; it does not block.
	Notify(u *aetherv1.ProgressUpdate, stored func()) error
	MaxPayload() int
}

// Peers asks other gateways.
type Peers interface {
	Handle(kind string, f peers.Answerer)
	Ask(ctx context.Context, to, kind string, question []byte) ([]byte, error)
	AskAll(ctx context.Context, kind string, question []byte) (answers []peers.Answer, certain bool)
}

// Presence says who is connected where, and tells other gateways.
type Presence interface {
	presence.Directory
	presence.Notices
}

// Starter starts identities that are not connected. Its methods do not block.
// Tasks with Launch set are its own: from queued on it moves them, by
// [Service.Change].
type Starter interface {
	// Launchable reports whether there is a way to start workers of an
	// implementation in a workspace.
	Launchable(workspace, implementation string) bool
	// CheckOverrides refuses launch parameters that nobody may set.
	CheckOverrides(workspace, implementation string, overrides map[string]string) error
	// Launch says that a task is queued that is to start its identity.
	Launch(t store.Task)
	// Due says that such a task is due; Lost that the gateway that held it lives
	// no longer. Both are called on one gateway at a time, and may be repeated.
	Due(ctx context.Context, t store.Task)
	Lost(ctx context.Context, t store.Task)
}

// Grants says on whose behalf somebody creates a task.
type Grants interface {
	// ForTask checks the authority that a request names, and derives that of
	// the task.
	ForTask(ctx context.Context, c *Caller, a *aetherv1.AuthorizationContext, t *store.Task, to address.Address) (store.TaskGrant, *wireerr.Error)
	// AssignTask gives the grant of a task to who works on it from now on;
	// EndTask takes it back. Both may be repeated.
	AssignTask(ctx context.Context, task, identity string) error
	EndTask(ctx context.Context, task string) error
}

// Options configure a [Service]. Store, Router, Peers and Presence are required.
type Options struct {
	Store    store.Tasks
	Router   Router
	Rules    acl.Rules // nil: there are none
	Peers    Peers
	Presence Presence
	// Exists reports whether a workspace exists; nil: all do.
	Exists func(workspace string) bool
	// Starter starts who is not connected; nil: nobody is started.
	Starter Starter
	// Grants checks authority; nil: nobody acts for another.
	Grants Grants
	// NewToken draws a task token and its hash; nil: there are none.
	NewToken func() (token, hash string)
	Audit    *audit.Recorder // nil records nothing
	Logger   *slog.Logger
	Now      func() time.Time

	// Grace is how long a worker whose session has ended may take to come back;
	// default 30 s.
	Grace time.Duration
	// StartDeadline is how long the worker of a token may take to connect;
	// default 60 s.
	StartDeadline time.Duration
	// Retention is how long tasks that have ended are kept, and how long one
	// waits for a worker before it fails; default 7 days.
	Retention time.Duration
	// MaxOpen is how many tasks of a workspace there may be that have not ended;
	// default 100,000.
	MaxOpen int
	// Sweep is how often one gateway looks for what is due; default 1 s.
	Sweep time.Duration
}

func (o Options) withDefaults() Options {
	setDefault(&o.Now, time.Now, o.Now == nil)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler), o.Logger == nil)
	setDefault(&o.Exists, func(string) bool { return true }, o.Exists == nil)
	setDefault(&o.Grace, 30*time.Second, o.Grace <= 0)
	setDefault(&o.StartDeadline, time.Minute, o.StartDeadline <= 0)
	setDefault(&o.Retention, 7*24*time.Hour, o.Retention <= 0)
	setDefault(&o.MaxOpen, 100_000, o.MaxOpen <= 0)
	setDefault(&o.Sweep, time.Second, o.Sweep <= 0)
	return o
}

func setDefault[T any](field *T, value T, unset bool) {
	if unset {
		*field = value
	}
}

// Service is the tasks of a gateway. All methods are safe for concurrent use. It
// must be closed.
type Service struct {
	o      Options
	stats  Stats
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	stops  []func()
	parts  atomic.Pointer[parts]

	workers workers
	chores  chores
	beats   beats
	reports reports
	told    told
	open    openTasks
	subs    subscriptions
}

// New returns a service that runs until it is closed.
func New(o Options) *Service {
	s := &Service{o: o.withDefaults()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.parts.Store(&parts{s.o.Starter, s.o.Grants})
	s.workers.init()
	s.chores.init(s)
	s.subs.init()
	s.o.Peers.Handle(kindWilling, s.answerWilling)
	s.o.Peers.Handle(kindHand, s.answerHand)
	s.stops = append(s.stops, s.o.Presence.Listen(kindChanged, s.heard), s.o.Presence.Listen(kindReported, s.heardReport))
	s.wg.Go(s.tick)
	return s
}

// parts are what may come after the service itself.
type parts struct {
	starter Starter
	grants  Grants
}

// Use sets who starts identities and who checks authority, where they need the
// service themselves; nil leaves what is there. What is under way meanwhile sees
// both or neither.
func (s *Service) Use(starter Starter, grants Grants) {
	for {
		old := s.parts.Load()
		next := *old
		setDefault(&next.starter, starter, starter != nil)
		setDefault(&next.grants, grants, grants != nil)
		if s.parts.CompareAndSwap(old, &next) {
			return
		}
	}
}

// starter is nil if nobody is started, grants if nobody acts for another.
func (s *Service) starter() Starter { return s.parts.Load().starter }
func (s *Service) grants() Grants   { return s.parts.Load().grants }

// Close stops the service, and waits for what it does. Sessions have ended.
func (s *Service) Close() {
	for _, stop := range s.stops {
		stop()
	}
	s.cancel()
	s.chores.close()
	s.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	s.writeBeats(ctx)
	s.writeTold(ctx)
}

// storeTimeout bounds what is done outside of a request.
const storeTimeout = 5 * time.Second

// maxRaces is how often a change is decided anew because another one was first.
const maxRaces = 12

// Change moves a task: decide changes what it is given, as [Move] does, and is
// called again with what is there then if another change was first. Its error is
// returned as it is, and nothing changes; [ErrUnchanged] is no error. When the
// change is stored, its creator is told, subscribers are, and what waits for the
// task goes on. [store.ErrNotFound]: there is no such task.
func (s *Service) Change(ctx context.Context, id string, decide func(t *store.Task) error) (store.Task, error) {
	for range maxRaces {
		before, ok, err := s.o.Store.Task(ctx, id)
		if err != nil {
			return store.Task{}, err
		}
		if !ok {
			return store.Task{}, store.ErrNotFound
		}
		after := before
		switch err := decide(&after); {
		case errors.Is(err, ErrUnchanged):
			return before, nil
		case err != nil:
			return before, err
		}
		news := worthTelling(&before, &after)
		if !news && s.knows(&before) {
			after.Told = before.Rev + 1
		}
		stored, done, err := s.o.Store.UpdateTask(ctx, after)
		if err != nil {
			return before, err
		}
		if done {
			s.changed(&before, &stored, news)
			return stored, nil
		}
		s.stats.Races.Add(1)
	}
	return store.Task{}, errBusy
}

// errBusy is the end of a change that always came second.
var errBusy = errors.New("task: it is changed by others all the time")

// Create stores a task, with its id and times; of an idempotent one, or a launch
// that is active, the one that is there is returned.
func (s *Service) Create(ctx context.Context, t store.Task) (store.Task, bool, error) {
	if t.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return store.Task{}, false, err
		}
		t.ID = id.String()
	}
	now := s.o.Now()
	if t.CreatedAt.IsZero() {
		t.CreatedAt = now
	}
	t.ChangedAt = now
	if t.State == "" {
		t.State = store.TaskQueued
	}
	if t.RootID == "" {
		t.RootID = t.ID
	}
	t.MaxAttempts, t.Attempt = max(t.MaxAttempts, 1), max(t.Attempt, 1)
	t.Told = 1 // a creator knows of the creation
	stored, created, err := s.o.Store.CreateTask(ctx, t)
	if err == nil && created {
		s.stats.Created.Add(1)
		s.open.add(t.Workspace)
		s.publish(nil, &stored)
	}
	return stored, created, err
}

// changed does what follows a stored change. It does not block.
func (s *Service) changed(before, after *store.Task, news bool) {
	s.stats.count(before, after)
	s.passGrant(before, after)
	if news {
		s.tell(before, after)
	}
	s.tellWorker(before, after)
	s.publish(before, after)
	if before.State == after.State && before.Attempt == after.Attempt {
		return
	}
	s.workers.settle(before, after)
	switch {
	case after.State.Over():
		s.recordEnd(before, after)
		if after.State == store.TaskFailed && before.Launch != "" && (after.Mode == store.TaskStart || before.State != store.TaskRunning) {
			s.o.Logger.Warn("a start has failed", "task", after.ID, "identity", before.Launch, "attempts", after.Attempt, "reason", after.Reason)
		}
		s.open.drop(after.Workspace)
		s.chores.add(chore{kind: choreWake, id: after.ID})
		if after.Mode == store.TaskStart && after.State == store.TaskFailed {
			s.chores.add(chore{kind: choreStranded, id: after.Target, why: after.Reason})
		}
		if after.Launch != "" { // others of the identity may have waited for it
			s.chores.add(chore{kind: choreTarget, id: after.Target})
		}
	case after.State == store.TaskQueued && after.DueAt.IsZero():
		s.queue(after)
	}
	if before.AssignedTo != "" && after.AssignedTo != before.AssignedTo || after.State.Over() {
		s.refill(before)
	}
}

// queue sees to it that a task that waits for a worker is handed out.
func (s *Service) queue(t *store.Task) {
	switch {
	case t.Launch != "":
		if s.starter() != nil {
			s.starter().Launch(*t)
		}
	case t.Mode == store.TaskPool:
		s.chores.add(chore{kind: chorePool, pool: store.Pool{Workspace: t.Workspace, Implementation: t.Implementation}})
	case t.Mode == store.TaskTargeted:
		s.chores.add(chore{kind: choreTarget, id: t.Target})
	case t.Mode == store.TaskSelf:
		s.chores.add(chore{kind: choreSelf, id: t.ID})
	}
}

// takeSelf gives a task back to its creator, whose work it is.
func (s *Service) takeSelf(ctx context.Context, id string) {
	_, err := s.Change(ctx, id, func(t *store.Task) error {
		if t.Mode != store.TaskSelf || t.State != store.TaskQueued || !t.DueAt.IsZero() {
			return ErrUnchanged
		}
		if err := Move(t, Assign, t.Reason, s.o.Now()); err != nil {
			return err
		}
		t.AssignedTo = t.Creator
		return nil
	})
	s.troubled("a task could not be given back to its creator", err)
}

// troubled logs what could not be done and is tried again by a sweep.
func (s *Service) troubled(what string, err error) {
	if err == nil || errors.Is(err, ErrImpossible) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrActive) {
		return // somebody else was first
	}
	if s.ctx.Err() == nil {
		s.o.Logger.Warn(what, "error", err)
	}
}

// fail ends an attempt, see [FailOrRetry].
func (s *Service) fail(t *store.Task, why string) error {
	return FailOrRetry(t, why, s.o.Now(), rand.Float64())
}

// recordEnd records in the audit how a task ended that somebody else was to do.
func (s *Service) recordEnd(before, after *store.Task) {
	s.o.Audit.Record(audit.Event{
		Kind: audit.Task, Actor: cmpOr(before.AssignedTo, after.Creator), Action: "task " + string(after.State), Target: after.ID,
		Outcome: audit.OK, Detail: after.Reason,
	})
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
