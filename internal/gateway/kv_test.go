package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
	"github.com/aether-gateway/gateway/internal/store"
)

func kvFrame(op *aetherv1.KVOperation) *aetherv1.UpstreamMessage {
	return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_KvOp{KvOp: op}}
}

// keys sends a request about keys and returns the answer and, if it failed, the
// error, which must be the next frame.
func keys(t *testing.T, p *gatewaytest.Peer, op *aetherv1.KVOperation) (*aetherv1.KVResponse, *aetherv1.ErrorResponse) {
	t.Helper()
	p.Up(kvFrame(op))
	answer := p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetKv() != nil }).GetKv()
	if answer.GetRequestId() != op.GetRequestId() {
		t.Errorf("the answer is to %q, not to %q", answer.GetRequestId(), op.GetRequestId())
	}
	if answer.GetSuccess() {
		return answer, nil
	}
	m, err := p.Recv()
	if err != nil || m.GetError() == nil || m.GetError().GetRequestId() != op.GetRequestId() || m.GetError().GetCode() != "KV_ERROR" {
		t.Fatalf("behind a failure: %v, %v", m, err)
	}
	return answer, m.GetError()
}

func kvPut(key, value string) *aetherv1.KVOperation {
	return &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PUT, Key: key, Value: []byte(value), RequestId: "put " + key}
}

// snapshotOf connects an agent and returns its second frame.
func snapshotOf(t *testing.T, g *gatewaytest.Gateway, spec string) (*gatewaytest.Peer, *aetherv1.ConfigSnapshot) {
	t.Helper()
	p := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "i"), gatewaytest.AgentInit("w", "i", spec))
	m, err := p.Recv()
	if err != nil || m.GetConfig() == nil {
		t.Fatalf("the second frame is %v, %v", m, err)
	}
	return p, m.GetConfig()
}

// What one agent writes, another finds when it connects; users have no keys and
// get no snapshot; answers come in the order of the requests, refusals too.
func Test15KeysOfAgents(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	a, first := snapshotOf(t, g, "1")
	if len(first.GetWorkspaceExclusiveKv())+len(first.GetGlobalExclusiveKv()) != 0 || first.GetTruncated() {
		t.Errorf("the first snapshot is %v", first)
	}
	for _, op := range []*aetherv1.KVOperation{kvPut("k", "v"), {Op: aetherv1.KVOperation_OP_TYPE_PUT, Scope: aetherv1.KVOperation_SCOPE_GLOBAL, Key: "g", Value: []byte("w")}} {
		if _, err := keys(t, a, op); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := keys(t, a, &aetherv1.KVOperation{Key: "missing", RequestId: "r"}); err != nil || len(r.GetValue()) != 0 {
		t.Errorf("a missing key: %v, %v", r, err)
	}
	_, s := snapshotOf(t, g, "2")
	if string(s.GetWorkspaceExclusiveKv()["k"]) != "v" || string(s.GetGlobalExclusiveKv()["g"]) != "w" {
		t.Errorf("the snapshot is %v", s)
	}
	// Pipelined, with refusals in between.
	for i := range 30 {
		op := kvPut("k", fmt.Sprint(i))
		if op.RequestId = fmt.Sprint(i); i%3 == 1 {
			op.Ttl = -1
		}
		a.Up(kvFrame(op))
	}
	for i := range 30 {
		r := a.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetKv() != nil }).GetKv()
		if r.GetRequestId() != fmt.Sprint(i) || r.GetSuccess() != (i%3 != 1) {
			t.Fatalf("answer %d is %v", i, r)
		}
	}
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	if _, err := keys(t, user, kvPut("k", "v")); err.GetDetails()["code"] != "ERR_INVALID_PRINCIPAL" || err.GetRetryable() {
		t.Errorf("a user: %v", err)
	}
	if _, err := keys(t, a, &aetherv1.KVOperation{Key: "k", RequestId: strings.Repeat("r", 128)}); err != nil {
		t.Error(err)
	}
	a.Up(kvFrame(&aetherv1.KVOperation{Key: "k", RequestId: strings.Repeat("r", 129)}))
	if e := a.Error(); e.GetCode() != "KV_ERROR" || e.GetRequestId() != "" {
		t.Errorf("a long request id: %v", e)
	}
}

