package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Names of the systems, as flags and reports have them.
const (
	nameRelay    = "relay"
	nameRaw      = "raw"
	nameRabbitMQ = "gateway"
	nameEmbedded = "embedded"
)

// site is all that a run of this program has started.
type site struct {
	dir      string
	options  options
	services *services
	children []*child
	systems  map[string]system
	profiles map[string]*child // gateways that can be profiled, by system
}

// openSite starts the systems. It must be closed.
func openSite(ctx context.Context, o options) (_ *site, err error) {
	dir, err := os.MkdirTemp("", "aether-bench-")
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, options: o, systems: map[string]system{}, profiles: map[string]*child{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	// Everything temporary of this process lies in one directory.
	if err := os.Chmod(dir, 0o755); err != nil { // the database runs as another user
		return nil, err
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return nil, err
	}
	if s.services, err = startServices(); err != nil {
		return nil, err
	}
	return s, s.open(ctx)
}

func (s *site) open(ctx context.Context) error {
	token, key, err := mint(s.dir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	broker := process{"broker", s.services.broker.PID}
	clients := process{"clients", os.Getpid}
	s.systems[nameRaw] = &raw{url: s.services.broker.URL(), cpu: []process{broker, clients}}

	relay, err := s.child(ctx, nameRelay, nil, self, "-role", roleRelay)
	if err != nil {
		return err
	}
	s.systems[nameRelay] = &server{
		title: nameRelay, target: target{addr: relay.addr, codec: newCodec()},
		cpu: []process{{"server", func() int { return relay.pid }}, clients},
	}

	serve, dev := []string{self, "-role", roleServe}, []string{self, "-role", roleDev}
	if s.options.profile == "" {
		binary, err := s.build(ctx)
		if err != nil {
			return err
		}
		serve, dev = []string{binary, "serve"}, []string{binary, "dev"}
	}
	for _, g := range []struct {
		name    string
		command []string
		environ []string
		cpu     []process
	}{
		{nameRabbitMQ, serve, []string{
			"AETHER_RABBITMQ_STREAM_URL=" + s.services.broker.URL(), "AETHER_POSTGRES_URL=" + s.services.database.URL(),
			"AETHER_POSTGRES_MIGRATE=true", "AETHER_STREAMS_SEGMENT_BYTES=100MiB", "AETHER_OPS_ADDR=off",
		}, []process{broker}},
		{nameEmbedded, dev, []string{"AETHER_DATA_DIR=" + filepath.Join(s.dir, "dev")}, nil},
	} {
		environ := append(g.environ,
			"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_JWT_KEY_FILE="+key,
			"AETHER_STREAMS_RETENTION_MAX_BYTES=500MiB", "AETHER_LOG_FORMAT=json")
		c, err := s.child(ctx, g.name, environ, g.command[0], g.command[1:]...)
		if err != nil {
			return err
		}
		if s.options.profile != "" {
			s.profiles[g.name] = c
		}
		s.systems[g.name] = &server{
			title: g.name, target: target{addr: c.addr, token: token, codec: newCodec()},
			cpu: append([]process{{"server", func() int { return c.pid }}, clients}, g.cpu...),
		}
	}
	return nil
}

// child starts a server with the settings of the Go runtime that this process
// has been given, and no others.
func (s *site) child(ctx context.Context, name string, environ []string, path string, args ...string) (*child, error) {
	environ = append(environ, "PATH="+os.Getenv("PATH"), "HOME="+s.dir, "TMPDIR="+s.dir)
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "GOGC=") || strings.HasPrefix(v, "GOMEMLIMIT=") || strings.HasPrefix(v, "GOMAXPROCS=") {
			environ = append(environ, v)
		}
	}
	c, err := startChild(ctx, filepath.Join(s.dir, name+".log"), environ, path, args...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.children = append(s.children, c)
	return c, nil
}

// build compiles the gateway as it is in the working tree, unless a binary was
// named.
func (s *site) build(ctx context.Context) (string, error) {
	if s.options.binary != "" {
		return s.options.binary, nil
	}
	binary := filepath.Join(s.dir, "gateway-binary")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, module+"/cmd/gateway")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway (run this in the repository, or name a binary with -gateway): %w\n%s", err, out)
	}
	return binary, nil
}

const module = "github.com/aether-gateway/gateway"

// close ends everything, newest first, and removes what it left.
func (s *site) close() error {
	var errs []error
	for i := len(s.children) - 1; i >= 0; i-- {
		s.children[i].close()
	}
	if s.services != nil {
		s.services.close()
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
