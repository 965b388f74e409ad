package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/claims"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/delivery/route"
	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/wiring"
)

const (
	defaultMaxPayload = 1_000_000
	defaultRingBytes  = 16 << 20
	// defaultPublishTimeout is the writer's too.
	defaultPublishTimeout = 5 * time.Second
	// publishLinger lets a message be on its way to its receiver before the
	// log is woken.
	publishLinger = 50 * time.Microsecond

	commitInterval = time.Second
	markInterval   = time.Second
	// tailTimeout is how long the tail may lag behind what is confirmed
	// before it is opened anew.
	tailTimeout = 5 * time.Second
	// lagTolerance is how long it may before the log counts as unavailable.
	lagTolerance = 2 * time.Second
)

// Store is what a router needs of the store.
type Store interface {
	store.Positions
	store.Notes
	store.Marks
}

// Options configure a [Router]. Driver, Placement and Positions are required.
type Options struct {
	Driver    streams.Driver
	Placement streams.Placement
	Positions Store
	// Presence is this gateway among its peers: who is held, and notices. Nil:
	// it has none. If it is a [claims.Claims] as well, workers of several
	// gateways compete.
	Presence presence.Gateway
	// Boot identifies this process; default: drawn.
	Boot Boot
	// Members keeps which users are in which workspaces. Nil: what this
	// process learns is all there is.
	Members store.Members
	// Workspaces keeps which workspaces there are. Nil: all exist.
	Workspaces store.Workspaces
	// AutoCreate lets a workspace exist as soon as it is named.
	AutoCreate bool
	// Feed says when the store's copies here are to be refreshed; nil: they are
	// once a second.
	Feed store.Feed
	// Rules keeps the rules of operators. Nil: there are none.
	Rules store.Rules
	// MaxRules is how many rules there may be; default
	// [policy.DefaultLimit].
	MaxRules int
	Logger   *slog.Logger
	// Now is the wall clock; default [time.Now].
	Now func() time.Time
	// MaxPayload is the largest payload in bytes; default 1,000,000.
	MaxPayload int
	// RingBytes is how much of each partition's recent log is kept in memory;
	// default 16 MiB.
	RingBytes int
	// Retention is how long the log keeps what is stored; 0 is without end. What
	// the store keeps of addresses and sessions goes with it.
	Retention time.Duration
	// MaxInFlight is how many tracked sends of a session may be without an outcome;
	// default 1024.
	MaxInFlight int
	// PublishTimeout is how long a send may be without an outcome; default
	// 5 s.
	PublishTimeout time.Duration
	// ByteQuota is how many bytes a workspace may have in the log, AddressQuota
	// for how many of its addresses the store keeps something; 0 is no limit.
	ByteQuota    int64
	AddressQuota int
	// Routes are what is forwarded; without faults (see [wiring.JudgeRoutes]).
	Routes []wiring.Route
	// Tracer makes spans of messages; nil: none are made.
	Tracer *tracing.Tracer
	// Topics says what is declared of addresses; nil: nothing.
	Topics *wiring.Table
	// Stored keeps how many bytes there are; nil: only what comes is counted.
	Stored store.Stored

	// Shared bounds what waits of shared addresses.
	Shared Shared

	lookbackTime time.Duration // for tests
}

// Shared bounds what waits of shared addresses (runtime rules 3 and 4). Zero
// values are the defaults of packages ring and route.
type Shared struct {
	// RingMessages and RingBytes bound the ring of each address.
	RingMessages, RingBytes int
	// RouteMessages bounds what waits of one principal in a route, RouteBytes a
	// route, RoutePrincipals how many have a turn of their own there.
	RouteMessages, RouteBytes, RoutePrincipals int
}

// Router moves messages. All methods are safe for concurrent use.
type Router struct {
	driver     streams.Driver
	placement  streams.Placement
	positions  Store
	log        *slog.Logger
	now        func() time.Time
	maxPayload int
	shared     Shared
	rings      ring.Counters
	routes     route.Counters
	origin     uint64
	// publishTimeout is how long a send may wait to be published, and then for
	// its outcome.
	publishTimeout time.Duration
	lookbackTime   time.Duration
	parts          []*partition
	presence       presence.Gateway
	fencing        fencing
	claimer        *claimer // nil if no other gateway can be
	members        *Members
	spaces         *Spaces
	copies         []*mirror.Copy // of what the store keeps
	rules          *policy.Book
	authorities    Authorities // nil: nobody acts for another
	stats          Stats
	repeats        repeats
	notes          notesWriter
	starter        atomic.Pointer[Starter] // nil: nobody is started
	quotas         quotas
	forwarder      *forwarder    // nil: there are no routes
	topics         *wiring.Table // nil: nothing is declared
	tracer         *tracing.Tracer
	// noteValid is how long a note that was stored counts, noteTimeout how long
	// a statement may take, noteLimit how long a send waits for a note.
	noteValid, noteTimeout, noteLimit time.Duration
	cleanWindow                       time.Duration
	linger                            time.Duration // of a pass of readers
	retention                         time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	onLoss  func(Loss)
	subs    map[*Subscription]struct{}
	unready int
	ready   chan struct{}
	// observers is how many there are.
	observers int

	fingerprint    string // of the placement
	misplaced      chan struct{}
	placementError atomic.Pointer[PlacementError]

	fetching    chan struct{}
	scanning    chan struct{} // one of each scan of the log
	finding     sync.Mutex    // held by the one that searches what is in memory
	refusals    refusals
	dead        *deadLetters
	polls       *polls // of tracked sends
	maxInFlight int    // of a session
	// addressees are whom progress may be addressed to.
	addressees addressees
}

