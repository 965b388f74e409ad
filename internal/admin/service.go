package admin

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/subject"
	"github.com/aether-gateway/gateway/internal/where"
)

// Sessions are those of this gateway.
type Sessions interface {
	// List returns up to limit sessions in the order of their keys, and
	// whether there are more.
	List(f session.Filter, limit int) (list []session.Info, more bool)
	// Kick ends the sessions with an id or an identity, and returns them.
	Kick(target, reason string) []session.Info
}

// Router shows what passes.
type Router interface {
	// Observe begins to observe what a filter takes of an address; stop ends it.
	Observe(a address.Address, filter *subject.Filter) (o *router.Observer, stop func(), err error)
	Peek(ctx context.Context, a address.Address, behind int64, limit int) (list []router.Unread, more, whole bool, err error)
	PositionSince(ctx context.Context, a address.Address, since time.Time) (position uint64, ok bool, err error)
	Rates() map[string]float64
	Backlogs(ctx context.Context, list []address.Address) (map[string]router.Backlog, error)
	PassOver(ctx context.Context, a address.Address, lease presence.Lease, to *uint64) (first, last uint64, err error)
	Replay(ctx context.Context, a address.Address, lease presence.Lease, from uint64) error
	DeadLetters(ctx context.Context, from uint64, limit int, f router.DeadLetterFilter) (list []router.DeadLetter, next uint64, err error)
	ReplayDeadLetter(ctx context.Context, position uint64) (messageID string, err error)
	PurgeDeadLetters(ctx context.Context, from, to uint64) (n int, err error)
}

// Leases are taken while an operator moves somebody's mail.
type Leases interface {
	Acquire(ctx context.Context, sessionID string, names ...string) (presence.Lease, error)
	Release(ctx context.Context, lease presence.Lease) error
	// Holder returns the session that holds a name, as far as is known.
	Holder(name string) (sessionID string, held bool)
}

// Options configure a [Service]. Sessions, Router, Leases, Rules, Spaces, Members, Finder
// and Peers are required.
type Options struct {
	Sessions Sessions
	Router   Router
	Leases   Leases
	// Mailboxes lists whose mail is kept; nil: only what was sent to lately is
	// listed.
	Mailboxes store.Mailboxes
	Rules     Rules
	Spaces    Spaces
	// Tasks are those of all clients; nil: there are none.
	Tasks Tasks
	// Grants keeps who may act for whom; nil: nobody does.
	Grants Grants
	// Credentials makes and revokes API keys and revokes tokens; nil: this
	// gateway keeps none.
	Credentials Credentials
	// Revoked says whether an operator's credential counts no more; nil: all
	// count until they expire.
	Revoked func(*auth.Credential) error
	Members acl.Members
	// Implementations is the registry of what can be started; nil: this gateway
	// starts nothing.
	Implementations Implementations
	Finder          *where.Finder
	// Name is this gateway's.
	Name  string
	Peers *peers.Peers
	// Audit records what operators do, and Records shows it; nil: nothing is
	// recorded.
	Audit   *audit.Recorder
	Records store.Audit
	Logger  *slog.Logger
	Version string
	Now     func() time.Time
}

// Service implements aether.admin.v1.Admin. It is safe for concurrent use.
type Service struct {
	adminv1.UnimplementedAdminServer
	o     Options
	began time.Time
	// done and failed count what operators did.
	done, failed atomic.Uint64
	// closing ends the streams.
	closing context.Context
	close   context.CancelFunc
}

var _ adminv1.AdminServer = (*Service)(nil)

// New returns the service, and makes this gateway answer others' questions.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Revoked == nil {
		o.Revoked = func(*auth.Credential) error { return nil }
	}
	s := &Service{o: o, began: o.Now()}
	s.closing, s.close = context.WithCancel(context.Background())
	o.Peers.Handle(askSessions, s.answerSessions)
	o.Peers.Handle(askKick, s.answerKick)
	return s
}

// Close ends the streams of operators. Calls that run go on.
func (s *Service) Close() { s.close() }

// ServerInfo implements the service.
func (s *Service) ServerInfo(context.Context, *adminv1.ServerInfoRequest) (*adminv1.ServerInfoResponse, error) {
	return &adminv1.ServerInfoResponse{
		Version: s.o.Version, Instance: s.o.Name, UptimeMs: s.o.Now().Sub(s.began).Milliseconds(),
	}, nil
}

// Actions returns how many actions of operators were done, and how many failed.
func (s *Service) Actions() (done, failed uint64) { return s.done.Load(), s.failed.Load() }

// acted records what an operator did, or tried to.
func (s *Service) acted(ctx context.Context, kind audit.Kind, action, target string, err error) {
	s.actedOn(ctx, kind, action, target, "", err)
}

// actedOn is acted with a detail of what was done.
func (s *Service) actedOn(ctx context.Context, kind audit.Kind, action, target, detail string, err error) {
	e := audit.Event{Kind: kind, Actor: operatorOf(ctx).Name, Action: action, Target: target, Outcome: audit.OK, Detail: detail}
	if err == nil {
		s.done.Add(1)
	} else {
		s.failed.Add(1)
		st := status.Convert(ended(ctx, err))
		e.Outcome, e.Reason, e.Detail = audit.Failed, st.Code().String(), st.Message()
	}
	s.o.Audit.Record(e)
	s.o.Logger.Info("an operator acted", "operator", e.Actor, "action", action, "target", target, "outcome", e.Outcome)
}
