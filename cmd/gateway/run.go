package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/tlsfile"
)

// startup is how a mode opens what it needs.
type startup struct {
	cfg   *config.Config
	log   *slog.Logger
	waits *waits
	// open opens the backend and the keys. t is the ports' TLS, nil without.
	open func(ctx context.Context, t *tlsfile.Server) (*backend, *credentials, error)
	// begin is called before the ready line is printed, and what it returns when
	// serving ends. It may be nil.
	begin func(g *running) (end func())
	// serving runs while the gateway serves, until its context ends. It may be
	// nil.
	serving func(ctx context.Context, g *running)
}

// errSecondSignal ends the process without waiting for anything.
var errSecondSignal = errors.New("a second signal: exiting at once")

// serve runs a gateway until a signal comes.
func (p *program) serve(s startup) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- s.run(ctx, p) }()
	select {
	case err := <-finished:
		return err
	case sig := <-p.signals:
		s.log.Info("shutting down", "signal", sig.String(), "timeout", s.cfg.Shutdown.Timeout.String())
		cancel()
	}
	first := time.Now()
	for {
		select {
		case err := <-finished:
			if err != nil {
				s.log.Info("the start was interrupted", "error", err)
			}
			s.log.Info("stopped")
			return nil
		case <-p.signals:
			if time.Since(first) > sameSignal {
				return errSecondSignal
			}
		}
	}
}

// sameSignal is within which two signals are one: a wrapper that passes on what
// the terminal has sent already makes two of it.
const sameSignal = 100 * time.Millisecond

// run serves until ctx ends.
func (s *startup) run(ctx context.Context, p *program) error {
	t, err := openTLS(s.cfg, s.log)
	if err != nil {
		return err
	}
	// Ports first: whoever cannot have them must have changed nothing.
	l, err := listen(s.cfg, s.log)
	if err != nil {
		return err
	}
	warnOfOpenDoors(s.cfg, s.log, l.grpc.Addr(), t != nil)
	g := appear(s.cfg, s.log, s.waits, l, t)
	defer g.stop()
	b, c, err := s.open(ctx, t)
	if err != nil {
		_ = l.grpc.Close()
		return err
	}
	for _, on := range c.onChange {
		on(g.recheck)
	}
	following, unfollow := context.WithCancel(ctx)
	var followers sync.WaitGroup
	for _, f := range c.follow {
		followers.Go(func() { f(following) })
	}
	defer followers.Wait()
	defer unfollow()
	if err := g.start(ctx, b, l.grpc, c); err != nil {
		return err
	}
	if s.begin != nil {
		defer s.begin(g)()
	}

	grpcAddr, httpAddr := g.grpcAddr.String(), g.httpAddr.String()
	opsAddr := config.Off
	if g.opsAddr != nil {
		opsAddr = g.opsAddr.String()
	}
	s.log.Info("serving", "grpc", grpcAddr, "http", httpAddr, "ops", opsAddr, "mode", string(s.cfg.Mode), "instance", instanceID(s.cfg))
	if _, err := fmt.Fprintf(p.stdout, "ready grpc=%s http=%s\n", grpcAddr, httpAddr); err != nil {
		return fmt.Errorf("writing the ready line: %w", err)
	}

	// What runs beside must have ended before the gateway stops.
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { g.watch(beside) })
	if s.serving != nil {
		wg.Go(func() { s.serving(beside, g) })
	}
	defer wg.Wait()
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.failed:
		return err
	case <-b.lost:
		return errReplaced
	}
}

// instanceID is the gateway's name in logs.
func instanceID(cfg *config.Config) string {
	if cfg.InstanceID != "" {
		return cfg.InstanceID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "gateway"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// dialable is an address at which a listener on this machine can be reached.
func dialable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	host := "127.0.0.1"
	if tcp.IP.To4() == nil {
		host = "::1"
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}
