package testservices

import (
	"fmt"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// A cluster loses the node that leads a stream: another one leads, what was
// stored is there, and the lost node comes back as a replica.
func TestRabbitCluster(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := NewRabbitCluster(t, nil)
	t.Logf("up after %v", time.Since(began))
	publish(t, c.Node(0), "first")
	for i := range c.Nodes() {
		// A replica whose start fails on a busy machine is started again.
		err := poll(brokerStartLimit, nil, func() error {
			s, err := stateOfStream(c.Node(i).StreamPort(), "first")
			if err == nil && (s.leader == 0 || len(s.replicas) != c.Nodes()-1) {
				err = fmt.Errorf("%+v", s)
			}
			return err
		})
		if err != nil {
			t.Errorf("node %d says of the stream: %v", i, err)
		}
	}

	old := c.Leader("first")
	c.Node(old).Kill()
	began = time.Now()
	leader := c.Leader("first")
	t.Logf("node %d leads instead of node %d after %v", leader, old, time.Since(began))
	if leader == old {
		t.Errorf("node %d leads although it was killed", old)
	}
	publish(t, c.Node(leader), "first")

	began = time.Now()
	c.Node(old).Start()
	t.Logf("back after %v", time.Since(began))

	paused := (leader + 1) % c.Nodes()
	c.Node(paused).Stop()
	c.Node(paused).Cont()

	// The nodes lead different streams: a client must find its way.
	env, err := stream.NewEnvironment(stream.NewEnvironmentOptions().SetUris([]string{c.Node(0).URL(), c.Node(1).URL()}))
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	for i := range 6 {
		name := fmt.Sprintf("other-%d", i)
		if err := env.DeclareStream(name, stream.NewStreamOptions()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s is led by node %d", name, c.Leader(name))
	}
}

func TestRabbitClusterAdvertises(t *testing.T) {
	t.Parallel()
	c := &RabbitCluster{nodes: []*Broker{{advertisedPort: 1}, {advertisedPort: 2}}}
	const want = "rabbitmq-stream://guest:guest@127.0.0.1:1/%2f,rabbitmq-stream://guest:guest@127.0.0.1:2/%2f"
	if got := c.URLs(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzStreamState(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 'h', 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, 's', 0, 1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStreamState(b)
		if err == nil && len(s.replicas) > len(b)/2 {
			t.Errorf("%d replicas in %d bytes", len(s.replicas), len(b))
		}
	})
}
