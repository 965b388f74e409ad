package gateway_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/url"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/rabbitmq"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// site is two gateways, each with connections of its own to real services. Those
// of b can be cut off, so that it is as dead to the others.
type site struct {
	*cluster
	database *testservices.Database
	broker   *testservices.Broker
	rows     *postgres.Store // of the test
	ways     []*faultproxy.Proxy
	starting chan struct{} // closed when a start is about to be stored
	may      chan struct{} // closed when it may be
	once     sync.Once
}

type tasksOf = store.Tasks

// slowTasks has starts wait until they may be stored.
type slowTasks struct {
	tasksOf
	s *site
}

func (x slowTasks) CreateTask(ctx context.Context, t store.Task) (store.Task, bool, error) {
	if t.Launch != "" {
		x.s.once.Do(func() { close(x.s.starting) })
		select {
		case <-x.s.may:
		case <-ctx.Done():
			return t, false, ctx.Err()
		}
	}
	return x.tasksOf.CreateTask(ctx, t)
}

func newSite(t *testing.T) *site {
	t.Helper()
	ctx := within(t, time.Minute)
	s := &site{cluster: &cluster{redis: redistest.Aged(t)}, starting: make(chan struct{}), may: make(chan struct{})}
	var starting sync.WaitGroup
	starting.Go(func() { s.database = testservices.NewPostgres(t) })
	starting.Go(func() { s.broker = testservices.NewBroker(t) })
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	check(t, postgres.WithDB(ctx, s.database.URL(), func(ctx context.Context, db *sql.DB) error { return migrate.Up(ctx, migrate.Postgres, db) }))
	s.rows = s.open(t, s.database.URL())
	a := s.gateway(t, func(address string) string { return address })
	b := s.gateway(t, func(address string) string {
		u, err := url.Parse(address)
		check(t, err)
		way := faultproxy.New(t, u.Host)
		s.ways = append(s.ways, way)
		u.Host = way.Addr()
		return u.String()
	})
	starting.Go(func() { s.a = gatewaytest.Start(t, a...) })
	starting.Go(func() { s.b = gatewaytest.Start(t, b...) })
	starting.Wait()
	if s.a == nil || s.b == nil {
		t.FailNow()
	}
	return s
}

func (s *site) open(t *testing.T, address string) *postgres.Store {
	t.Helper()
	rows, err := postgres.Open(context.Background(), address, postgres.Options{Timeout: 2 * time.Second})
	check(t, err)
	t.Cleanup(func() { _ = rows.Close() })
	return rows
}

// gateway returns the options of one that reaches its services by way.
func (s *site) gateway(t *testing.T, way func(string) string) []gatewaytest.Option {
	t.Helper()
	place := streams.Placement{Partitions: 2}
	driver, err := rabbitmq.Open(within(t, time.Minute), rabbitmq.Options{
		URLs: []string{way(s.broker.URL())}, Streams: []string{place.StreamName(0), place.StreamName(1), streams.DeadLetterStream},
	})
	check(t, err)
	t.Cleanup(func() { _ = driver.Close() })
	rows := s.open(t, way(s.database.URL()))
	return []gatewaytest.Option{
		gatewaytest.WithRedis(t, way(s.redis.URL()), func(*redis.Options) {}),
		func(o *gateway.Options) {
			o.Driver, o.Placement = driver, place
			o.Positions, o.Members, o.Workspaces, o.Rules, o.Feed, o.Records = rows, rows, rows, rows, rows, rows
			o.Implementations, o.Credentials, o.Grants, o.Keys.Store, o.Tasks = rows, rows, rows, rows, slowTasks{rows, s}
		},
	}
}

// vanish cuts b off from everything: its sessions, and what it holds.
func (s *site) vanish(off bool) {
	for _, way := range s.ways {
		way.Blackhole(off)
	}
}

// starts are those of an identity, the youngest first.
func (s *site) starts(t *testing.T, identity string) []store.Task {
	t.Helper()
	list, err := s.rows.Tasks(within(t, patience), store.TaskFilter{AssignedTo: identity, Modes: []store.TaskMode{store.TaskStart}}, store.TaskPage{}, 10)
	check(t, err)
	return list
}

// A start over its whole life on real services. PostgreSQL dies when the message
// is stored and its start is not yet: that is made up for, by one start. A gateway vanishes that holds a start: it is assigned again by the
// other one, as a second attempt, and the first token is worth nothing. With the
// broker down a send is refused, and starts nobody.
func TestRow20StartOnServices(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	register(t, s.a, "echo", "process")
	first := orchestrator(t, s.b, "1", "process")
	user := s.user(t, s.a)

	for _, text := range []string{"1", "2"} {
		user.Send(send(echo, text, text))
		user.Receipt()
	}
	select {
	case <-s.starting:
	case <-time.After(patience):
		t.Fatal("nothing is started")
	}
	s.database.Kill()
	close(s.may)
	s.database.Start()
	a := assignment(first)
	if a.GetAssignedTo() != echo {
		t.Errorf("assigned %v", a)
	}
	agent, err := worker(t, s.a, a)
	check(t, err)
	for _, want := range []string{"1", "2"} {
		m := agent.Message()
		if string(m.GetPayload()) != want {
			t.Errorf("got %q, want %q", m.GetPayload(), want)
		}
		agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: m.GetDeliveryId()})
	}
	if err := agent.Leave(); !errors.Is(err, io.EOF) {
		t.Errorf("the worker's end: %v", err)
	}
	s.await(t, echo, store.TaskCompleted, 1)
	if list := s.starts(t, echo); len(list) != 1 {
		t.Errorf("%d starts", len(list))
	}

	const second = "ag::w::echo::2"
	user.Send(send(second, "3", "3"))
	user.Receipt()
	a = assignment(first)
	s.vanish(true)
	orc := orchestrator(t, s.a, "2", "process")
	again := assignment(orc)
	s.vanish(false) // too late
	if again.GetTaskId() != a.GetTaskId() || again.GetAssignedTo() != second {
		t.Errorf("assigned again %v after %v", again, a)
	}
	if _, err := worker(t, s.a, a); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the first token: %v", err)
	}
	if agent, err = worker(t, s.a, again); err != nil {
		t.Fatal(err)
	}
	m := agent.Message()
	if string(m.GetPayload()) != "3" {
		t.Errorf("got %q", m.GetPayload())
	}
	s.await(t, second, store.TaskRunning, 2)

	const third = "ag::w::echo::3"
	s.broker.Kill()
	user.Send(send(third, "4", "4"))
	if refusal := user.Error(); refusal.GetRequestId() != "4" || refusal.GetCode() != "ERR_UNAVAILABLE" || !refusal.GetRetryable() {
		t.Errorf("with the broker down: %v", refusal)
	}
	user.Heartbeat()
	if list := s.starts(t, third); len(list) != 0 {
		t.Errorf("started without a message: %v", list)
	}
	if list := s.starts(t, second); len(list) != 1 {
		t.Errorf("%d starts of %s", len(list), second)
	}
}

// await waits for the youngest start of an identity to be so.
func (s *site) await(t *testing.T, identity string, state store.TaskState, attempt int32) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		list := s.starts(t, identity)
		if len(list) > 0 && list[0].State == state && list[0].Attempt == attempt {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v, want %s at attempt %d", identity, list, state, attempt)
		}
	}
}
