package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
	"github.com/aether-gateway/gateway/internal/store"
)

// realm is two gateways in which an operator creates workspaces.
type realm struct {
	a, b  *gatewaytest.Gateway
	later atomic.Int64 // by how much the store's clock is ahead, in ns
}

func newRealm(t *testing.T, workspaces ...string) *realm {
	t.Helper()
	return realmOn(t, func(*gateway.Options, func() time.Time) {}, workspaces...)
}

// realmOn is newRealm with another store than that of the embedded log, for each
// gateway.
func realmOn(t *testing.T, store func(*gateway.Options, func() time.Time), workspaces ...string) *realm {
	t.Helper()
	r := &realm{}
	redis := redistest.Aged(t)
	now := func() time.Time { return time.Now().Add(time.Duration(r.later.Load())) }
	shared := gatewaytest.SharedAt(t, now)
	ruled := func(o *gateway.Options) {
		o.AutoCreate = false
		store(o, now)
	}
	var starting sync.WaitGroup
	starting.Go(func() { r.a = gatewaytest.Start(t, shared, ruled, gatewaytest.WithRedis(t, redis.URL(), nil)) })
	starting.Go(func() { r.b = gatewaytest.Start(t, shared, ruled, gatewaytest.WithRedis(t, redis.URL(), nil)) })
	starting.Wait()
	if r.a == nil || r.b == nil {
		t.FailNow()
	}
	for _, name := range workspaces {
		r.create(t, name)
	}
	return r
}