func checkpointFrame(op *aetherv1.CheckpointOperation) *aetherv1.UpstreamMessage {
	return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_CheckpointOp{CheckpointOp: op}}
}

// A checkpoint survives the session and the gateway; a failure is told by the
// typed reply alone.
func Test15CheckpointsOutliveTheGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ask := func(p *gatewaytest.Peer, op *aetherv1.CheckpointOperation) *aetherv1.CheckpointResponse {
		p.Up(checkpointFrame(op))
		return p.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetCheckpoint() != nil }).GetCheckpoint()
	}
	g := gatewaytest.StartIn(t, dir)
	a, _ := snapshotOf(t, g, "1")
	if r := ask(a, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_SAVE, Key: "k", Data: []byte("state"), Ttl: -1, RequestId: "1"}); !r.GetSuccess() || r.GetRequestId() != "1" {
		t.Fatalf("saved: %v", r)
	}
	if r := ask(a, &aetherv1.CheckpointOperation{Key: "k", Ttl: -2, RequestId: "2"}); r.GetSuccess() || !strings.HasPrefix(r.GetError(), "ERR_INVALID_ARGUMENT: ttl") || r.GetRequestId() != "2" {
		t.Errorf("refused: %v", r)
	}
	g.Stop()
	g = gatewaytest.StartIn(t, dir)
	a, _ = snapshotOf(t, g, "1")
	if r := ask(a, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_LOAD, Key: "k", RequestId: "3"}); string(r.GetData()) != "state" || r.GetSavedAt() == 0 {
		t.Errorf("loaded: %v", r)
	}
}

// A client that asks and half-closes gets all its answers.
func TestKeysBeforeTheEnd(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	a, _ := snapshotOf(t, g, "1")
	const n = 50
	for i := range n {
		a.Up(kvFrame(kvPut(fmt.Sprint(i), "v")))
	}
	a.CloseSend()
	answered := 0
	if err := a.Ended(func(m *aetherv1.DownstreamMessage) {
		if m.GetKv().GetSuccess() {
			answered++
		}
	}); err == nil || answered != n {
		t.Errorf("%d answers, %v", answered, err)
	}
}

// Fifty at a time over two gateways on PostgreSQL: a guarded counter comes to
// its guard and not past it, a set has each member once, one of many makes a key.
func Test15AtomicOnTwoGateways(t *testing.T) {
	t.Parallel()
	redis, shared := redistest.Aged(t), gatewaytest.Shared(t)
	database := onPostgres(t)
	pg := func(o *gateway.Options) {
		database(o, nil)
		o.Keys.Store = o.Workspaces.(store.KV)
	}
	var gateways [2]*gatewaytest.Gateway
	var starting sync.WaitGroup
	for i := range gateways {
		starting.Go(func() {
			gateways[i] = gatewaytest.Start(t, shared, gatewaytest.WithRedis(t, redis.URL(), nil), pg)
		})
	}
	starting.Wait()
	const each, guard = 25, 37
	var applied, made, added atomic.Int32
	var clients sync.WaitGroup
	for i := range 2 * each {
		g := gateways[i%2]
		p := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "i"), gatewaytest.AgentInit("w", "i", fmt.Sprint(i)))
		clients.Go(func() {
			for _, c := range []struct {
				op    *aetherv1.KVOperation
				count *atomic.Int32
			}{
				{&aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_INCREMENT_IF, Key: "n", GuardValue: guard}, &applied},
				{&aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_NX, Key: "lock", Value: []byte(fmt.Sprint(i))}, &made},
				{&aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_ADD, Key: "s", Value: []byte(fmt.Sprint(i / 2))}, &added},
			} {
				r, err := keys(t, p, c.op)
				if err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				if r.GetApplied() {
					c.count.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if applied.Load() != guard || made.Load() != 1 || added.Load() != each {
		t.Errorf("%d counted, %d made, %d added", applied.Load(), made.Load(), added.Load())
	}
	p, s := snapshotOf(t, gateways[1], "last")
	if got := string(s.GetWorkspaceExclusiveKv()["n"]); got != fmt.Sprint(guard) {
		t.Errorf("the counter is at %s", got)
	}
	if r, err := keys(t, p, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_CARD, Key: "s"}); err != nil || r.GetCounterValue() != each {
		t.Errorf("the set has %v, %v", r, err)
	}
}

