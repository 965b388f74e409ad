package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// deployment is gateways and what they stand on, with a proxy on every way.
type deployment struct {
	tb    testing.TB
	rec   *recorder
	dir   string // logs
	nodes []*node

	brokers  []*testservices.Broker
	database *testservices.Database
	redis    *testservices.RedisServer
	// shared are the proxies before the nodes of a RabbitMQ cluster: clients dial
	// what the nodes advertise, so that the gateways have them in common.
	shared []*faultproxy.Proxy
}

// settings of every gateway here: no limits, since a round is about order and
// loss, and times that a round can wait for.
var settings = []string{
	"AETHER_RATE_MESSAGES=0", "AETHER_RATE_BYTES=0", "AETHER_ADMISSION_RATE=0",
	"AETHER_SESSION_HEARTBEAT_INTERVAL=1s", "AETHER_WORKSPACES_AUTO_CREATE=true", "AETHER_OPS_ADDR=off",
	"AETHER_STREAMS_PARTITIONS=3", "AETHER_TASKS_START_DEADLINE=6s", "AETHER_TASKS_GRACE_WINDOW=2s",
}

// deploy starts services and gateways.
func deploy(tb testing.TB, rec *recorder, dir string, gateways, brokers int) *deployment {
	tb.Helper()
	d := &deployment{tb: tb, rec: rec, dir: dir}
	program := check1[string](tb)(plain())
	urls := d.startBrokers(brokers)
	d.database = testservices.NewPostgres(tb)
	d.redis = testservices.Redis(tb)
	migrate := exec.Command(program, "migrate", "up")
	migrate.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "AETHER_JWT_KEY_FILE=" + keyFile(), "AETHER_POSTGRES_URL=" + d.database.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + urls, "AETHER_REDIS_URL=" + d.redis.URL(),
	}, settings...)
	if out, err := migrate.CombinedOutput(); err != nil {
		tb.Fatalf("gateway migrate up: %v\n%s", err, out)
	}
	for i := range gateways {
		d.nodes = append(d.nodes, d.newNode(program, i, urls))
	}
	for _, n := range d.nodes {
		n.start()
	}
	for _, n := range d.nodes {
		n.awaitReady(patience)
	}
	return d
}

// startBrokers starts RabbitMQ and returns its address for gateways, which for
// a single node is the node's own: each gateway has its own proxy before it.
func (d *deployment) startBrokers(count int) (urls string) {
	if count == 1 {
		d.brokers = []*testservices.Broker{testservices.NewBroker(d.tb)}
		return d.brokers[0].URL()
	}
	cluster := testservices.NewRabbitCluster(d.tb, func(port int) int {
		p := faultproxy.New(d.tb, local(port))
		d.shared = append(d.shared, p)
		return p.Port()
	})
	for i := range cluster.Nodes() {
		d.brokers = append(d.brokers, cluster.Node(i))
	}
	return cluster.URLs()
}

func (d *deployment) newNode(program string, index int, urls string) *node {
	n := &node{
		tb: d.tb, rec: d.rec, index: index, program: program, dir: d.dir,
		grpc: testservices.FreePort(d.tb), http: testservices.FreePort(d.tb),
		links: map[string]*faultproxy.Proxy{
			"postgres": faultproxy.New(d.tb, local(d.database.Port())),
			"redis":    faultproxy.New(d.tb, d.redis.Addr()),
		},
	}
	if len(d.brokers) == 1 {
		n.links["rabbitmq"] = faultproxy.New(d.tb, local(d.brokers[0].StreamPort()))
		urls = strings.Replace(urls, local(d.brokers[0].StreamPort()), n.links["rabbitmq"].Addr(), 1)
	}
	n.clients = faultproxy.New(d.tb, local(n.grpc))
	n.args = []string{"serve", "--grpc-addr", local(n.grpc), "--http-addr", local(n.http)}
	n.env = append([]string{
		"AETHER_JWT_KEY_FILE=" + keyFile(), fmt.Sprintf("AETHER_INSTANCE_ID=g%d", index), "AETHER_RABBITMQ_STREAM_URL=" + urls,
		"AETHER_POSTGRES_URL=" + strings.Replace(d.database.URL(), local(d.database.Port()), n.links["postgres"].Addr(), 1),
		"AETHER_REDIS_URL=" + strings.Replace(d.redis.URL(), d.redis.Addr(), n.links["redis"].Addr(), 1),
	}, settings...)
	return n
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// end ends the gateways in order, with clients gone and all parts whole.
func (d *deployment) end() {
	for _, n := range d.nodes {
		n.end(syscall.SIGTERM, 30*time.Second)
		n.finish()
	}
}

// flush empties Redis.
func (d *deployment) flush() {
	d.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", d.redis.Addr())
	must(d.tb, err)
	defer c.Close() //nolint:errcheck // the answer counts
	must(d.tb, c.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = c.Write([]byte("FLUSHALL\r\n"))
	must(d.tb, err)
	answer := make([]byte, 5)
	_, err = c.Read(answer)
	must(d.tb, err)
	if string(answer) != "+OK\r\n" {
		d.tb.Fatalf("FLUSHALL was answered %q", answer)
	}
}
