package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/delivery/route"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/kv"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/metrics"
	"github.com/aether-gateway/gateway/internal/ops"
	"github.com/aether-gateway/gateway/internal/orchestrator"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/tlsfile"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/version"
)

// running is a gateway with its ports and its backend.
type running struct {
	cfg    *config.Config
	log    *slog.Logger
	health *ops.Health
	ready  atomic.Bool

	stopping atomic.Bool
	waits    *waits

	tls      *tls.Config // of the gRPC port; nil: plain text
	backend  *backend
	core     atomic.Pointer[gateway.Gateway] // nil before the backend is there
	tracer   *tracing.Tracer                 // nil: nothing is traced
	servers  []*ops.Server
	grpcAddr net.Addr
	httpAddr net.Addr
	opsAddr  net.Addr // nil if that port is off

	failed   chan error // ports that stopped serving; one each
	watchers sync.WaitGroup
}

// appear answers on the HTTP ports, so that whoever watches a start sees "not
// ready", also while the backend is waited for. It must be stopped.
func appear(cfg *config.Config, log *slog.Logger, w *waits, l *listeners, t *tlsfile.Server) *running {
	g := &running{
		cfg: cfg, log: log, waits: w, health: &ops.Health{}, failed: make(chan error, 3),
		grpcAddr: l.grpc.Addr(), httpAddr: l.http.Addr(),
	}
	public := l.http
	if t != nil {
		g.tls = t.Config("h2")
		public = tls.NewListener(public, t.ConfigWithoutClients("h2", "http/1.1"))
	}
	g.health.OnChange = g.readyChanged
	g.health.Hide(secrets(cfg)...)
	w.show(g.health)
	handler := metrics.Handler(version.Version(), g.counts)
	info := ops.Info{Version: version.Version(), Mode: string(cfg.Mode), GRPCAddr: l.grpc.Addr().String()}
	g.serveHTTP(public, ops.Public(g.health, handler, info, cfg.Mode == config.Dev))
	if l.ops != nil {
		g.opsAddr = l.ops.Addr()
		g.serveHTTP(l.ops, ops.Operators(g.health, handler))
	}
	return g
}

// start wires a gateway to its backend and waits until it can serve. Clients
// that come before are told to come again.
func (g *running) start(ctx context.Context, b *backend, lis net.Listener, c *credentials) error {
	cfg, log := g.cfg, g.log
	g.backend = b
	for _, name := range slices.Sorted(maps.Keys(b.checks)) {
		g.health.Register(name, b.checks[name])
	}
	if c.check != nil {
		g.health.Register("jwks", c.check)
	}
	g.tracer = openTracer(ctx, cfg, log)
	core := gateway.New(gateway.Options{
		Driver: b.driver, Placement: placement(cfg), Positions: b.positions, Members: b.positions, Feed: b.positions, Rules: b.positions, MaxRules: int(cfg.Rules.Max), Verifier: c.verifier, Failures: failures(cfg), TLS: g.tls, Logger: log, Version: version.Version(),
		Workspaces: b.positions, AutoCreate: cfg.Workspaces.AutoCreate, Credentials: b.positions,
		Implementations: b.positions,
		Grants:          b.positions,
		GrantLimits: gateway.GrantLimits{
			PerSubject: int(cfg.Grants.MaxPerSubject), Lifetime: min(cfg.Grants.Lifetime, cfg.Grants.MaxLifetime), MaxLifetime: cfg.Grants.MaxLifetime,
		},
		Tasks: b.positions, TaskGrace: graceWindow(cfg), StartDeadline: cfg.Tasks.StartDeadline, TaskRetention: cfg.Tasks.Retention,
		StartAttempts: int32(cfg.Tasks.StartAttempts), StartBudgets: orchestrator.Budgets{
			Sender: int(cfg.Tasks.StartsPerSender), Workspace: int(cfg.Tasks.StartsPerWorkspace), Implementation: int(cfg.Tasks.StartsPerImplementation),
		},
		Presence: b.presence, Boot: b.boot,
		Name: instanceID(cfg), Records: b.positions, AuditRetention: cfg.Audit.Retention,
		MaxPayload: int(cfg.MaxPayload), RingBytes: int(cfg.Streams.RecentBytes), Retention: cfg.Streams.Retention.MaxAge,
		Shared: router.Shared{
			RingMessages: int(cfg.Runtime.Ring.Messages), RingBytes: int(cfg.Runtime.Ring.Bytes),
			RouteMessages: int(cfg.Runtime.Route.Messages), RouteBytes: int(cfg.Runtime.Route.Bytes), RoutePrincipals: int(cfg.Runtime.Route.Principals),
		},
		Limits: limitsOf(cfg), ByteQuota: int64(cfg.Limits.StoredBytesPerWorkspace), AddressQuota: int(cfg.Limits.AddressesPerWorkspace), Stored: b.positions,
		Routes: cfg.Routes, Topics: cfg.Topics, Tracer: g.tracer,
		Keys: kv.Options{
			Store: b.positions, Keys: cfg.Limits.KeysPerWorkspace, Bytes: int64(cfg.Limits.KeyBytesPerWorkspace), CheckpointTTL: cfg.KV.CheckpointTTL,
		},
		AdmissionRate: int(cfg.Admission.Rate), InitTimeout: cfg.Session.InitTimeout, WriteTimeout: cfg.Session.WriteTimeout, HeartbeatInterval: cfg.Session.HeartbeatInterval,
		KeepaliveTime: cfg.Session.KeepaliveTime, KeepaliveTimeout: cfg.Session.KeepaliveTimeout,
		MaxUnacked: int(cfg.Session.MaxUnacked), MaxWindow: int(cfg.Session.MaxUnackedLimit), QueueBytes: int(cfg.Session.QueueBytes),
		Reflection: cfg.GRPC.Reflection,
	})
	g.core.Store(core)
	g.health.Unregister(logCheck)
	for i := range core.Router.Partitions() {
		g.health.Register(partitionCheck(i), func(context.Context) error { return core.Router.CheckPartition(i) })
	}

	if err := g.join(ctx); err != nil {
		_ = lis.Close()
		return err
	}
	g.watchers.Go(func() {
		if err := core.Serve(lis); err != nil {
			g.failed <- fmt.Errorf("the gRPC port stopped serving: %w", err)
		}
	})
	if err := g.awaitParts(ctx); err != nil {
		return err
	}
	g.health.Serving()
	g.health.Ready(ctx)
	return nil
}