// create creates a workspace on one gateway and waits for the other.
func (r *realm) create(t *testing.T, name string) {
	t.Helper()
	if _, created, err := r.a.Router.CreateWorkspace(context.Background(), name, "test"); err != nil || !created {
		t.Fatalf("workspace %q was not created: %v", name, err)
	}
	eventually(t, "the other gateway knows of "+name, func() bool {
		_, exists := r.b.Router.Spaces().Check(name)
		return exists
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("not so: " + what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// user connects a window of a user who has a token for the workspaces, in the
// first of them.
func (r *realm) user(t *testing.T, g *gatewaytest.Gateway, window string, workspaces ...string) (*gatewaytest.Peer, error) {
	t.Helper()
	init := gatewaytest.UserInit("u", window)
	init.Workspace = workspaces[0]
	return gatewaytest.Dial(t, g.Addr, g.UserToken("u", workspaces...), init)
}

func (r *realm) agent(t *testing.T, g *gatewaytest.Gateway, workspace, spec string) *gatewaytest.Peer {
	t.Helper()
	return gatewaytest.MustDial(t, g.Addr, g.AgentToken(workspace, "echo"), gatewaytest.AgentInit(workspace, "echo", spec))
}

func (r *realm) service(t *testing.T, g *gatewaytest.Gateway) *gatewaytest.Peer {
	t.Helper()
	token := g.Token(auth.Claims{Kind: auth.KindService, Workspaces: []string{"*"}, Impl: "i", Spec: "*"})
	return gatewaytest.MustDial(t, g.Addr, token, &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Service{Service: &aetherv1.ServiceIdentity{Implementation: "i", Specifier: "1"}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	})
}

// ended wants a session to end with a signal and a status, and nothing to be
// delivered before that.
func ended(t *testing.T, peer *gatewaytest.Peer, code string) {
	t.Helper()
	signalled := ""
	for {
		m, err := peer.Recv()
		switch {
		case err != nil:
			if status.Code(err) != codes.PermissionDenied || signalled != code {
				t.Errorf("ended with %v after the signal %q, want %q", err, signalled, code)
			}
			return
		case m.GetSignal() != nil:
			signalled = m.GetSignal().GetCode()
		case m.GetMsg() != nil:
			t.Errorf("delivered: %q to %s", m.GetMsg().GetPayload(), m.GetMsg().GetTopic())
		}
	}
}

// answers sends a message and returns the code of the refusal, "" for a receipt.
func answers(peer *gatewaytest.Peer, m *aetherv1.SendMessage) string {
	peer.Send(m)
	frame := peer.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
	return frame.GetError().GetCode()
}

// Nobody connects into a workspace that does not exist, or sends to one, and
// who tries is told what to do.
func Test42WorkspacesAreCreated(t *testing.T) {
	t.Parallel()
	r := newRealm(t, "w")
	for _, name := range []string{"nowhere", "';drop_table_workspaces;--", "../../etc", "W"} {
		_, err := gatewaytest.Dial(t, r.b.Addr, r.b.AgentToken(name, "echo"), gatewaytest.AgentInit(name, "echo", "1"))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "gateway workspace create") {
			t.Errorf("an agent in %q: %v", name, err)
		}
		if _, err := r.user(t, r.a, "1", name); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a user in %q: %v", name, err)
		}
	}
	service := r.service(t, r.b)
	if code := answers(service, send("ag::nowhere::echo::1", "lost", "m1")); code != "ERR_NOT_FOUND" {
		t.Errorf("a send to nowhere: %q", code)
	}
	if code := answers(service, send("ag::w::echo::1", "kept", "m2")); code != "" {
		t.Errorf("a send to w: %q", code)
	}
	r.create(t, "nowhere")
	if code := answers(service, send("ag::nowhere::echo::1", "found", "m3")); code != "" {
		t.Errorf("a send to a new workspace: %q", code)
	}
	if m := r.agent(t, r.a, "nowhere", "1").Message(); string(m.GetPayload()) != "found" {
		t.Errorf("the refused send was stored: %q", m.GetPayload())
	}
}

// A member who is removed gets nothing more from the workspace, on either
// gateway: not on the streams that are open, not on new ones, not what was sent
// to them before and waits.
func Test42RemovedMemberGetsNothingMore(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		removeMember(t, newRealm(t, "w", "v"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		removeMember(t, realmOn(t, onPostgres(t), "w", "v"))
	})
}

func removeMember(t *testing.T, r *realm) {
	t.Helper()
	ctx := context.Background()
	agent := r.agent(t, r.b, "w", "1")
	here, err := r.user(t, r.a, "1", "w", "v")
	check(t, err)
	there, err := r.user(t, r.b, "2", "w", "v")
	check(t, err)
	elsewhere, err := r.user(t, r.b, "3", "v", "w")
	check(t, err)
	here.Heartbeat()
	// To a window that is away; it is the last thing that may be sent.
	eventually(t, "the agent's gateway knows the member", func() bool {
		return answers(agent, send("us::u::4", "canary", fmt.Sprint("w", time.Now().UnixNano()))) == ""
	})

	began := time.Now()
	check(t, r.a.Router.RuleMember(ctx, "w", "u", store.RuledOut))
	ended(t, here, "MEMBERSHIP_REVOKED")
	ended(t, there, "MEMBERSHIP_REVOKED")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the sessions ended after %v", took)
	}
	eventually(t, "the agent may not write to the user", func() bool {
		return answers(agent, send("us::u::3", "", fmt.Sprint("x", time.Now().UnixNano()))) == "ERR_PERMISSION_DENIED"
	})
	for _, to := range []string{"gu::w", "uw::u::w"} {
		answers(agent, send(to, "canary", "c-"+to))
	}
	for _, g := range []*gatewaytest.Gateway{r.a, r.b} {
		if _, err := r.user(t, g, "1", "w", "v"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the user connects again: %v", err)
		}
	}
	// The other workspace is not touched, and the mail of this one is gone.
	away, err := r.user(t, r.a, "4", "v", "w")
	check(t, err)
	colleague := r.agent(t, r.a, "v", "1")
	for _, to := range []string{"us::u::3", "us::u::4"} {
		if code := answers(colleague, send(to, "from v", "v-"+to)); code != "" {
			t.Errorf("%s from v: %s", to, code)
		}
	}
	for _, peer := range []*gatewaytest.Peer{away, elsewhere} {
		for {
			m := peer.Message()
			if string(m.GetPayload()) == "from v" {
				break
			}
			if m.GetWorkspace() == "w" && string(m.GetPayload()) != "" {
				t.Errorf("delivered: %q to %s", m.GetPayload(), m.GetTopic())
			}
		}
	}
	// Until it is ruled otherwise.
	check(t, r.b.Router.RuleMember(ctx, "w", "u", store.Unruled))
	eventually(t, "the user is a member again", func() bool {
		_, err := r.user(t, r.a, "1", "w", "v")
		return err == nil
	})
}

// A deleted workspace ends for everybody, and its name does not bring back what
// was sent to it.
func Test42DeletedWorkspace(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		deleteWorkspace(t, newRealm(t, "w", "v"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		deleteWorkspace(t, realmOn(t, onPostgres(t), "w", "v"))
	})
}

func deleteWorkspace(t *testing.T, r *realm) {
	t.Helper()
	ctx := context.Background()
	service := r.service(t, r.a)
	here, there := r.agent(t, r.a, "w", "1"), r.agent(t, r.b, "w", "2")
	user, err := r.user(t, r.b, "1", "w", "v")
	check(t, err)
	bystander := r.agent(t, r.b, "v", "1")
	// Two are away: their addresses are noted by this gateway.
	for i, spec := range []string{"3", "4"} {
		if code := answers(service, send("ag::w::echo::"+spec, "old", fmt.Sprint("old", i))); code != "" {
			t.Fatalf("a send: %s", code)
		}
	}

	began := time.Now()
	check(t, r.b.Router.DeleteWorkspace(ctx, "w"))
	for _, peer := range []*gatewaytest.Peer{here, there, user} {
		ended(t, peer, "WORKSPACE_DELETED")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the sessions ended after %v", took)
	}
	if code := answers(service, send("ag::w::echo::1", "late", "late")); code != "ERR_NOT_FOUND" {
		t.Errorf("a send to a deleted workspace: %q", code)
	}
	if code := answers(service, send("ag::v::echo::1", "v", "v")); code != "" || string(bystander.Message().GetPayload()) != "v" {
		t.Errorf("another workspace: %q", code)
	}
	for _, g := range []*gatewaytest.Gateway{r.a, r.b} {
		if _, err := gatewaytest.Dial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1")); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("an agent connects again: %v", err)
		}
	}
	if _, _, err := r.a.Router.CreateWorkspace(ctx, "w", "test"); err == nil {
		t.Error("the name did not rest")
	}

	r.later.Add(int64(store.WorkspaceRest))
	r.create(t, "w")
	eventually(t, "the first gateway knows of the new era", func() bool {
		era, exists := r.a.Router.Spaces().Check("w")
		return exists && era == 1
	})
	if code := answers(service, send("ag::w::echo::3", "new", "new")); code != "" {
		t.Errorf("a send to the new workspace: %q", code)
	}
	for _, g := range []*gatewaytest.Gateway{r.b, r.a} {
		agent := r.agent(t, g, "w", map[bool]string{true: "3", false: "4"}[g == r.b])
		if g == r.a {
			if code := answers(service, send("ag::w::echo::4", "new", "new4")); code != "" {
				t.Errorf("a send to the new workspace: %q", code)
			}
		}
		if m := agent.Message(); string(m.GetPayload()) != "new" {
			t.Errorf("the new workspace gets %q", m.GetPayload())
		}
	}
	// Who was a member by an earlier connect is none now.
	if code := answers(r.agent(t, r.a, "w", "5"), send("us::u::1", "us", "us")); code != "ERR_PERMISSION_DENIED" {
		t.Errorf("a member of the deleted workspace: %q", code)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
