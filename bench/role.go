package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
	"github.com/aether-gateway/gateway/internal/streams/rabbitmq"
)

// The roles that this program takes in its children. The two gateways are the
// product's parts, wired as the product does, in a process that can be
// profiled.
const (
	roleRelay = "relay"
	roleServe = "serve"
	roleDev   = "dev"
)

// takeRole is a child's main: it serves until SIGTERM.
func takeRole(role string) error {
	ctx, cancel := ossignal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go obey(os.Stdin, os.Stdout)
	switch role {
	case roleRelay:
		return serveRelay(ctx, l)
	case roleServe, roleDev:
		return serveGateway(ctx, l, config.Mode(role))
	}
	return fmt.Errorf("there is no role %q", role)
}

func ready(l net.Listener) { fmt.Printf("ready grpc=%s\n", l.Addr()) }

func serveRelay(ctx context.Context, l net.Listener) error {
	s := newRelay()
	stopped := context.AfterFunc(ctx, s.Stop)
	defer stopped()
	ready(l)
	if err := s.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// serveGateway wires a gateway by the environment, as cmd/gateway does.
func serveGateway(ctx context.Context, l net.Listener, mode config.Mode) (err error) {
	cfg, err := config.Load(config.Options{Mode: mode, Environ: os.Environ()})
	if err != nil {
		return err
	}
	files := make([]string, len(cfg.JWT.KeyFiles))
	for i, f := range cfg.JWT.KeyFiles {
		files[i] = f.Path
	}
	keys, err := auth.LoadKeyFiles(files...)
	if err != nil {
		return err
	}
	verifier, err := auth.NewVerifier(auth.Options{Keys: keys})
	if err != nil {
		return err
	}
	o := gateway.Options{
		Placement: streams.Placement{Partitions: int(cfg.Streams.Partitions)}, Verifier: verifier,
		Logger:     slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		MaxUnacked: int(cfg.Session.MaxUnacked), MaxWindow: int(cfg.Session.MaxUnackedLimit),
		QueueBytes: int(cfg.Session.QueueBytes), RingBytes: int(cfg.Streams.RecentBytes),
	}
	open := openServices
	if mode == config.Dev {
		open = openEmbedded
	}
	closers, err := open(ctx, cfg, &o)
	defer func() {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
	}()
	if err != nil {
		return err
	}
	g := gateway.New(o)
	if err := g.Join(ctx); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	if err := g.Ready(ctx); err != nil {
		return err
	}
	ready(l)
	<-ctx.Done()
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Shutdown.Timeout)
	defer cancel()
	return errors.Join(g.Stop(stopCtx), <-served)
}

func openServices(ctx context.Context, cfg *config.Config, o *gateway.Options) (closers []func() error, err error) {
	err = postgres.WithDB(ctx, cfg.Postgres.URL, func(ctx context.Context, db *sql.DB) error { return migrate.Up(ctx, migrate.Postgres, db) })
	if err != nil {
		return nil, err
	}
	positions, err := postgres.Open(ctx, cfg.Postgres.URL, postgres.Options{})
	if err != nil {
		return nil, err
	}
	closers = append(closers, positions.Close)
	names := make([]string, o.Placement.Count())
	for i := range names {
		names[i] = o.Placement.StreamName(i)
	}
	driver, err := rabbitmq.Open(ctx, rabbitmq.Options{
		URLs: cfg.RabbitMQ.StreamURLs, Streams: names, Logger: o.Logger,
		MaxBytes: int64(cfg.Streams.Retention.MaxBytes), SegmentBytes: int64(cfg.Streams.SegmentBytes),
	})
	if err != nil {
		return closers, err
	}
	o.Driver, o.Positions, o.Members, o.Feed, o.Rules = driver, positions, positions, positions, positions
	o.Workspaces, o.AutoCreate = positions, true
	closers = append(closers, driver.Close)
	if cfg.Redis.URL != "" {
		o.Boot = router.NewBoot()
		o.Presence, err = redis.New(redis.Options{URL: cfg.Redis.URL, Instance: cfg.InstanceID, ID: o.Boot.String(), Logger: o.Logger})
	}
	return closers, err
}

func openEmbedded(ctx context.Context, cfg *config.Config, o *gateway.Options) (closers []func() error, err error) {
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, err
	}
	file, err := sqlitefile.Open(filepath.Join(cfg.DataDir, "bench.db"))
	if err != nil {
		return nil, err
	}
	closers = append(closers, file.Close)
	if err := sqlite.Migrate(ctx, file); err != nil {
		return closers, err
	}
	positions, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		return closers, err
	}
	closers = append(closers, positions.Close)
	driver, err := embedded.Open(file, embedded.Options{Partitions: o.Placement.Count(), MaxBytes: int64(cfg.Streams.Retention.MaxBytes)})
	if err != nil {
		return closers, err
	}
	o.Driver, o.Positions, o.Members, o.Feed, o.Rules = driver, positions, positions, positions, positions
	o.Workspaces, o.AutoCreate = positions, true
	return append(closers, driver.Close), nil
}

// obey answers the commands that come on standard input:
//
//	mallocs         how many allocations there were since the start
//	profile NAME    begin a CPU profile in NAME.cpu
//	end NAME        end it, and write the allocations so far to NAME.allocs
func obey(in io.Reader, out io.Writer) {
	scanner := bufio.NewScanner(in)
	var file *os.File
	for scanner.Scan() {
		command, name, _ := strings.Cut(scanner.Text(), " ")
		answer, err := "", error(nil)
		switch command {
		case "mallocs":
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			answer = fmt.Sprint(m.Mallocs)
		case "profile":
			if file, err = os.Create(name + ".cpu"); err == nil {
				err = pprof.StartCPUProfile(file)
			}
		case "end":
			pprof.StopCPUProfile()
			err = errors.Join(file.Close(), writeAllocs(name+".allocs"))
		default:
			err = fmt.Errorf("unknown command %q", command)
		}
		if err != nil {
			fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		fmt.Fprintln(out, "ok", answer)
	}
}

func writeAllocs(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

// tokenLife is longer than any run.
const tokenLife = 24 * time.Hour

// mint returns a token for the clients, and the file of the key that signs it.
func mint(dir string) (token, keyFile string, err error) {
	keyFile = filepath.Join(dir, "bench.hs256")
	if err := auth.CreateKeyFile(keyFile); err != nil {
		return "", "", err
	}
	keys, err := auth.LoadKeyFiles(keyFile)
	if err != nil {
		return "", "", err
	}
	token, err = auth.Mint(keys.First(), auth.Claims{
		Kind: auth.KindAgent, Workspaces: []string{workspace}, Impl: implementation, Spec: "*", ExpiresAt: time.Now().Add(tokenLife),
	})
	return token, keyFile, err
}
