package testservices

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// clusterNodes is the size of a cluster: one node may be lost.
const clusterNodes = 3

// RabbitCluster is a private RabbitMQ cluster of three nodes, on each of which
// every stream has a replica. It belongs to one test, which may kill, stop and
// start its nodes by the methods of Node. Its methods are for the test's own
// goroutine.
type RabbitCluster struct {
	tb    testing.TB
	names *Broker // holds the epmd of all nodes; it is no node
	nodes []*Broker

	mu     sync.Mutex
	formed bool // all nodes have been up together
}

// NewRabbitCluster starts a cluster for this test alone, which takes some 15 s.
//
// A client of a cluster dials the addresses that its nodes advertise. If
// advertise is not nil it is called with each node's port before the node
// starts, and returns the port on 127.0.0.1 that the node advertises instead,
// that of a proxy say.
func NewRabbitCluster(tb testing.TB, advertise func(port int) int) *RabbitCluster {
	tb.Helper()
	c, err := newRabbitCluster(tb, advertise)
	if err != nil {
		tb.Fatalf("testservices: RabbitMQ cluster: %v", err)
	}
	return c
}

func newRabbitCluster(tb testing.TB, advertise func(port int) int) (*RabbitCluster, error) {
	script, epmd, err := findRabbitMQ()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		c := &RabbitCluster{tb: tb}
		err := c.create(script, epmd, advertise)
		if err == nil {
			tb.Cleanup(c.end)
			return c, nil
		}
		c.end()
		if !errors.Is(err, errExited) || try == attempts {
			return nil, err
		}
	}
}

func (c *RabbitCluster) create(script, epmd string, advertise func(int) int) error {
	dir, err := newDir("rabbitcluster")
	if err != nil {
		return err
	}
	c.names = &Broker{epmd: epmd, dir: dir}
	if err := freePorts(&c.names.epmdPort); err != nil {
		return err
	}
	if err := c.names.startNames(); err != nil {
		return err
	}
	for i := range clusterNodes {
		b := &Broker{tb: c.tb, script: script, epmdPort: c.names.epmdPort, cluster: c}
		if err := freePorts(&b.streamPort, &b.amqpPort, &b.distPort); err != nil {
			return err
		}
		if advertise != nil {
			b.advertisedPort = advertise(b.streamPort)
		}
		b.node = fmt.Sprintf("test%d-%d@localhost", b.epmdPort, i)
		if b.dir, err = newDir(fmt.Sprintf("rabbitmq-%d", i)); err != nil {
			return err
		}
		c.nodes = append(c.nodes, b)
		// The first node founds the cluster, and each other one joins it.
		err := b.configure("testservices"+fmt.Sprint(b.epmdPort),
			"cluster_formation.peer_discovery_backend = classic_config",
			"cluster_formation.classic_config.nodes.1 = "+c.nodes[0].node,
			"cluster_formation.node_cleanup.only_log_warning = true",
			// A node that is cut off from the others stops serving.
			"cluster_partition_handling = pause_minority",
		)
		if err != nil {
			return err
		}
		if err := b.boot(); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	// A stream gets replicas on the nodes that are there when it is made.
	err = poll(brokerStartLimit, nil, func() error { return probe(c.nodes[0].streamPort) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.formed = true
	c.mu.Unlock()
	for i, b := range c.nodes {
		err := b.beam.await(brokerStartLimit, func() error { return errors.Join(b.settled(), b.ready()) })
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return nil
}

// joined tells whether a node that is up holds a replica of the probe's stream,
// and so of every stream, and knows its leader. With too few nodes to elect one
// that is not asked for.
func (c *RabbitCluster) joined(b *Broker) error {
	c.mu.Lock()
	formed := c.formed
	c.mu.Unlock()
	if !formed {
		return dial(b.streamPort)
	}
	running := 0
	for _, other := range c.nodes {
		if other == b || other.running() {
			running++
		}
	}
	if running <= clusterNodes/2 {
		return dial(b.streamPort)
	}
	s, err := stateOfStream(b.streamPort, probeStream)
	switch {
	case err != nil:
		return err
	case s.code != codeOK:
		return fmt.Errorf("the stream of the probe is not available: code %d", s.code)
	case s.leader == 0:
		return errors.New("the stream of the probe has no leader")
	case s.leader != b.advertisedPort && !slices.Contains(s.replicas, b.advertisedPort):
		return errors.New("the node has no replica of the probe's stream yet")
	}
	return nil
}

// Nodes returns how many nodes the cluster has.
func (c *RabbitCluster) Nodes() int { return len(c.nodes) }

// Node returns one of them, the first is 0. Start of a node returns when it
// serves a replica again, provided that a majority runs. After a loss of all
// nodes the one that was lost last is to be started first: others wait for it.
func (c *RabbitCluster) Node(i int) *Broker { return c.nodes[i] }

// URLs returns the addresses of all nodes for a stream client, at the ports
// that they advertise, separated by commas.
func (c *RabbitCluster) URLs() string {
	var list []string
	for _, b := range c.nodes {
		list = append(list, fmt.Sprintf("rabbitmq-stream://guest:guest@%s/%%2f", loopback(b.advertisedPort)))
	}
	return strings.Join(list, ",")
}

// Leader returns the number of the node that leads a stream, as the first
// running node tells that knows one. It waits up to three minutes for an election.
func (c *RabbitCluster) Leader(stream string) int {
	c.tb.Helper()
	leader := -1
	err := poll(brokerStartLimit, nil, func() error {
		var errs []error
		for _, b := range c.nodes {
			if !b.running() || stateOf(fmt.Sprintf("/proc/%d/stat", b.PID())) == 'T' {
				continue
			}
			s, err := stateOfStream(b.streamPort, stream)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			leader = slices.IndexFunc(c.nodes, func(b *Broker) bool { return b.advertisedPort == s.leader })
			if s.code == codeOK && leader >= 0 && c.nodes[leader].running() {
				return nil
			}
			errs = append(errs, fmt.Errorf("code %d, leader %d", s.code, leader))
		}
		return errors.Join(errors.New("no leader"), errors.Join(errs...))
	})
	if err != nil {
		c.tb.Fatalf("testservices: RabbitMQ cluster: leader of %q: %v", stream, err)
	}
	return leader
}

// running tells whether the node's process has not ended.
func (b *Broker) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beam != nil && !b.beam.exited()
}

func (c *RabbitCluster) end() {
	for _, b := range c.nodes {
		b.end()
	}
	c.names.end()
	for i, b := range c.nodes {
		if said := b.said(); c.tb.Failed() && said != "" {
			c.tb.Logf("testservices: RabbitMQ node %d said:\n%s", i, said)
		}
		if err := os.RemoveAll(b.dir); err != nil {
			c.tb.Errorf("testservices: RabbitMQ: %v", err)
		}
	}
	if err := os.RemoveAll(c.names.dir); err != nil {
		c.tb.Errorf("testservices: RabbitMQ: %v", err)
	}
}
