package grants

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// Presence says who is connected.
type Presence interface {
	// Held is that of [presence.Directory].
	Held(name string) (held, certain bool)
	// Find is that of [presence.Registry].
	Find(ctx context.Context, sessionID string) (presence.Holding, error)
}

// Options configure [New]. Store, Decide, Members and Presence are required.
type Options struct {
	Store store.Grants
	// Feed says when the copy is to be refreshed; nil: once a second.
	Feed store.Feed
	// Decide says whether a principal may send to an address by itself; Rules
	// are those of operators, Members who is in which workspace. They answer from
	// memory.
	Decide   func(p *acl.Principal, to address.Address) acl.Decision
	Rules    acl.Rules
	Members  acl.Members
	Presence Presence
	// Revoked says whether the credential that a grant was made with counts no
	// more, used for an identity; nil: all count. It answers from memory.
	Revoked func(p *Proof, identity string) bool
	// TaskOver reports whether a task has ended, or does not exist; nil: none is
	// looked after.
	TaskOver func(ctx context.Context, id string) (bool, error)
	Audit    *audit.Recorder // nil records nothing
	Logger   *slog.Logger
	Now      func() time.Time

	// MaxPerSubject is how many grants of one subject there may be, ended ones
	// of the last hour included; default 1000.
	MaxPerSubject int
	// Lifetime is how long a grant is good that does not say; default an hour.
	// MaxLifetime is how long one may be good, renewals included; default 30
	// days.
	Lifetime, MaxLifetime time.Duration
}

// Service is the grants of this gateway. All methods are safe for concurrent
// use. It must be closed.
type Service struct {
	o     Options
	copy  *mirror.Copy
	book  book
	looks *mirror.Looks

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	jobs      []func(context.Context) // at most maxJobs: what is beyond is left to the sweep
	wake      chan struct{}
	onRevoked func([]Revoked)
}

const maxJobs = 1024

// New begins to keep the copy.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxPerSubject <= 0 {
		o.MaxPerSubject = 1000
	}
	if o.Lifetime <= 0 {
		o.Lifetime = time.Hour
	}
	if o.MaxLifetime <= 0 {
		o.MaxLifetime = 30 * 24 * time.Hour
	}
	s := &Service{o: o, wake: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.looks = mirror.NewLooks(lookPause, s.refresh)
	s.copy = mirror.Keep(mirror.Options{
		Name: "grants", Feed: o.Feed, Subjects: []store.Subject{store.SubjectGrants}, Refresh: s.refresh, Logger: o.Logger,
	})
	s.wg.Go(s.run)
	return s
}

// Known is closed when the copy has been made for the first time.
func (s *Service) Known() <-chan struct{} { return s.copy.Known() }

// Close ends the upkeep. The store stays its owner's. Of nil it does nothing.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.looks.Close()
	s.cancel()
	s.copy.Close()
	s.wg.Wait()
}

// Revoked is a grant that was revoked, for those whom it concerns.
type Revoked struct {
	ID, RootID, Reason string
	At                 time.Time
	// Subject and Delegate point at principals as a client's references do, a
	// bare user id at all windows; Session is the one to which it was bound.
	Subject, Delegate, Session string
}

// OnRevoked sets what is called, by one goroutine at a time and soon after, when
// grants were revoked that held as far as this gateway knew. It must not block.
func (s *Service) OnRevoked(f func([]Revoked)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRevoked = f
}

func (s *Service) tellRevoked(list []*held) {
	s.mu.Lock()
	f := s.onRevoked
	s.mu.Unlock()
	if f == nil {
		return
	}
	told := make([]Revoked, 0, len(list))
	for _, h := range list {
		r := Revoked{ID: h.ID, RootID: h.RootID, Reason: h.RevokeReason, At: h.RevokedAt, Subject: h.SubjectID, Delegate: h.DelegateID}
		if h.AudienceType == audienceSession {
			r.Session = h.AudienceID
		}
		told = append(told, r)
	}
	f(told)
}

// later has something done that needs the store and for which nobody waits.
func (s *Service) later(job func(context.Context)) {
	s.mu.Lock()
	if len(s.jobs) < maxJobs {
		s.jobs = append(s.jobs, job)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	sweepInterval = 15 * time.Second
	jobTimeout    = 5 * time.Second
	// expireEvery sweeps the store is rid of what ended keepEnded ago.
	expireEvery = 240
	keepEnded   = 7 * 24 * time.Hour
)

// run does what waits, and from time to time looks after the rest.
func (s *Service) run() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for n := 1; ; {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			s.work()
		case <-tick.C:
			s.sweep()
			if n++; n%expireEvery == 0 {
				s.expire()
			}
		}
	}
}

func (s *Service) work() {
	s.mu.Lock()
	jobs := s.jobs
	s.jobs = nil
	s.mu.Unlock()
	for _, job := range jobs {
		s.bounded(job)
	}
}

func (s *Service) bounded(job func(context.Context)) {
	ctx, cancel := context.WithTimeout(s.ctx, jobTimeout)
	defer cancel()
	job(ctx)
}

func (s *Service) expire() {
	s.bounded(func(ctx context.Context) {
		if _, err := s.o.Store.ExpireGrants(ctx, s.o.Now().Add(-keepEnded)); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("old grants could not be removed; it is tried again in an hour", "error", err)
		}
	})
}

// sweep makes up for what a gateway that died, or a store that was away, has left
// undone: grants of sessions that are over, and of credentials that were
// revoked.
func (s *Service) sweep() {
	s.Recheck()
	s.sweepTasks()
	s.book.mu.RLock()
	sessions := slices.Collect(maps.Keys(s.book.bound))
	s.book.mu.RUnlock()
	for _, id := range sessions {
		s.bounded(func(ctx context.Context) {
			at, err := s.o.Presence.Find(ctx, id)
			if errors.Is(err, presence.ErrNotFound) || err == nil && (at.Ended || at.SessionID != id) {
				s.endSession(ctx, id)
			}
		})
	}
}

// SessionEnded ends the grants that were to last as long as a session. It returns
// at once.
func (s *Service) SessionEnded(id string) {
	if s == nil {
		return
	}
	s.book.mu.RLock()
	_, bound := s.book.bound[id]
	s.book.mu.RUnlock()
	if bound {
		s.later(func(ctx context.Context) { s.endSession(ctx, id) })
	}
}

func (s *Service) endSession(ctx context.Context, id string) {
	s.book.mu.RLock()
	gone := slices.Collect(maps.Keys(s.book.bound[id]))
	s.book.mu.RUnlock()
	s.revokeAll(ctx, gone, "its session has ended")
}
