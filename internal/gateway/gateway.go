// Package gateway is a whole gateway in one value: a router on a log, the
// sessions, and the gRPC server, started and ended in the right order.
//
// It chooses nothing: the log, the store and the keys are given to it by
// cmd/gateway, or by a test.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/aether-gateway/gateway/internal/admin"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/kv"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/orchestrator"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/server"
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/task"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/trust"
	"github.com/aether-gateway/gateway/internal/where"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// Options configure a [Gateway]. Driver, Placement, Positions and Verifier
// are required; what belongs to a part of it has that part's default.
type Options struct {
	Driver    streams.Driver
	Placement streams.Placement
	Positions router.Store
	// Members keeps who is a member of which workspace; nil keeps it in memory
	// only.
	Members store.Members
	// Workspaces keeps which workspaces there are; nil: all exist. AutoCreate
	// lets one exist as soon as it is named.
	Workspaces store.Workspaces
	AutoCreate bool
	// Feed says when copies of what the store keeps are to be refreshed; nil:
	// they are once a second.
	Feed store.Feed
	// Rules keeps the rules of operators; nil: there are none. MaxRules is how
	// many there may be.
	Rules    store.Rules
	MaxRules int
	// Implementations keeps what can be started, and how; nil: nothing can be.
	Implementations store.Implementations
	// StartAttempts is how often a start is tried, and StartBudgets how many there
	// may be within a minute.
	StartAttempts int32
	StartBudgets  orchestrator.Budgets
	Verifier      *auth.Verifier
	// Credentials keeps API keys and what was revoked; nil: there are none, and
	// nothing is.
	Credentials trust.Store
	// Grants keeps who may act for whom; nil: nobody does. GrantLimits are how
	// many there may be of one subject and how long they are good; zero is the
	// default.
	Grants      store.Grants
	GrantLimits GrantLimits
	// Failures slows addresses whose credentials fail; nil slows none.
	Failures *auth.Failures
	// TLS encrypts connections; nil serves in plain text.
	TLS *tls.Config
	// Records keeps the audit; nil records nothing. AuditRetention is how long;
	// 0 is without end.
	Records store.Audit
	// Tasks keeps tasks; nil: there are none.
	Tasks store.Tasks
	// TaskGrace is how long a worker whose session has ended may take to come
	// back, StartDeadline how long one that is started may take to connect, and
	// TaskRetention how long tasks that have ended are kept; 0 is their default.
	TaskGrace, StartDeadline, TaskRetention time.Duration
	AuditRetention                          time.Duration
	// Name is this gateway's, for operators; default: that of its presence.
	Name string
	// Presence is this gateway among its peers; nil: it is alone. The gateway
	// starts it with [Gateway.Join] and closes it.
	Presence presence.Gateway
	// Boot identifies this process; default: drawn. A presence that others see
	// must have it as its id.
	Boot    router.Boot
	Logger  *slog.Logger
	Version string
	// Now is the clock by which credentials expire; default [time.Now].
	Now func() time.Time

	MaxPayload     int
	RingBytes      int
	Shared         router.Shared // what waits of shared addresses
	PublishTimeout time.Duration
	Retention      time.Duration
	// ByteQuota and AddressQuota are what a workspace may keep; 0 is no limit.
	// Stored keeps how many bytes it has; nil: only what comes is counted.
	ByteQuota    int64
	AddressQuota int
	Stored       store.Stored
	// Tracer makes spans of messages; nil: none are made. It stays the caller's.
	Tracer *tracing.Tracer
	// Routes are what is forwarded, Topics what is declared of addresses; none
	// by default.
	Routes []wiring.Route
	Topics []wiring.Topic

	// Keys keeps keys and checkpoints; what of [kv.Options] belongs to the
	// gateway's parts is filled in. Without a store there are none.
	Keys kv.Options

	// Limits are the rates and numbers of sessions; what it needs of the
	// gateway's parts is filled in. The zero value limits nothing.
	Limits limits.Options

	AdmissionRate     int // new sessions per second; 0: no limit
	InitTimeout       time.Duration
	WriteTimeout      time.Duration
	HeartbeatInterval time.Duration
	KeepaliveTime     time.Duration
	KeepaliveTimeout  time.Duration
	MaxUnacked        int
	MaxWindow         int
	QueueBytes        int

	// Workers says who works on which task; nil: there are no tasks.
	Workers session.Workers

	// Reflection serves the gRPC reflection service.
	Reflection bool
}

// GrantLimits bound grants.
type GrantLimits struct {
	PerSubject            int
	Lifetime, MaxLifetime time.Duration
}

const defaultKeepalive = 10 * time.Second

