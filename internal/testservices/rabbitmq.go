package testservices

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// brokerStartLimit is generous: a start takes about 5 s on an idle machine, and
// more than a minute on one with ten times as much to do as it can.
const brokerStartLimit = 3 * time.Minute

// Broker is a private RabbitMQ node with the stream plugin. Its methods fail
// the test that made it when something goes wrong, so they are for the test's
// own goroutine.
type Broker struct {
	tb     testing.TB // nil: shared
	dir    string
	node   string
	script string
	epmd   string

	streamPort, amqpPort, distPort, epmdPort int
	advertisedPort                           int // 0: streamPort

	cluster *RabbitCluster // nil: a node alone

	mu     sync.Mutex
	names  *process // epmd, the name server that a node insists on
	beam   *process
	booted int64 // length of the log when the node was last started
}

var sharedBroker struct {
	once   sync.Once
	broker *Broker
	err    error
}

// RabbitMQ returns the node that all tests of this binary share; the first call
// starts it. Tests keep apart by stream names of their own.
func RabbitMQ(tb testing.TB) *Broker {
	tb.Helper()
	needMain(tb)
	sharedBroker.once.Do(func() {
		sharedBroker.broker, sharedBroker.err = newBroker()
		if sharedBroker.err == nil {
			onMainEnd(sharedBroker.broker.end)
		}
	})
	if sharedBroker.err != nil {
		tb.Fatalf("testservices: RabbitMQ: %v", sharedBroker.err)
	}
	return sharedBroker.broker
}

// NewBroker starts a node for this test alone, which may kill, stop and start
// it. It ends with the test.
func NewBroker(tb testing.TB) *Broker {
	tb.Helper()
	b, err := newBroker()
	if err != nil {
		tb.Fatalf("testservices: RabbitMQ: %v", err)
	}
	b.tb = tb
	tb.Cleanup(func() {
		b.end()
		if said := b.said(); tb.Failed() && said != "" {
			tb.Logf("testservices: RabbitMQ said:\n%s", said)
		}
		if err := os.RemoveAll(b.dir); err != nil {
			tb.Errorf("testservices: RabbitMQ: %v", err)
		}
	})
	if err := b.beam.await(brokerStartLimit, b.settled); err != nil {
		tb.Fatalf("testservices: RabbitMQ: %v", err)
	}
	return b
}

// upMark ends what a node prints when it starts: that it is up, and the number
// of plugins.
const upMark = "completed with"

// said returns what the node has logged since it was last up.
func (b *Broker) said() string {
	log, err := os.ReadFile(b.path("console.log"))
	if err != nil {
		return err.Error()
	}
	i := bytes.LastIndex(log, []byte(upMark))
	if i < 0 {
		return tail(log)
	}
	_, after, _ := bytes.Cut(log[i:], []byte("\n"))
	return tail(after)
}

// settled tells whether the node would survive a kill. For a second after its
// first stream was declared it would not: the name of the coordinator of
// streams is then in memory only, and a node that comes back without it has no
// stream available, ever.
func (b *Broker) settled() error {
	files, err := filepath.Glob(b.path("mnesia/*/coordination/*/names.dets"))
	if err != nil {
		return err
	}
	for _, file := range files {
		names, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(names, []byte("rabbit_stream_coordinator")) {
			return nil
		}
	}
	return errors.New("the coordinator of streams is not on disk")
}

// URL returns the address for a stream client.
func (b *Broker) URL() string {
	return fmt.Sprintf("rabbitmq-stream://guest:guest@%s/%%2f", loopback(b.streamPort))
}

// StreamPort returns the port of the stream protocol on 127.0.0.1.
func (b *Broker) StreamPort() int { return b.streamPort }

// PID returns the process id of the Erlang VM; it changes with Start.
func (b *Broker) PID() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beam.pid
}

// Kill ends the node with SIGKILL and returns when it is gone. Its data stays.
func (b *Broker) Kill() {
	b.own().Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beam.kill()
}

// Stop freezes the node with SIGSTOP: connections stay open, nothing moves.
func (b *Broker) Stop() { b.own().Helper(); b.signal(syscall.SIGSTOP) }

// Cont lets a stopped node go on.
func (b *Broker) Cont() { b.own().Helper(); b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) {
	b.tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.beam.signal(s); err != nil {
		b.tb.Fatalf("testservices: RabbitMQ: %v: %v", s, err)
	}
	if s == syscall.SIGSTOP {
		if err := b.beam.awaitStopped(); err != nil {
			b.tb.Fatalf("testservices: RabbitMQ: %v: %v", s, err)
		}
	}
}

// Start starts a killed node again, on the same data and ports, and returns
// when it serves a stream. Each other stream may take a moment longer: its
// clients are told that it is not available or that it has no leader yet. Who
// measures from there waits with AwaitStreams.
func (b *Broker) Start() {
	b.own().Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.beam.exited() {
		b.tb.Fatal("testservices: RabbitMQ: Start: the node is running")
	}
	if err := b.boot(); err != nil {
		b.tb.Fatalf("testservices: RabbitMQ: start again: %v", err)
	}
}

// own returns the test that the node belongs to.
func (b *Broker) own() testing.TB {
	if b.tb == nil {
		panic("testservices: the shared RabbitMQ is not to be killed or stopped: use NewBroker")
	}
	return b.tb
}

func newBroker() (*Broker, error) {
	script, epmd, err := findRabbitMQ()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		b := &Broker{script: script, epmd: epmd}
		err := b.create()
		if err == nil {
			return b, nil
		}
		b.end()
		os.RemoveAll(b.dir)
		if !errors.Is(err, errExited) || try == attempts {
			return nil, err
		}
	}
}