// New starts a router: a writer and a tail for every partition, which connect
// in the background. See [Router.Ready].
func New(o Options) *Router {
	r := &Router{
		tracer: o.Tracer, driver: o.Driver, placement: o.Placement, positions: o.Positions, log: o.Logger, now: o.Now,
		maxPayload: o.MaxPayload, shared: o.Shared, subs: map[*Subscription]struct{}{},
		unready: o.Placement.Count() + 1, ready: make(chan struct{}), fetching: make(chan struct{}, 4),
		scanning: make(chan struct{}, maxScans),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.maxPayload <= 0 {
		r.maxPayload = defaultMaxPayload
	}
	if o.RingBytes <= 0 {
		o.RingBytes = defaultRingBytes
	}
	if o.PublishTimeout <= 0 {
		o.PublishTimeout = defaultPublishTimeout
	}
	r.fingerprint, r.misplaced = o.Placement.Fingerprint(), make(chan struct{})
	r.publishTimeout = o.PublishTimeout
	r.lookbackTime = cmp.Or(o.lookbackTime, lookbackTime)
	r.notes = notesWriter{r: r, wake: make(chan struct{}, 1)}
	r.noteValid = noteValidFor(o.Presence)
	r.noteTimeout, r.noteLimit = noteTimes(o.PublishTimeout)
	r.linger = readerLinger
	r.cleanWindow, r.retention = cleanWindow(o.PublishTimeout), o.Retention
	r.spaces = newSpaces(o.Workspaces, o.AutoCreate)
	r.spaces.revived, r.spaces.lost = r.forgetWorkspace, func(name string) { r.loss(Loss{Workspace: name}) }
	r.members = newMembers(r.now, o.Members, r.spaces)
	r.members.lost = func(user, name string) { r.loss(Loss{User: user, Workspace: name}) }
	r.rules = policy.NewBook(o.Rules, o.MaxRules)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if o.Boot == 0 {
		o.Boot = NewBoot()
	}
	r.origin, r.presence = uint64(o.Boot), o.Presence
	if shared, ok := o.Presence.(claims.Claims); ok {
		r.claimer = newClaimer(r, shared, o.Presence.Self().ID)
	}
	r.maxInFlight = cmp.Or(o.MaxInFlight, maxInFlight)
	r.polls = newPolls(r)
	name := "gw-" + o.Boot.String()
	r.dead = newDeadLetters(r, o, name)
	r.openQuotas(o)
	for i := range o.Placement.Count() {
		r.parts = append(r.parts, r.newPartition(i, name, o))
	}
	for _, p := range r.parts {
		p.start(o)
	}
	r.spawn(r.run)
	r.keepCopies(o)
	r.spawn(r.checkFirst)
	r.spawn(r.commitAll)
	r.spawn(r.notes.run)
	r.spawn(r.polls.run)
	r.spawn(r.lookAfterStore)
	r.spawn(r.countNames)
	if r.quotas.usage != nil {
		r.spawn(r.quotas.usage.Run)
	}
	if r.claimer != nil {
		r.spawn(r.claimer.run)
	}
	r.topics = o.Topics
	if len(o.Routes) > 0 {
		r.forwarder = r.forward(o.Routes)
	}
	return r
}

func (r *Router) newPartition(id int, name string, o Options) *partition {
	p := &partition{r: r, id: id, tailAt: none, targets: map[string]*target{}, unknown: map[uint64]struct{}{}}
	p.recent.limit = o.RingBytes
	p.ids.limit = max(maxIDs/o.Placement.Count(), leastIDs)
	p.reader.p = p
	if r.quotas.usage != nil {
		p.usage = r.quotas.usage.Partition(id)
	}
	p.writer = streams.NewWriter(streams.WriterOptions[pending]{
		Driver: o.Driver, Partition: id, Name: name, Logger: r.log, Timeout: o.PublishTimeout,
		Linger:  publishLinger,
		Settled: p.settled, Follows: follows, FollowsKey: followsKey, Voided: r.voided,
	})
	return p
}

func (p *partition) start(o Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = streams.NewTail(streams.TailOptions{
		Driver: o.Driver, Partition: p.id, Start: p.lookback(), Handle: p.handle, Up: p.up, Down: p.down, Rewritten: p.rewritten,
		Logger: p.r.log,
	})
}

// spawn runs f in a goroutine that Close waits for. It reports false if the
// router is closed.
func (r *Router) spawn(f func(context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(func() { f(r.ctx) })
	return true
}

func (r *Router) nowMS() int64 { return r.now().UnixMilli() }

// Members returns who is known to be in which workspace.
func (r *Router) Members() *Members { return r.members }

// Spaces returns which workspaces are known to exist.
func (r *Router) Spaces() *Spaces { return r.spaces }

// MaxPayload returns the largest payload in bytes.
func (r *Router) MaxPayload() int { return r.maxPayload }

// Stats returns the router's counters.
func (r *Router) Stats() *Stats { return &r.stats }

// partReady is called once by each partition, when the copies of the store
// are known, and when the placement has been compared.
func (r *Router) partReady() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unready--
	if r.unready == 0 && r.placementError.Load() == nil {
		close(r.ready)
	}
}

// Ready is closed when every partition has been written to and read once.
// Before that nobody can be served.
func (r *Router) Ready() <-chan struct{} { return r.ready }

// commitAll commits positions about once a second. It has a goroutine of its
// own, so that a store that hangs delays positions only.
func (r *Router) commitAll(ctx context.Context) {
	tick := time.NewTicker(commitInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.commit(ctx)
		}
	}
}

