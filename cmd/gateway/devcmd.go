package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/demo"
	"github.com/aether-gateway/gateway/internal/tlsfile"
)

type devCmd struct {
	DataDir string `placeholder:"DIR" help:"The directory that holds everything (default: .aether)."`
	listenFlags
	Config string `placeholder:"FILE" help:"A YAML file, if you want one."`
	Demo   bool   `help:"Show the main job in this terminal, then go on serving."`
}

func (c *devCmd) Run(p *program) error {
	set := c.flags()
	if c.DataDir != "" {
		set["data_dir"] = c.DataDir
	}
	cfg, err := config.Load(config.Options{Mode: config.Dev, File: c.Config, Environ: p.environ, Flags: set})
	if err != nil {
		return err
	}
	if c.Demo && cfg.TLS.CertFile != "" {
		return usagef("--demo connects without TLS; leave tls.cert_file unset for it")
	}
	if c.Demo && !cfg.IsSet("log.level") {
		cfg.Log.Level = "warn" // the demo tells what happens
	}
	log := newLogger(p.stderr, cfg.Log.Level, cfg.Log.Format)
	d := &devMode{p: p, cfg: cfg, log: log}
	logNotes(log, cfg)
	err = p.serve(startup{
		cfg: cfg, log: log, waits: newWaits(cfg, log), open: d.open, begin: d.begin,
		serving: func(ctx context.Context, g *running) { d.serving(ctx, g, c.Demo) },
	})
	if err == nil {
		fmt.Fprintf(p.stderr, "stopped; the data is in %s\n", cfg.DataDir)
	}
	return err
}

// devMode is what dev does beyond serving.
type devMode struct {
	p        *program
	cfg      *config.Config
	log      *slog.Logger
	key      auth.Key
	operator string // the file with the operator's token
}

// open opens the data directory, and with it, once it is ours, the keys.
func (d *devMode) open(ctx context.Context, t *tlsfile.Server) (*backend, *credentials, error) {
	b, err := openEmbedded(ctx, d.cfg)
	if err != nil {
		return nil, nil, err
	}
	c, err := d.openKeys(t)
	if err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return b, c, nil
}

func (d *devMode) openKeys(t *tlsfile.Server) (*credentials, error) {
	own, err := devKey(d.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	c, err := openCredentials(d.cfg, d.log, t, append([]auth.KeyFile{own}, keyFiles(d.cfg)...))
	if err != nil {
		return nil, err
	}
	d.key = c.files.Current().First()
	d.operator, err = d.operatorToken(c.verifier)
	return c, err
}

const (
	operatorLife  = 365 * 24 * time.Hour
	operatorRenew = 30 * 24 * time.Hour
)

// operatorToken keeps a token for operator commands in the data directory,
// readable by its owner only, and renews it long before it expires.
func (d *devMode) operatorToken(v *auth.Verifier) (path string, err error) {
	path = filepath.Join(d.cfg.DataDir, devOperatorFile)
	if old, err := readToken(path); err == nil {
		if in, err := auth.Inspect(noContext, old, v); err == nil && in.Err == nil && time.Until(in.Claims.ExpiresAt) > operatorRenew {
			return path, nil
		}
	}
	token, err := d.mint(auth.Claims{Kind: auth.KindOperator, Workspaces: []string{auth.AllWorkspaces}}, operatorLife)
	if err != nil {
		return "", err
	}
	return path, writePrivate(path, token+"\n")
}

func (d *devMode) mint(c auth.Claims, life time.Duration) (string, error) {
	c.Issuer, c.Audience, c.ExpiresAt = d.cfg.Auth.Issuer, []string{d.cfg.Auth.Audience}, time.Now().Add(life)
	return auth.Mint(d.key, c)
}

// begin tells client commands where the gateway is.
func (d *devMode) begin(g *running) (end func()) {
	file := filepath.Join(d.cfg.DataDir, devAddressFile)
	if err := writePrivate(file, dialable(g.grpcAddr)+"\n"); err != nil {
		g.log.Warn("client commands will need --addr", "error", err)
	}
	return func() { _ = os.Remove(file) }
}

// serving shows the demo, if that is wanted, and what else can be done.
func (d *devMode) serving(ctx context.Context, g *running, withDemo bool) {
	addr := dialable(g.grpcAddr)
	if withDemo {
		d.demo(ctx, addr)
	}
	if ctx.Err() != nil {
		return
	}
	if err := d.welcome(g, addr, withDemo); err != nil {
		g.log.Warn("no tokens to show", "error", err)
	}
}

// demo plays the demo. Whatever it shows, the gateway goes on.
func (d *devMode) demo(ctx context.Context, addr string) {
	_, err := demo.Run(ctx, demo.Options{
		Addr: addr, Out: d.p.stderr, AgentToken: d.agentToken, UserToken: d.userToken,
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(d.p.stderr, "\n   The demo ended here; the gateway goes on.")
	}
}

func (d *devMode) agentToken(workspace, impl, spec string) (string, error) {
	return d.mint(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{workspace}, Impl: impl, Spec: spec}, exampleLife)
}

func (d *devMode) userToken(user, workspace string) (string, error) {
	return d.mint(auth.Claims{Kind: auth.KindUser, Workspaces: []string{workspace}, User: user}, exampleLife)
}

const exampleLife = 24 * time.Hour

// welcome prints where the gateway is and the first things to try.
func (d *devMode) welcome(g *running, addr string, withGo bool) error {
	agent, err := d.agentToken(demo.Workspace, "echo", "*")
	if err != nil {
		return err
	}
	user, err := d.userToken("alice", demo.Workspace)
	if err != nil {
		return err
	}
	scheme := "http"
	if g.tls != nil {
		scheme = "https"
	}
	name, dir := d.p.name(), ""
	if d.cfg.Source("data_dir").Kind == config.FromFlag {
		dir = " --data-dir " + d.cfg.DataDir
	}
	create := fmt.Sprintf("%s token create%s --kind agent --workspace demo --impl echo --spec 1", name, dir)
	_, err = fmt.Fprintf(d.p.stderr, `
── Serving; Ctrl-C ends it

  gRPC      %s
  HTTP      %s://%s  (/healthz, /readyz, /metrics)
  data      %s

  Tokens for workspace demo, valid for a day
  agent     ag::demo::echo::(any)
            %s
  user      alice
            %s
  operator  in %s
  others    %s

  Try, each in a terminal of its own
            %s connect%s --as ag::demo::echo::1
            %s send%s --as us::alice::cli --to ag::demo::echo::1 --text hello

`, addr, scheme, dialable(g.httpAddr), d.cfg.DataDir, agent, user, d.operator, create, name, dir, name, dir)
	if err == nil && withGo {
		err = demo.HowTo(d.p.stderr, addr, create, fmt.Sprintf("%s send%s --as us::alice::cli --to ag::demo::echo::1 --text hello --wait", name, dir))
	}
	return err
}