// Gateway is a running gateway.
type Gateway struct {
	Router   *router.Router
	Sessions *session.Manager
	Server   *server.Server
	Presence presence.Gateway
	Peers    *peers.Peers
	Admin    *admin.Service
	Audit    *audit.Recorder // nil if nothing is recorded
	Tasks    *task.Service   // nil without [Options.Tasks]
	Limits   *limits.Limiter // nil: nothing is limited
	// Registry knows what can be started, Orchestration has it started; nil without
	// [Options.Implementations] and [Options.Tasks].
	Registry      *orchestrator.Registry
	Orchestration *orchestrator.Service
	// Grants knows who may act for whom; nil without [Options.Grants].
	Grants *grants.Service
	KV     *kv.Service // nil: there are no keys
	// Trust knows API keys and revocations; nil without [Options.Credentials].
	Trust *trust.Credentials
}

// New starts a gateway's parts; it takes connections with [Gateway.Serve].
func New(o Options) *Gateway {
	if o.Presence == nil {
		o.Presence = local.New(nil)
	}
	if o.KeepaliveTime <= 0 {
		o.KeepaliveTime = defaultKeepalive
	}
	if o.KeepaliveTimeout <= 0 {
		o.KeepaliveTimeout = defaultKeepalive
	}
	g := &Gateway{Presence: o.Presence, Limits: limits.New(withPeers(o))}
	if o.Name == "" {
		o.Name = o.Presence.Self().Name
	}
	if o.Boot == 0 {
		o.Boot = router.NewBoot()
	}
	if o.Records != nil {
		g.Audit = audit.New(audit.Options{
			Store: o.Records, Gateway: o.Name, Origin: o.Boot.String(), Retention: o.AuditRetention, Logger: o.Logger,
		})
	}
	var revocations session.Revocations
	var operators admin.Verifier = o.Verifier
	if o.Credentials != nil {
		g.Trust = trust.Keep(trust.Options{Store: o.Credentials, Feed: o.Feed, Logger: o.Logger, Now: o.Now})
		o.Verifier, revocations = o.Verifier.WithAPIKeys(g.Trust), g.Trust
		operators = trust.Operators{Verifier: o.Verifier, Trust: g.Trust}
	}
	g.Router = router.New(router.Options{
		Driver: o.Driver, Placement: o.Placement, Positions: o.Positions, Members: o.Members, Feed: o.Feed, Rules: o.Rules, MaxRules: o.MaxRules, Logger: o.Logger,
		Workspaces: o.Workspaces, AutoCreate: o.AutoCreate,
		Presence: o.Presence, Boot: o.Boot,
		MaxPayload: o.MaxPayload, RingBytes: o.RingBytes, Shared: o.Shared, PublishTimeout: o.PublishTimeout,
		Retention: o.Retention, ByteQuota: o.ByteQuota, AddressQuota: o.AddressQuota, Stored: o.Stored,
		Tracer: o.Tracer, Routes: o.Routes, Topics: wiring.NewTable(o.Topics),
	})
	g.Peers = peers.New(o.Presence, o.Logger)
	g.Router.VoteBy(g.Peers)
	g.Peers.Handle(router.KindVotes, g.Router.TakeVotes)
	var moves where.Moves
	if o.Records != nil {
		moves = audit.Moves{Store: o.Records}
	}
	finder := where.New(g.Router, o.Presence, g.Peers, moves, nil)
	acting := g.keepGrants(o)
	if o.Keys.Store != nil {
		o.Keys.Rules, o.Keys.Members, o.Keys.Spaces, o.Keys.Logger = g.Router.Rules(), g.Router.Members(), g.Router.Spaces(), o.Logger
		if g.Grants != nil {
			o.Keys.Grants = g.Grants
		}
		g.KV = kv.New(o.Keys)
	}
	mailboxes, _ := o.Positions.(store.Mailboxes)
	tasks, workers := g.keepTasks(o)
	orchestration := g.keepOrchestration(&o, mailboxes)
	g.Sessions = session.NewManager(session.Options{
		Grants: acting, Tasks: tasks, Workers: workers, Orchestration: orchestration,
		Router: g.Router, Presence: o.Presence, Verifier: o.Verifier, Revocations: revocations, Failures: o.Failures, Limits: g.Limits, Logger: o.Logger, Version: o.Version, Now: o.Now,
		AdmissionRate: o.AdmissionRate, InitTimeout: o.InitTimeout, WriteTimeout: o.WriteTimeout, HeartbeatInterval: o.HeartbeatInterval,
		Keepalive: o.KeepaliveTime + o.KeepaliveTimeout, MaxUnacked: o.MaxUnacked, MaxWindow: o.MaxWindow,
		QueueBytes: o.QueueBytes, Tracer: o.Tracer, Audit: g.Audit, Finder: finder, KV: g.KV,
	})
	var implementations admin.Implementations
	if g.Registry != nil {
		implementations = g.Registry
	}
	var keys admin.Credentials
	revoked := func(*auth.Credential) error { return nil }
	if g.Trust != nil {
		keys, revoked = g.Trust, func(c *auth.Credential) error { return g.Trust.Revoked(c, "") }
	}
	var acts admin.Grants
	if g.Grants != nil {
		acts = g.Grants
	}
	var all admin.Tasks
	if g.Tasks != nil {
		all = g.Tasks
	}
	g.Admin = admin.New(admin.Options{
		Grants:    acts,
		Tasks:     all,
		Mailboxes: mailboxes, Implementations: implementations,
		Credentials: keys, Revoked: revoked,
		Sessions: g.Sessions, Router: g.Router, Name: o.Name, Peers: g.Peers, Logger: o.Logger, Version: o.Version,
		Audit: g.Audit, Records: o.Records, Finder: finder, Leases: o.Presence, Rules: g.Router.Rules(), Spaces: g.Router, Members: g.Router.Members(),
	})
	if g.Grants != nil {
		g.Grants.OnRevoked(g.Sessions.GrantsRevoked)
	}
	if g.Trust != nil {
		g.Trust.OnChange(func() {
			g.Sessions.Recheck()
			if g.Grants != nil {
				g.Grants.Recheck()
			}
		})
	}
	g.Server = server.New(server.Options{
		Sessions: g.Sessions, Logger: o.Logger, KeepaliveTime: o.KeepaliveTime, KeepaliveTimeout: o.KeepaliveTimeout,
		Reflection: o.Reflection, TLS: o.TLS, Admin: g.Admin,
		Gate: &admin.Gate{Verifier: operators, Failures: o.Failures, Refused: g.Audit},
	})
	return g
}