// graceWindow is how long a worker may be gone. None is next to nothing, as 0 is
// the default there.
func graceWindow(cfg *config.Config) time.Duration {
	return max(cfg.Tasks.GraceWindow, time.Millisecond)
}

// limitsOf is the configured limits.
func limitsOf(cfg *config.Config) limits.Options {
	rate := func(messages int64, bytes config.Size) limits.Rate {
		return limits.Rate{Messages: messages, Bytes: int64(bytes)}
	}
	return limits.Options{
		Identity: rate(cfg.Rate.Messages, cfg.Rate.Bytes), Source: rate(cfg.CredentialRate()), Workspace: rate(cfg.WorkspaceRate()),
		SourceSessions: int(cfg.Limits.SessionsPerCredential), WorkspaceSessions: int(cfg.Limits.SessionsPerWorkspace),
	}
}

// join makes the gateway one of several, if it has others.
func (g *running) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := g.core.Load().Join(ctx)
	if errors.Is(err, presence.ErrInstanceInUse) {
		return fmt.Errorf("another gateway runs with the instance id %q: give each its own instance_id, or stop that one", instanceID(g.cfg))
	}
	return err
}

// awaitParts waits until the log is there and leases can be had, however long
// that takes: so a gateway that is started while they are away serves when they
// are back. A Redis that refuses it ends it.
func (g *running) awaitParts(ctx context.Context) error {
	core := g.core.Load()
	for {
		status := core.Presence.Status()
		if refused(status) {
			return fmt.Errorf("%s: %w", onRedis.key, status)
		}
		if status != nil {
			g.waits.tell(onRedis, status)
		}
		attempt, cancel := context.WithTimeout(ctx, waitingTold)
		err := core.Ready(attempt)
		cancel()
		var misplaced *router.PlacementError
		switch {
		case err == nil:
			g.waits.have(g.waits.partitions)
			g.waits.have(onRedis)
			return nil
		case errors.As(err, &misplaced):
			return errPlacement(misplaced.Log, misplaced.Own)
		case ctx.Err() != nil:
			return err
		case errors.Is(err, router.ErrUnready):
			g.waits.tell(g.waits.partitions, logTrouble(core.Router))
		}
	}
}

// logTrouble says why a log that has been opened cannot be used yet: by itself,
// or because it is not known who may use it.
func logTrouble(r *router.Router) error {
	for i := range r.Partitions() {
		if err := r.CheckPartition(i); err != nil {
			return fmt.Errorf("partition %d %w", i, err)
		}
	}
	if err := r.Rules().Trouble(); err != nil {
		return fmt.Errorf("is there, and the rules are not known: %w", err)
	}
	return errors.New("it is being read back")
}

// refused reports whether leases will not be had by waiting.
func refused(err error) bool {
	var away *presence.UnavailableError
	return errors.As(err, &away) && away.Refused
}

func (g *running) serveHTTP(lis net.Listener, h http.Handler) {
	s := ops.Serve(lis, h)
	g.servers = append(g.servers, s)
	g.watchers.Go(func() {
		<-s.Done()
		if err := s.Err(); err != nil {
			g.failed <- fmt.Errorf("the HTTP port %s stopped serving: %w", lis.Addr(), err)
		}
	})
}

func (g *running) readyChanged(ready bool) {
	g.ready.Store(ready)
	if core := g.core.Load(); core != nil {
		core.Server.SetServing(ready)
	}
	switch {
	case ready:
		g.log.Info("ready")
	case !g.stopping.Load():
		g.log.Warn("not ready; /readyz on the operators' port says why")
	}
}

// recheck ends the sessions whose credentials are no longer good ones.
func (g *running) recheck() {
	if core := g.core.Load(); core != nil {
		core.Sessions.Recheck()
	}
}