func findRabbitMQ() (script, epmd string, err error) {
	for _, pattern := range []string{
		"/usr/lib/rabbitmq/bin/rabbitmq-server", // Debian
		"/usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server",
		"/opt/rabbitmq/sbin/rabbitmq-server",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			script = found[len(found)-1]
			break
		}
	}
	if script == "" {
		return "", "", missing("rabbitmq-server")
	}
	if epmd, err = exec.LookPath("epmd"); err != nil {
		return "", "", missing("epmd (Erlang)")
	}
	return script, epmd, nil
}

// create makes directory and configuration, and starts epmd and the node.
func (b *Broker) create() error {
	dir, err := newDir("rabbitmq")
	if err != nil {
		return err
	}
	b.dir = dir
	if err := freePorts(&b.streamPort, &b.amqpPort, &b.distPort, &b.epmdPort); err != nil {
		return err
	}
	b.node = fmt.Sprintf("test%d@localhost", b.epmdPort)
	if err := b.configure("testservices" + filepath.Base(b.dir)); err != nil {
		return err
	}
	if err := b.startNames(); err != nil {
		return err
	}
	return b.boot()
}

// startNames starts epmd: a node that finds none starts one as a daemon, which
// would outlive it.
func (b *Broker) startNames() error {
	var err error
	b.names, err = start(command{
		path: b.epmd,
		args: []string{"-port", fmt.Sprint(b.epmdPort), "-address", "127.0.0.1"},
		env:  b.env(),
		dir:  b.dir,
		log:  b.path("epmd.log"),
	})
	if err != nil {
		return err
	}
	err = b.names.await(10*time.Second, func() error { return dial(b.epmdPort) })
	if err != nil {
		return fmt.Errorf("epmd: %w\n%s", err, logTail(b.path("epmd.log")))
	}
	return nil
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }

// configure writes the node's files. Nodes of one cluster share a cookie; more
// are further lines of the configuration.
func (b *Broker) configure(cookie string, more ...string) error {
	if b.advertisedPort == 0 {
		b.advertisedPort = b.streamPort
	}
	home := b.path("home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	for _, d := range []string{"mnesia", "log", "config"} {
		if err := os.Mkdir(b.path(d), 0o700); err != nil {
			return err
		}
	}
	conf := []string{
		"listeners.tcp.1 = " + loopback(b.amqpPort),
		"stream.listeners.tcp.1 = " + loopback(b.streamPort),
		"stream.advertised_host = 127.0.0.1",
		fmt.Sprintf("stream.advertised_port = %d", b.advertisedPort),
		"log.console = true",
		"log.console.level = error",
		"log.file = false",
		"vm_memory_high_watermark.absolute = 1GB",
		"disk_free_limit.absolute = 50MB",
	}
	conf = append(conf, more...)
	files := []struct {
		path, text string
		mode       os.FileMode
	}{
		{filepath.Join(home, ".erlang.cookie"), cookie, 0o400},
		{b.path("rabbitmq.conf"), strings.Join(conf, "\n") + "\n", 0o644},
		{b.path("rabbitmq-env.conf"), "", 0o644}, // instead of the machine's
		{b.path("enabled_plugins"), "[rabbitmq_stream].\n", 0o644},
	}
	for _, f := range files {
		if err := os.WriteFile(f.path, []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"LANG=C.UTF-8",
		"HOME=" + b.path("home"),
		fmt.Sprintf("ERL_EPMD_PORT=%d", b.epmdPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + b.node,
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", b.amqpPort),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", b.distPort),
		"RABBITMQ_MNESIA_BASE=" + b.path("mnesia"),
		"RABBITMQ_LOG_BASE=" + b.path("log"),
		"RABBITMQ_PID_FILE=" + b.path("pid"),
		"RABBITMQ_CONF_ENV_FILE=" + b.path("rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE=" + b.path("rabbitmq"), // 3.x wants it without .conf
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + b.path("advanced.config"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + b.path("config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + b.path("enabled_plugins"),
		// Makes the script exec the VM instead of watching over it: the child
		// is then the VM itself, and not a shell whose children outlive it.
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_START_ARGS=-noinput +B i",
		// Distribution must not be open to other machines.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
}

// boot starts the VM and waits until it serves streams.
func (b *Broker) boot() error {
	logFile := b.path("console.log")
	b.booted = 0
	if info, err := os.Stat(logFile); err == nil {
		b.booted = info.Size()
	}
	var err error
	b.beam, err = start(command{
		path: "/bin/sh",
		// The VM walks through all descriptors it might have at every fork:
		// minutes where a container allows a thousand million of them.
		args: []string{"-c", `n=$(ulimit -n); if [ "$n" = unlimited ] || [ "$n" -gt 65536 ]; then ulimit -n 65536; fi; exec "$0"`, b.script},
		env:  b.env(),
		dir:  b.dir,
		log:  logFile,
	})
	if err != nil {
		return err
	}
	if err := b.beam.await(brokerStartLimit, b.ready); err != nil {
		return fmt.Errorf("%w\n%s", err, logTail(logFile))
	}
	return nil
}

// ready tells whether the node has said that it is up, which it does after the
// plugins' listeners, and serves a stream.
func (b *Broker) ready() error {
	log, err := os.ReadFile(b.path("console.log"))
	if err != nil {
		return err
	}
	if int64(len(log)) < b.booted || !bytes.Contains(log[b.booted:], []byte(upMark)) {
		return errors.New("the broker has not completed its start")
	}
	if b.cluster != nil {
		return b.cluster.joined(b)
	}
	return probe(b.streamPort)
}

// end kills the node and its epmd.
func (b *Broker) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.beam != nil {
		b.beam.kill()
	}
	if b.names != nil {
		b.names.kill()
	}
}

func dial(port int) error {
	c, err := net.DialTimeout("tcp4", loopback(port), time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