// withPeers completes the options of limits that are shared with other gateways.
func withPeers(o Options) limits.Options {
	l := o.Limits
	if l.Logger == nil {
		l.Logger = o.Logger
	}
	if c, ok := o.Presence.(presence.Counters); ok && l.Counters == nil {
		l.Counters = c
	}
	l.Gateways = func() int {
		list, _ := o.Presence.Instances()
		return len(list)
	}
	return l
}

// Join makes the gateway one of those that share its presence. It is called
// once, before Ready. [presence.ErrInstanceInUse] says that one of them has its
// instance id; that the others cannot be reached is no error.
func (g *Gateway) Join(ctx context.Context) error { return g.Presence.Start(ctx, g.Sessions) }

// presencePoll is how often a gateway that starts looks whether leases can be
// had.
const presencePoll = 50 * time.Millisecond

// Ready waits until the gateway can serve: the log is there, and leases can be
// had.
func (g *Gateway) Ready(ctx context.Context) error {
	select {
	case <-g.Router.Ready():
	case <-g.Router.Misplaced():
		return g.Router.PlacementError()
	case <-ctx.Done():
		return router.ErrUnready
	}
	if g.Trust != nil {
		select {
		case <-g.Trust.Known():
		case <-ctx.Done():
			return router.ErrUnready
		}
	}
	if g.Grants != nil {
		select {
		case <-g.Grants.Known():
			g.Grants.Recheck()
		case <-ctx.Done():
			return router.ErrUnready
		}
	}
	tick := time.NewTicker(presencePoll)
	defer tick.Stop()
	for {
		err := g.Presence.Status()
		if err == nil {
			g.Server.SetServing(true)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Serve takes connections until the gateway is stopped.
func (g *Gateway) Serve(l net.Listener) error { return g.Server.Serve(l) }

// streamEnds is how long clients may take to read the end of their streams.
const streamEnds = 2 * time.Second

// Stop ends the gateway in order: clients are told and sent away, positions
// are committed, what was accepted is stored. It is over when ctx ends at the
// latest, give or take what a call on a dead connection takes to notice. The
// driver and the store stay the caller's.
func (g *Gateway) Stop(ctx context.Context) error {
	g.Server.SetServing(false)
	g.Admin.Close()
	// Clients get most of the time: what they leave is needed to commit
	// positions and to store what was accepted.
	clients, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		clients, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/4))
	}
	defer cancel()
	drained := g.Sessions.Drain(clients)
	// All sessions have ended; a client that does not read the end of its
	// stream is not waited for.
	ends, cancelEnds := context.WithTimeout(clients, streamEnds)
	defer cancelEnds()
	g.Server.Stop(ends)
	g.Orchestration.Close()
	if g.Tasks != nil {
		g.Tasks.Close()
	}
	g.Peers.Close()
	closed := g.Sessions.Close(ctx)
	g.Limits.Close()
	g.KV.Close()
	g.Trust.Close()
	g.Grants.Close()
	g.Registry.Close()
	return errors.Join(drained, closed, g.Router.Close(ctx), g.Presence.Close(ctx), g.Audit.Close(ctx))
}
