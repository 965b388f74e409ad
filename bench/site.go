package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	self     string // this program
	token    string // of the clients
	key      string // the file with the key of tokens
	options  options
	services *services
	children []*child
	systems  map[string]system
	gateways map[string]*child // by system
	profiles map[string]*child // those of them that can be profiled
	commands map[string]launch
}

// launch is how a gateway is started.
type launch struct {
	command []string
	environ []string
	cpu     []process // who works for it
}

// openSite starts the systems. It must be closed.
func openSite(ctx context.Context, o options) (_ *site, err error) {
	dir, err := os.MkdirTemp("", "aether-bench-")
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, options: o, systems: map[string]system{}, gateways: map[string]*child{}, profiles: map[string]*child{}}
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

func (s *site) open(ctx context.Context) (err error) {
	if s.token, s.key, err = mint(s.dir); err != nil {
		return err
	}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	broker := process{"broker", s.services.broker.PID}
	s.systems[nameRaw] = &raw{url: s.services.broker.URL(), cpu: []process{broker, clients}}

	relay, err := s.relay(ctx, nameRelay)
	if err != nil {
		return err
	}
	s.systems[nameRelay] = &server{
		title: nameRelay, target: target{addr: relay.addr, codec: newCodec()},
		cpu: []process{{"server", func() int { return relay.pid }}, clients},
	}

	serve, dev := []string{s.self, "-role", roleServe}, []string{s.self, "-role", roleDev}
	if s.options.profile == "" {
		binary, err := s.build(ctx)
		if err != nil {
			return err
		}
		serve, dev = []string{binary, "serve"}, []string{binary, "dev"}
	}
	common := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_JWT_KEY_FILE=" + s.key,
		fmt.Sprintf("AETHER_STREAMS_RETENTION_MAX_BYTES=%d", retention(s.options)), "AETHER_LOG_FORMAT=json",
		"AETHER_ADMISSION_RATE=0", // how fast sessions can come, not how fast they may
		"AETHER_RATE_MESSAGES=0", "AETHER_RATE_BYTES=0", "AETHER_LIMITS_SESSIONS_PER_CREDENTIAL=0", "AETHER_LIMITS_SESSIONS_PER_WORKSPACE=0", "AETHER_LIMITS_STORED_BYTES_PER_WORKSPACE=0",
		"AETHER_TASKS_STARTS_PER_SENDER=0", "AETHER_TASKS_STARTS_PER_WORKSPACE=0", "AETHER_TASKS_STARTS_PER_IMPLEMENTATION=0",
	}
	s.commands = map[string]launch{
		nameRabbitMQ: {serve, append([]string{
			"AETHER_RABBITMQ_STREAM_URL=" + s.services.broker.URL(), "AETHER_POSTGRES_URL=" + s.services.database.URL(),
			"AETHER_POSTGRES_MIGRATE=true", "AETHER_WORKSPACES_AUTO_CREATE=true", "AETHER_STREAMS_SEGMENT_BYTES=100MiB", "AETHER_OPS_ADDR=127.0.0.1:0",
			"AETHER_REDIS_URL=" + s.services.redis.URL(), instance("a"),
		}, common...), []process{broker}},
		nameEmbedded: {dev, append([]string{"AETHER_DATA_DIR=" + filepath.Join(s.dir, "dev")}, common...), nil},
	}
	for _, name := range []string{nameRabbitMQ, nameEmbedded} {
		if err := s.gateway(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

var clients = process{"clients", os.Getpid}

// retention is how many bytes each stream keeps: what some seconds of a
// saturated run store, and what must not be removed before it is read.
func retention(o options) int64 {
	const usual, envelope = 500 << 20, 128
	return usual + int64(o.foreign)*int64(o.payload+envelope) + int64(o.mute)*muteBytes
}

// gateway starts a gateway, with settings in addition to its own, and makes it
// the system of its name.
func (s *site) gateway(ctx context.Context, name string, environ ...string) error {
	how := s.commands[name]
	c, err := s.child(ctx, name, append(slices.Clone(how.environ), environ...), how.command[0], how.command[1:]...)
	if err != nil {
		return err
	}
	s.gateways[name] = c
	if s.options.profile != "" {
		s.profiles[name] = c
	}
	s.systems[name] = &server{
		title: name, target: target{addr: c.addr, token: s.token, codec: newCodec()},
		cpu: append([]process{{"server", func() int { return c.pid }}, clients}, how.cpu...),
	}
	return nil
}

// restart ends a gateway and starts it again, as gateway does.
func (s *site) restart(ctx context.Context, name string, environ ...string) error {
	s.end(s.gateways[name])
	return s.gateway(ctx, name, environ...)
}

// relay starts one.
func (s *site) relay(ctx context.Context, name string) (*child, error) {
	return s.child(ctx, name, nil, s.self, "-role", roleRelay)
}

// end ends a child before the others.
func (s *site) end(c *child) {
	c.close()
	s.children = slices.DeleteFunc(s.children, func(other *child) bool { return other == c })
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