// counts reads everything that the parts have counted.
func (g *running) counts() metrics.Counts {
	core := g.core.Load()
	if core == nil {
		return metrics.Counts{Up: upNow(g.health.Last())}
	}
	s, r, log := core.Sessions.Stats(), core.Router.Stats(), core.Router.Health()
	limited := core.Limits.Refused()
	done, failed := core.Admin.Actions()
	recorded := core.Audit.Stats()
	routes, rings := core.Router.Fairness(), core.Router.Rings()
	c := metrics.Counts{
		RouteEvicted: byClass(&routes.Evicted), RouteOversize: byClass(&routes.Oversize), RouteStarved: routes.Starved.Load(),
		RoutePrincipals: routes.Principals.Load(), RouteBytes: routes.Bytes.Load(),
		RingLagged: rings.Lagged.Load(), RingMessages: rings.Messages.Load(), RingBytes: rings.Bytes.Load(),
		Refusals: core.Sessions.Refusals(), ActionsDone: done, ActionsFailed: failed,
		AuditEvents: recorded.Recorded, AuditOverflowed: recorded.Overflowed, AuditFailures: recorded.Failures,
		Ready: g.ready.Load(), Sessions: core.Sessions.Count(),
		Up: upNow(g.health.Last()), Unwritable: log.Unwritable, Unreadable: log.Unreadable,
		Connects: s.Connects.Load(), Refused: s.Refused.Load(), Ended: s.Ended.Load(), SlowReaders: s.SlowReaders.Load(),
		TurnedAway: s.TurnedAway.Load(), Crowded: s.Crowded.Load(), RateLimited: limited[:], Slowed: s.Slowed.Load(), Resumed: s.Resumed.Load(), TakenOver: s.TakenOver.Load(), Superseded: s.Superseded.Load(), Fenced: s.Fenced.Load(),
		Reauthenticated: s.Reauthenticated.Load(), ReauthenticationsRefused: s.ReauthenticationsRefused.Load(),
		CredentialsExpired: s.CredentialsExpired.Load(), CredentialsRevoked: s.CredentialsRevoked.Load(),
		Stored: r.Stored.Load(), Duplicates: r.Duplicates.Load(), RefusedSends: r.Refused.Load(), Failed: r.Failed.Load(),
		Live: r.Live.Load(), Shared: r.Shared.Load(), Redelivered: r.Redelivered.Load(), Expired: r.Expired.Load(), GivenUp: r.GivenUp.Load(),
		CatchUps: r.CatchUps.Load(), PositionsCommitted: r.Commits.Load(), CommitFailures: r.CommitFailures.Load(),
		DamagedEntries: r.DamagedEntries.Load(), DamagedEnvelopes: r.DamagedEnvelopes.Load(),
		Notes: r.Notes.Load(), NoteFailures: r.NoteFailures.Load(), DeadLetters: r.DeadLetters.Load(),
		Forwarded: r.Forwarded.Load(), ForwardsRefused: r.ForwardsRefused.Load(),
	}
	if t := core.Tasks; t != nil {
		x := t.Stats()
		c.Tasks = loaded(&x.Created, &x.Assigned, &x.Completed, &x.Failed, &x.Cancelled, &x.Rejected, &x.Retried)
	}
	if o := core.Orchestration; o != nil {
		x := o.Stats()
		c.Starts = loaded(&x.Triggered, &x.Started, &x.OverBudget, &x.Assigned, &x.Arrived, &x.Retried, &x.Failed)
	}
	if k := core.KV; k != nil {
		x := k.Stats()
		c.Keys = loaded(&x.Reads, &x.Lists, &x.Changes, &x.Purges, &x.Checkpoints, &x.Refused, &x.Failed)
	}
	return c
}

// loaded reads counters.
func loaded(list ...*atomic.Uint64) []uint64 {
	all := make([]uint64, len(list))
	for i, x := range list {
		all[i] = x.Load()
	}
	return all
}

func byClass(counters *[route.Classes]atomic.Uint64) []uint64 {
	list := make([]uint64, len(counters))
	for class := range counters {
		list[class] = counters[class].Load()
	}
	return list
}

// watch asks the checks often enough for the log, the metrics and the gRPC
// health service to be honest when nobody else asks.
func (g *running) watch(ctx context.Context) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.health.Ready(ctx)
		}
	}
}

// stop drains and closes the gateway within shutdown.timeout, whatever clients
// do.
func (g *running) stop() {
	g.stopping.Store(true)
	g.health.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Shutdown.Timeout)
	defer cancel()
	var errs []error
	if core := g.core.Load(); core != nil {
		errs = append(errs, core.Stop(ctx))
	}
	errs = append(errs, g.tracer.Close(ctx))
	for _, s := range g.servers {
		s.Close(ctx)
	}
	g.watchers.Wait()
	if g.backend != nil {
		errs = append(errs, g.backend.close())
	}
	if err := errors.Join(errs...); err != nil {
		g.log.Warn("the gateway did not end cleanly", "error", err)
	}
}