// keepCopies begins to keep the router's copies of the store up to date. It is
// ready when all are known. The placement has yet to be compared.
func (r *Router) keepCopies(o Options) {
	keep := func(name string, refresh func(context.Context) error, subjects ...store.Subject) {
		c := mirror.Keep(mirror.Options{Name: name, Feed: o.Feed, Subjects: subjects, Refresh: refresh, Logger: r.log})
		r.copies = append(r.copies, c)
		r.mu.Lock()
		r.unready++
		r.mu.Unlock()
		r.spawn(func(ctx context.Context) {
			select {
			case <-c.Known():
				r.partReady()
			case <-ctx.Done():
			}
		})
	}
	keep("members", r.members.refresh, store.SubjectMembers)
	keep("rules", r.refreshRules(), store.SubjectRules)
	keep("workspaces", r.spaces.refresh, store.SubjectWorkspaces)
}

// run looks after the partitions.
func (r *Router) run(ctx context.Context) {
	tick := time.NewTicker(markInterval)
	defer tick.Stop()
	overdue := time.NewTicker(lineCheckInterval)
	defer overdue.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-overdue.C:
			for _, p := range r.parts {
				p.refuseOverdue(r.now())
			}
			continue
		case <-tick.C:
		}
		for _, p := range r.parts {
			p.tick(r.now())
		}
		if n%60 == 0 {
			r.members.forget()
			for _, p := range r.parts {
				p.tidyGroups(r.now())
				p.tidyAbsences(r.now())
			}
		}
		n++
	}
}

// commitTimeout bounds one round of commits.
const commitTimeout = 5 * time.Second

func (r *Router) subscriptions() []*Subscription {
	r.mu.Lock()
	defer r.mu.Unlock()
	subs := make([]*Subscription, 0, len(r.subs))
	for s := range r.subs {
		subs = append(subs, s)
	}
	return subs
}

// commit stores the positions that moved, in one statement.
func (r *Router) commit(ctx context.Context) {
	subs := r.subscriptions()
	r.lowerPositions(ctx, subs...)
	var list []store.Commit
	for _, s := range subs {
		due := s.commits()
		list = append(list, due...)
		if len(due) > 0 || s.handedMore() {
			s.keepMark()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	defer r.deleteNotes(ctx, subs)
	if len(list) == 0 {
		return
	}
	if err := r.positions.Commit(ctx, list); err != nil {
		r.stats.CommitFailures.Add(1)
		r.log.Warn("positions could not be committed; they are tried again with the next ones", "positions", len(list), "error", err)
		for _, s := range subs {
			s.uncommitted()
		}
		return
	}
	for _, s := range subs {
		s.committed()
	}
	r.stats.Commits.Add(uint64(len(list)))
}

func (s *Subscription) committed() {
	for _, in := range s.inboxes {
		in.Committed()
	}
}

// uncommitted makes all positions due again after a failed commit.
func (s *Subscription) uncommitted() {
	for _, in := range s.inboxes {
		in.Uncommitted()
	}
}

func (r *Router) register(s *Subscription) {
	r.mu.Lock()
	r.subs[s] = struct{}{}
	r.mu.Unlock()
}

func (r *Router) unregister(s *Subscription) {
	r.mu.Lock()
	delete(r.subs, s)
	r.mu.Unlock()
}

// Close stops the router: what was appended is stored if ctx allows it. All
// sessions must have ended.
func (r *Router) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	if r.forwarder != nil {
		r.forwarder.stop(ctx)
	}
	for _, p := range r.parts {
		p.mu.Lock()
		p.refuseAll(nil)
		p.mu.Unlock()
	}
	var errs []error
	for _, p := range r.parts {
		errs = append(errs, p.writer.Close(ctx))
	}
	errs = append(errs, r.dead.close(ctx))
	r.cancel()
	for _, c := range r.copies {
		c.Close()
	}
	for _, p := range r.parts {
		p.tail.Close()
	}
	r.wg.Wait()
	if r.quotas.usage != nil {
		errs = append(errs, r.quotas.usage.Save(ctx))
	}
	return errors.Join(errs...)
}
