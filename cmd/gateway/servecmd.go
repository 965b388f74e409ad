package main

import (
	"context"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/tlsfile"
)

// listenFlags set the ports of dev and serve.
type listenFlags struct {
	GRPCAddr string `name:"grpc-addr" placeholder:"HOST:PORT" help:"Where clients connect; port 0 picks a free one (default: 127.0.0.1:50051)."`
	HTTPAddr string `name:"http-addr" placeholder:"HOST:PORT" help:"The HTTP port (default: 127.0.0.1:8080)."`
}

func (f *listenFlags) flags() map[string]string {
	set := map[string]string{}
	if f.GRPCAddr != "" {
		set["grpc_addr"] = f.GRPCAddr
	}
	if f.HTTPAddr != "" {
		set["http_addr"] = f.HTTPAddr
	}
	return set
}

type serveCmd struct {
	Config string `placeholder:"FILE" help:"A YAML file; the environment overrides it."`
	listenFlags
	Migrate bool `help:"Bring the database's schema up to date first."`
}

func (c *serveCmd) Run(p *program) error {
	set := c.flags()
	if c.Migrate {
		set["postgres.migrate"] = "true"
	}
	cfg, err := config.Load(config.Options{Mode: config.Serve, File: c.Config, Environ: p.environ, Flags: set})
	if err = withURLProblems(cfg, withCredentialProblems(cfg, err)); err != nil {
		return err
	}
	log := newLogger(p.stderr, cfg.Log.Level, cfg.Log.Format)
	logNotes(log, cfg)
	if cfg.Redis.URL == "" {
		log.Info("redis.url is not set: this gateway serves alone and keeps leases in its memory")
	}
	w := newWaits(cfg, log)
	return p.serve(startup{
		cfg: cfg, log: log, waits: w,
		open: func(ctx context.Context, t *tlsfile.Server) (*backend, *credentials, error) {
			c, err := openCredentials(cfg, log, t, keyFiles(cfg))
			if err != nil {
				return nil, nil, err
			}
			b, err := openServices(ctx, cfg, log, w)
			return b, c, err
		},
	})
}
