package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/presence/redis"
)

// dial connects an agent, and waits while leases cannot be had.
func (c *cluster) dial(t *testing.T, g *gatewaytest.Gateway, resume string) (*gatewaytest.Peer, error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		init := gatewaytest.AgentInit("w", "echo", "1")
		init.ResumeSessionId = resume
		peer, err := gatewaytest.Dial(t, g.Addr, c.token, init)
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			return peer, err
		}
		if err := hinted(err); err != nil {
			t.Fatal(err)
		}
	}
}

// hinted says what is wrong with a refusal that should say when to come back.
func hinted(err error) error {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok && r.GetRetryDelay().AsDuration() > 0 {
			return nil
		}
	}
	return fmt.Errorf("no hint when to connect again: %w", err)
}

// Redis loses all its state: who holds an identity goes on holding it, others
// are kept waiting until that is known, and epochs go on rising.
func TestL1EmptiedRedis(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	user := c.user(t, c.b)
	holder := c.agent(t, c.a, nil)
	c.redis.Kill()
	c.redis.Start()
	if _, err := c.dial(t, c.b, ""); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("beside the holder: %v", err)
	}
	sendAll(user, 1, 3)
	reads(t, holder, 1, 3)
	epoch := holder.Ack.GetEpoch()
	if floor := time.Now().Add(-time.Hour).UnixMilli(); epoch < uint64(floor) {
		t.Errorf("an epoch of %d", epoch)
	}
	_ = holder.Leave()
	next, err := c.dial(t, c.b, holder.SessionID())
	if err != nil || next.Ack.GetEpoch() <= epoch {
		t.Fatalf("after the holder: %v, %v", next, err)
	}
}

// A gateway that cannot renew ends its streams before another one gives their
// identities away, and what is sent meanwhile arrives there, once.
func TestL2FenceBeforeTakeover(t *testing.T) {
	t.Parallel()
	var proxy *faultproxy.Proxy
	c := newCluster(t, func(o *redis.Options) {
		proxy = faultproxy.New(t, strings.TrimSuffix(strings.TrimPrefix(o.URL, "redis://"), "/0"))
		o.URL = "redis://" + proxy.Addr() + "/0"
	})
	user := c.user(t, c.b)
	holder := c.agent(t, c.a, nil)
	sendAll(user, 1, 2)
	at := reads(t, holder, 1, 2)
	holder.Acknowledge(&aetherv1.DeliveryAck{UpTo: at.GetDeliveryId()})
	holder.Heartbeat()
	proxy.Blackhole(true)
	sendAll(user, 3, 4)
	// The holder gets on with its life until the fence falls.
	reads(t, holder, 3, 4)
	next, err := c.dial(t, c.b, "")
	for deadline := time.Now().Add(patience); status.Code(err) == codes.AlreadyExists && time.Now().Before(deadline); {
		next, err = c.dial(t, c.b, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	if fence := c.a.Presence.Fence(); !fence.Fenced() {
		t.Error("the identity was given away while its gateway could act")
	}
	if _, err := holder.Recv(); status.Code(err) != codes.Unavailable || hinted(err) != nil {
		t.Errorf("the fenced stream ended with %v", err)
	}
	sendAll(user, 5, 6)
	for want := 3; want <= 6; want++ {
		m := next.Message()
		if string(m.GetPayload()) == "1" || string(m.GetPayload()) == "2" {
			want-- // acknowledged in about the last second before
			continue
		}
		if string(m.GetPayload()) != fmt.Sprint(want) {
			t.Fatalf("got %q, want %d", m.GetPayload(), want)
		}
	}
	proxy.Blackhole(false)
}

// The id of a predecessor counts until its successor's first frame, and no
// longer.
func TestL5PredecessorUntilFirstFrame(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first := c.agent(t, c.a, nil)
	second := c.agent(t, c.b, first)
	// The answer to the second was lost, for all that the client knows.
	third, err := c.dial(t, c.a, first.SessionID())
	if err != nil || !third.Ack.GetResumed() {
		t.Fatalf("before the first frame: %v", err)
	}
	if _, err := recvEnd(second); status.Code(err) != codes.Aborted {
		t.Errorf("the second ended with %v", err)
	}
	// The confirmation travels with a heartbeat of the gateway, which it hurries:
	// once it is there, the old id is worth nothing.
	third.Heartbeat()
	for deadline := time.Now().Add(patience); ; {
		peer, err := c.dial(t, c.b, first.SessionID())
		if status.Code(err) == codes.AlreadyExists {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("after the first frame: %v", err)
		}
		third = peer
		third.Heartbeat()
	}
	third.Heartbeat()
}

// recvEnd reads a stream to its end.
func recvEnd(p *gatewaytest.Peer) (n int, err error) {
	for {
		if _, err = p.Recv(); err != nil {
			return n, err
		}
		n++
	}
}

// Of twenty clients that race for an identity over two gateways one wins, each
// time.
func TestRaceOverTwoGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for round := range 5 {
		var mu sync.Mutex
		var winners []*gatewaytest.Peer
		var wg sync.WaitGroup
		for i := range 20 {
			g := c.a
			if i%2 == 0 {
				g = c.b
			}
			wg.Go(func() {
				peer, err := gatewaytest.Dial(t, g.Addr, c.token, gatewaytest.AgentInit("w", "echo", fmt.Sprint("race-", round)))
				switch status.Code(err) {
				case codes.OK:
					mu.Lock()
					winners = append(winners, peer)
					mu.Unlock()
				case codes.AlreadyExists:
				default:
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 {
			t.Fatalf("round %d: %d winners", round, len(winners))
		}
		winners[0].Heartbeat()
	}
}

// A task without a name keeps its id on another gateway.
func TestTaskResumesElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	init := func(resume string) *aetherv1.InitConnection {
		return &aetherv1.InitConnection{
			Identity:        &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "job"}},
			Delivery:        &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
			ResumeSessionId: resume,
		}
	}
	token := c.a.Token(auth.Claims{Kind: auth.KindTask, Workspaces: []string{"w"}, Impl: "job"})
	first := gatewaytest.MustDial(t, c.a.Addr, token, init(""))
	second := gatewaytest.MustDial(t, c.b.Addr, token, init(first.SessionID()))
	if first.Ack.GetAssignedId() != second.Ack.GetAssignedId() {
		t.Errorf("it was %s and is %s", first.Ack.GetAssignedId(), second.Ack.GetAssignedId())
	}
	other := gatewaytest.MustDial(t, c.b.Addr, token, init(strings.Repeat("x", 10_000)))
	if other.Ack.GetAssignedId() == first.Ack.GetAssignedId() {
		t.Error("a session id that is none is as good")
	}
}