// slowKeys is a store whose keys are not answered until it is let go.
type slowKeys struct {
	store.KV
	begun   chan struct{} // closed when the first waits
	once    sync.Once
	release chan struct{}
}

func (s *slowKeys) ChangeKV(ctx context.Context, _ store.KVSpace, _ string, _ store.KVAccount, change func(time.Time, *store.KVRow) (store.KVChange, error)) error {
	s.once.Do(func() { close(s.begun) })
	select {
	case <-s.release:
		_, err := change(time.Now(), nil)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A slow request about keys holds up no sends (5.2), and the requests behind it
// wait, up to a bound.
func Test52SlowKeysHoldUpNothing(t *testing.T) {
	t.Parallel()
	slow := &slowKeys{begun: make(chan struct{}), release: make(chan struct{})}
	g := gatewaytest.Start(t, gatewaytest.Shared(t), func(o *gateway.Options) { slow.KV = o.Keys.Store; o.Keys.Store = slow })
	token := g.Token(auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "i", Spec: "*"})
	a := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "i", "1"))
	a.Up(kvFrame(kvPut("k", "v")))
	<-slow.begun
	const more = 200
	for i := range more {
		a.Up(kvFrame(kvPut(fmt.Sprint(i), "v")))
	}
	a.Send(send("ag::w::i::other", "r", "text"))
	refused := 0
	a.Until(func(m *aetherv1.DownstreamMessage) bool {
		if e := m.GetError(); e != nil {
			if e.GetCode() != "KV_ERROR" || e.GetDetails()["code"] != "ERR_RATE_LIMITED" || !e.GetRetryable() || e.GetRetryAfterMs() <= 0 {
				t.Errorf("refused by %v", e)
			}
			refused++
		}
		return m.GetReceipt() != nil
	})
	if refused == 0 || refused >= more {
		t.Errorf("%d of %d were refused", refused, more)
	}
	close(slow.release)
}

// A rule of operators denies keys by their names, also to sessions that are
// connected.
func Test43KeysByRule(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	a, _ := snapshotOf(t, g, "1")
	for _, key := range []string{"open", "secret/1"} {
		if _, err := keys(t, a, kvPut(key, "v")); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []store.Rule{
		{Effect: "deny", Principal: "ag::w::*::*", Action: "kv:read", Address: "workspace::w::i::secret/1", Grammar: "strict"},
		{Effect: "deny", Principal: "ag::w::i::*", Action: "kv:write", Address: "workspace::w::i::*", Grammar: "subtree"},
	} {
		if _, err := g.Router.Rules().Add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := keys(t, a, &aetherv1.KVOperation{Key: "secret/1"}); err.GetDetails()["code"] != "ERR_PERMISSION_DENIED" {
		t.Errorf("read: %v", err)
	}
	if _, err := keys(t, a, kvPut("open", "w")); err.GetDetails()["code"] != "ERR_PERMISSION_DENIED" {
		t.Errorf("written: %v", err)
	}
	if r, err := keys(t, a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST}); err != nil || len(r.GetKeys()) != 1 || string(r.GetKvMap()["open"]) != "v" {
		t.Errorf("listed: %v, %v", r, err)
	}
	if _, s := snapshotOf(t, g, "2"); len(s.GetWorkspaceExclusiveKv()) != 1 {
		t.Errorf("a snapshot has %v", s)
	}
}
