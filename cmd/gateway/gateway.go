package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/metrics"
	"github.com/aether-gateway/gateway/internal/ops"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/server"
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/version"
)

// gateway is one running gateway: everything wired together.
type gateway struct {
	cfg    *config.Config
	log    *slog.Logger
	health *ops.Health
	ready  atomic.Bool

	stopping atomic.Bool

	backend  *backend
	router   *router.Router
	sessions *session.Manager
	grpc     *server.Server
	servers  []*ops.Server
	grpcAddr net.Addr
	httpAddr net.Addr
	opsAddr  net.Addr // nil if that port is off

	failed   chan error // ports that stopped serving; one each
	watchers sync.WaitGroup
}

// start wires a gateway on open ports, and waits until it can serve. On
// failure everything that was opened is closed again, ports and backend too.
func start(ctx context.Context, cfg *config.Config, log *slog.Logger, b *backend, l *listeners, v *auth.Verifier) (*gateway, error) {
	g := &gateway{
		cfg: cfg, log: log, backend: b, health: &ops.Health{}, failed: make(chan error, 3),
		grpcAddr: l.grpc.Addr(), httpAddr: l.http.Addr(),
	}
	g.health.OnChange = g.readyChanged
	for name, check := range b.checks {
		g.health.Register(name, check)
	}
	g.router = router.New(router.Options{
		Driver: b.driver, Placement: placement(cfg), Positions: b.positions, Logger: log,
		MaxPayload: int(cfg.MaxPayload), RingBytes: int(cfg.Streams.RecentBytes),
	})
	g.health.Register("log", g.router.Check)
	g.sessions = session.NewManager(session.Options{
		Router: g.router, Leases: local.New(nil), Verifier: v, Logger: log, Version: version.Version(),
		InitTimeout: cfg.Session.InitTimeout, WriteTimeout: cfg.Session.WriteTimeout, HeartbeatInterval: cfg.Session.HeartbeatInterval,
		Keepalive:  cfg.Session.KeepaliveTime + cfg.Session.KeepaliveTimeout,
		MaxUnacked: int(cfg.Session.MaxUnacked), MaxWindow: int(cfg.Session.MaxUnackedLimit), QueueBytes: int(cfg.Session.QueueBytes),
	})
	g.grpc = server.New(server.Options{
		Sessions: g.sessions, Logger: log, Reflection: cfg.GRPC.Reflection,
		KeepaliveTime: cfg.Session.KeepaliveTime, KeepaliveTimeout: cfg.Session.KeepaliveTimeout,
	})

	// The HTTP ports answer from the beginning, so that whoever watches a start
	// sees "not ready" and why; gRPC begins when sessions can be served.
	handler := metrics.Handler(version.Version(), g.counts)
	info := ops.Info{Version: version.Version(), Mode: string(cfg.Mode), GRPCAddr: l.grpc.Addr().String()}
	g.serveHTTP(l.http, ops.Public(g.health, handler, info, cfg.Mode == config.Dev))
	if l.ops != nil {
		g.opsAddr = l.ops.Addr()
		g.serveHTTP(l.ops, ops.Operators(g.health, handler))
	}

	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-g.router.Ready():
	case <-startCtx.Done():
		err := ctx.Err()
		if err == nil {
			err = fmt.Errorf("the log did not answer within %s", startTimeout)
		}
		_ = l.grpc.Close()
		g.stop()
		return nil, err
	}
	g.watchers.Go(func() {
		if err := g.grpc.Serve(l.grpc); err != nil {
			g.failed <- fmt.Errorf("the gRPC port stopped serving: %w", err)
		}
	})
	g.health.Serving()
	g.health.Ready(ctx)
	return g, nil
}

func (g *gateway) serveHTTP(lis net.Listener, h http.Handler) {
	s := ops.Serve(lis, h)
	g.servers = append(g.servers, s)
	g.watchers.Go(func() {
		<-s.Done()
		if err := s.Err(); err != nil {
			g.failed <- fmt.Errorf("the HTTP port %s stopped serving: %w", lis.Addr(), err)
		}
	})
}

func (g *gateway) readyChanged(ready bool) {
	g.ready.Store(ready)
	g.grpc.SetServing(ready)
	switch {
	case ready:
		g.log.Info("ready")
	case !g.stopping.Load():
		g.log.Warn("not ready; /readyz on the operators' port says why")
	}
}

// counts reads everything that the parts have counted.
func (g *gateway) counts() metrics.Counts {
	s, r := g.sessions.Stats(), g.router.Stats()
	return metrics.Counts{
		Ready: g.ready.Load(), Sessions: g.sessions.Count(),
		Connects: s.Connects.Load(), Refused: s.Refused.Load(), Ended: s.Ended.Load(), SlowReaders: s.SlowReaders.Load(),
		Stored: r.Stored.Load(), Duplicates: r.Duplicates.Load(), RefusedSends: r.Refused.Load(), Failed: r.Failed.Load(),
		Live: r.Live.Load(), Shared: r.Shared.Load(), Redelivered: r.Redelivered.Load(), Expired: r.Expired.Load(), GivenUp: r.GivenUp.Load(),
		CatchUps: r.CatchUps.Load(), PositionsCommitted: r.Commits.Load(), CommitFailures: r.CommitFailures.Load(),
		DamagedEntries: r.DamagedEntries.Load(), DamagedEnvelopes: r.DamagedEnvelopes.Load(),
	}
}

// watch asks the checks often enough for the log, the metrics and the gRPC
// health service to be honest when nobody else asks.
func (g *gateway) watch(ctx context.Context) {
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
func (g *gateway) stop() {
	g.stopping.Store(true)
	g.health.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Shutdown.Timeout)
	defer cancel()
	// Clients get most of the time, the log and the store the rest.
	clients, cancelClients := context.WithTimeout(ctx, g.cfg.Shutdown.Timeout*3/4)
	defer cancelClients()
	var errs []error
	if err := g.sessions.Drain(clients); err != nil {
		g.log.Warn("sessions did not end in time and are cut", "sessions", g.sessions.Count())
	}
	g.grpc.Stop(clients)
	errs = append(errs, g.sessions.Close(ctx), g.router.Close(ctx))
	for _, s := range g.servers {
		s.Close(ctx)
	}
	g.watchers.Wait()
	errs = append(errs, g.backend.close())
	if err := errors.Join(errs...); err != nil {
		g.log.Warn("the gateway did not end cleanly", "error", err)
	}
}
