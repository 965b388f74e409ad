package gateway_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/store"
)

func switchTo(peer *gatewaytest.Peer, workspace string) {
	peer.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_SwitchWorkspace{SwitchWorkspace: &aetherv1.SwitchWorkspace{NewWorkspaceId: workspace}}})
}

// switched changes the workspace and returns the code of the refusal, "" if the
// user is in the new one. What comes before that is handed to seen, which may be
// nil.
func switched(t *testing.T, peer *gatewaytest.Peer, workspace string, seen func(*aetherv1.DownstreamMessage)) (refusal string) {
	t.Helper()
	switchTo(peer, workspace)
	m := peer.Until(func(m *aetherv1.DownstreamMessage) bool {
		if m.GetWorkspaceSwitched() != nil || m.GetError().GetDetails()["frame"] == "switch_workspace" {
			return true
		}
		if seen != nil {
			seen(m)
		}
		return false
	})
	if e := m.GetError(); e != nil {
		return e.GetCode()
	}
	if got := m.GetWorkspaceSwitched().GetWorkspace(); got != workspace {
		t.Errorf("switched to %q, not %q", got, workspace)
	}
	return ""
}

// window connects a window of u, whose token covers workspaces, in the first of
// them; "" is none.
func window(t *testing.T, g *gatewaytest.Gateway, name, in string, workspaces ...string) *gatewaytest.Peer {
	t.Helper()
	init := gatewaytest.UserInit("u", name)
	init.Workspace = in
	return gatewaytest.MustDial(t, g.Addr, g.UserToken("u", workspaces...), init)
}

// bridge is one, which may write everywhere.
func bridge(t *testing.T, g *gatewaytest.Gateway) *gatewaytest.Peer {
	t.Helper()
	return bridgeCalled(t, g, "1")
}

func bridgeCalled(t *testing.T, g *gatewaytest.Gateway, name string) *gatewaytest.Peer {
	t.Helper()
	token := g.Token(auth.Claims{Kind: auth.KindBridge, Workspaces: []string{"*"}, Impl: "i", Spec: "*"})
	return gatewaytest.MustDial(t, g.Addr, token, &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Bridge{Bridge: &aetherv1.BridgeIdentity{Implementation: "i", Specifier: name}},
		Delivery: &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT},
	})
}

// shouts sends to all that is shared with u in a workspace, and waits until it is
// stored.
func shouts(t *testing.T, from *gatewaytest.Peer, workspace, text string) {
	t.Helper()
	for _, to := range []string{"gu::" + workspace, "uw::u::" + workspace, "pg::" + workspace} {
		if code := answers(from, send(to, text+" "+workspace, to)); code != "" {
			t.Fatalf("%s: %s", to, code)
		}
	}
}

// hears wants that a peer hears a workspace's three shared addresses and nothing
// before.
func hears(t *testing.T, peer *gatewaytest.Peer, workspace, text string) {
	t.Helper()
	for range 3 {
		if m := peer.Message(); string(m.GetPayload()) != text+" "+workspace {
			t.Fatalf("got %q by %s, want what was sent in %s", m.GetPayload(), m.GetTopic(), workspace)
		}
	}
}

// gateway.md 16, on two gateways.
func Test16Switch(t *testing.T) {
	t.Parallel()
	r := newRealm(t, "w", "v", "x")
	t.Run("a user changes workspaces", r.changes)
	t.Run("what waits for a slow reader is dropped", r.slow)
	t.Run("row 18: nothing of the old workspace", r.canaries)
	t.Run("what an operator rules counts in the workspace in which the user is by now", r.rulings)
}

// changes: what is pipelined before and after goes with the old and the new
// workspace; who may not is left where they are.
func (r *realm) changes(t *testing.T) {
	user := window(t, r.a, "1", "w", "w", "v")
	other := bridge(t, r.b)
	for _, ws := range []string{"w", "v", "x"} {
		r.agent(t, r.a, ws, "1")
	}
	shouts(t, other, "w", "1")
	hears(t, user, "w", "1")
	for name, code := range map[string]string{
		"x": "ERR_PERMISSION_DENIED", "nowhere": "ERR_PERMISSION_DENIED", "": "ERR_INVALID_ARGUMENT", "a b": "ERR_INVALID_ARGUMENT",
		"a::b": "ERR_INVALID_ARGUMENT", "receiver1": "ERR_INVALID_ARGUMENT", strings.Repeat("x", 200): "ERR_INVALID_ARGUMENT",
	} {
		if got := switched(t, user, name, nil); got != code {
			t.Errorf("%q: %s, want %s", name, got, code)
		}
	}
	shouts(t, other, "w", "2")
	hears(t, user, "w", "2")
	// Pipelined.
	user.Send(send("ag::w::echo::1", "before", "before"))
	switchTo(user, "v")
	user.Send(send("ag::v::echo::1", "after", "after"))
	user.Send(send("ag::w::echo::1", "late", "late"))
	outcome := map[string]string{}
	for len(outcome) < 4 {
		m := user.Until(func(m *aetherv1.DownstreamMessage) bool {
			return m.GetReceipt() != nil || m.GetError() != nil || m.GetWorkspaceSwitched() != nil
		})
		switch {
		case m.GetReceipt() != nil:
			outcome[m.GetReceipt().GetRequestId()] = "stored"
		case m.GetError() != nil:
			outcome[m.GetError().GetRequestId()] = m.GetError().GetCode()
		default:
			outcome["switched"] = m.GetWorkspaceSwitched().GetWorkspace()
		}
	}
	want := map[string]string{"before": "stored", "after": "stored", "late": "ERR_PERMISSION_DENIED", "switched": "v"}
	if fmt.Sprint(outcome) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", outcome, want)
	}
	shouts(t, other, "w", "3")
	shouts(t, other, "v", "3")
	hears(t, user, "v", "3")
	// There already, and back.
	for _, ws := range []string{"v", "w"} {
		if code := switched(t, user, ws, nil); code != "" {
			t.Errorf("%s: %s", ws, code)
		}
	}
	shouts(t, other, "v", "4")
	shouts(t, other, "w", "4")
	hears(t, user, "w", "4")
	if list, _ := r.a.Sessions.List(session.Filter{IdentityPrefix: "us::u::1"}, 1); len(list) != 1 || list[0].Workspace != "w" {
		t.Errorf("listed as %+v", list)
	}
	// Others have no workspace to change.
	agent := r.agent(t, r.b, "w", "2")
	if code := switched(t, agent, "v", nil); code != "ERR_INVALID_PRINCIPAL" {
		t.Errorf("an agent: %s", code)
	}
}

// slow: what waits of the old workspace when the user changes does not come
// after the change, nor does word of what was dropped of it before.
func (r *realm) slow(t *testing.T) {
	user := window(t, r.a, "slow", "w", "w", "v")
	other := bridgeCalled(t, r.b, "fast")
	large := strings.Repeat("x", 32<<10)
	for i := range 100 { // more than the queue and what lies below it hold
		other.Send(send("gu::w", large, fmt.Sprint(i)))
	}
	for range 100 {
		other.Receipt()
	}
	switchTo(user, "v")
	eventually(t, "the user is in the other workspace", func() bool {
		list, _ := r.a.Sessions.List(session.Filter{IdentityPrefix: "us::u::slow"}, 1)
		return len(list) == 1 && list[0].Workspace == "v"
	})
	shouts(t, other, "v", "after")
	before := 0
	user.Until(func(m *aetherv1.DownstreamMessage) bool {
		if m.GetMsg() != nil {
			before++
		}
		return m.GetWorkspaceSwitched() != nil
	})
	if before == 100 {
		t.Error("nothing was dropped: the test shows nothing")
	}
	marks := 0
	user.Until(func(m *aetherv1.DownstreamMessage) bool {
		if m.GetGap() != nil || m.GetMsg() != nil && string(m.GetMsg().GetPayload()) != "after v" {
			t.Errorf("after the change: %.100v", m)
		} else if m.GetMsg() != nil {
			marks++
		}
		return marks == 3
	})
}

// canaries: users change workspaces while all that is shared in both is written
// to from two gateways. Between a change and the next request for one nothing of
// another workspace comes, and what is sent after the change does.
func (r *realm) canaries(t *testing.T) {
	windows, rounds := 6, 8
	if os.Getenv("AETHER_TEST_LONG") != "" {
		windows, rounds = 20, 50 // 1,000 in all
	}
	stop := make(chan struct{})
	var writers, users sync.WaitGroup
	for i, g := range []*gatewaytest.Gateway{r.a, r.b} {
		from := bridgeCalled(t, g, fmt.Sprint("writer", i))
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				for _, ws := range []string{"w", "v"} {
					for _, to := range []string{"gu::" + ws, "uw::u::" + ws, "pg::" + ws} {
						from.Send(send(to, ws, ""))
					}
					if err := g.Router.Notify(&aetherv1.ProgressUpdate{Workspace: ws, Recipient: "us::u", Summary: ws}, nil); err != nil {
						t.Error(err)
					}
				}
				if from.Send(send("ga::w", "", fmt.Sprint(n))); from.Receipt() == nil { // at the log's pace
					return
				}
			}
		})
	}
	for i := range windows {
		g := []*gatewaytest.Gateway{r.a, r.b}[i%2]
		user := window(t, g, fmt.Sprint("canary", i), "w", "w", "v")
		marks := bridgeCalled(t, []*gatewaytest.Gateway{r.b, r.a}[i%2], fmt.Sprint("mark", i))
		users.Go(func() {
			in := "w"
			// check wants that a frame is of the workspace in which the user is.
			check := func(m *aetherv1.DownstreamMessage) {
				ws := m.GetProgressUpdate().GetSummary()
				if m.GetMsg() != nil {
					_, ws, _ = strings.Cut(m.GetMsg().GetTopic(), "::")
					ws = strings.TrimPrefix(ws, "u::")
				}
				if ws != "" && ws != in {
					t.Errorf("in %q: %v", in, m)
				}
			}
			for n := range rounds {
				next := map[string]string{"w": "v", "v": "w"}[in]
				code := switched(t, user, next, check)
				if code != "" {
					t.Errorf("refused: %s", code)
					return
				}
				in = next
				mark := fmt.Sprint("mark ", i, " ", n)
				left := map[string]bool{"gu::" + in: true, "uw::u::" + in: true, "pg::" + in: true}
				sendMarks := func() {
					for to := range left {
						marks.Send(send(to, mark, ""))
					}
				}
				sendMarks()
				user.Until(func(m *aetherv1.DownstreamMessage) bool {
					check(m)
					if string(m.GetMsg().GetPayload()) == mark {
						delete(left, m.GetMsg().GetTopic())
					}
					if m.GetGap() != nil {
						sendMarks() // it did not keep up: a mark may be among what is missing
					}
					return len(left) == 0
				})
			}
		})
	}
	users.Wait()
	close(stop)
	writers.Wait()
}

func (r *realm) rulings(t *testing.T) {
	rule := func(workspace string, ruling store.Ruling) {
		t.Helper()
		if err := r.a.Members.RuleMembership(context.Background(), "u", workspace, ruling); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the ruling is known", func() bool {
			return r.a.Router.Members().Barred("u", workspace) == (ruling == store.RuledOut) &&
				r.a.Router.Members().InWorkspace("u", workspace) == (ruling == store.RuledIn)
		})
	}
	user := window(t, r.a, "3", "w", "w", "v")
	rule("x", store.RuledIn)
	if code := switched(t, user, "x", nil); code != "" {
		t.Fatalf("where an operator has put the user: %s", code)
	}
	// Removed from where they are not any more.
	rule("w", store.RuledOut)
	if code := switched(t, user, "w", nil); code != "ERR_PERMISSION_DENIED" {
		t.Errorf("where the user is kept out: %s", code)
	}
	// Their token may be replaced there, and they may come back there, as long as
	// they are let in.
	if _, refusal := user.Reauthenticate(r.a.UserToken("u", "w")); refusal != nil {
		t.Errorf("a new token: %v", refusal)
	}
	back := window(t, r.a, "4", "x", "w")
	shouts(t, bridgeCalled(t, r.b, "2"), "x", "still")
	hears(t, user, "x", "still")
	hears(t, back, "x", "still")
	rule("x", store.RuledOut)
	ended(t, user, "MEMBERSHIP_REVOKED")
	ended(t, back, "MEMBERSHIP_REVOKED")
	again := gatewaytest.UserInit("u", "5")
	again.Workspace = "x"
	if _, err := gatewaytest.Dial(t, r.a.Addr, r.a.UserToken("u", "w"), again); status.Code(err) != codes.PermissionDenied {
		t.Errorf("connecting where the user is kept out: %v", err)
	}
	// The workspace is deleted under a user who has come into it by a switch.
	user = window(t, r.a, "2", "", "w", "v")
	if code := switched(t, user, "v", nil); code != "" {
		t.Fatal(code)
	}
	if err := r.b.Router.DeleteWorkspace(context.Background(), "v"); err != nil {
		t.Fatal(err)
	}
	ended(t, user, "WORKSPACE_DELETED")
}

// A token of a user says where that token lets them, whatever others say.
func Test16NarrowToken(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	window(t, g, "1", "w", "w", "v")
	narrow := window(t, g, "2", "w", "w")
	if code := switched(t, narrow, "v", nil); code != "ERR_PERMISSION_DENIED" {
		t.Errorf("got %q", code)
	}
}

// A user that names no workspace and has several is in none until the first
// switch; a client without the extension is told nothing of it.
func Test16LegacyUser(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w", "v"), &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_User{User: &aetherv1.UserIdentity{UserId: "u", WindowId: "1"}},
	})
	agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken("v", "echo"), gatewaytest.AgentInit("v", "echo", "1"))
	if code := answers(user, send("ag::v::echo::1", "none", "none")); code != "ERR_PERMISSION_DENIED" {
		t.Errorf("in no workspace: %s", code)
	}
	switchTo(user, "v")
	user.Send(send("ag::v::echo::1", "x", "r"))
	m, err := user.Recv()
	if err != nil || m.GetReceipt().GetRequestId() != "r" {
		t.Fatalf("got %v, %v", m, err)
	}
	wants(t, agent, "x")
	agent.Send(send("gu::v", "to all", "all"))
	wants(t, user, "to all")
	switchTo(user, "x")
	if e := user.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" {
		t.Errorf("got %v", e)
	}
}

// Where there is no room the user does not come in, and counts where they are.
func Test16NoRoom(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.Limits = limits.Options{WorkspaceSessions: 1} })
	user := window(t, g, "1", "w", "w", "v", "x")
	there := window(t, g, "2", "v", "v", "x")
	if code := switched(t, user, "v", nil); code != "ERR_WORKSPACE_SWITCH_FAILED" {
		t.Errorf("got %q", code)
	}
	if code := switched(t, there, "x", nil); code != "" {
		t.Errorf("no limit: %q", code)
	}
	for _, ws := range []string{"v", "w"} { // there is room, and back
		if code := switched(t, user, ws, nil); code != "" {
			t.Errorf("%s: %q", ws, code)
		}
	}
}

// Changes beyond the rate are refused with a time, and change nothing.
func Test16Rate(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	user := window(t, g, "1", "w", "w", "v")
	const n = 300
	for i := range n {
		switchTo(user, []string{"v", "w"}[i%2])
	}
	refused := 0
	for range n {
		m := user.Until(func(m *aetherv1.DownstreamMessage) bool {
			return m.GetWorkspaceSwitched() != nil || m.GetError() != nil
		})
		if e := m.GetError(); e != nil {
			if refused++; e.GetCode() != "ERR_RATE_LIMITED" || e.GetRetryAfterMs() <= 0 {
				t.Fatalf("got %v", e)
			}
		}
	}
	t.Logf("%d of %d refused", refused, n)
	for deadline := time.Now().Add(patience); switched(t, user, "v", nil) != ""; {
		if time.Now().After(deadline) {
			t.Fatal("refused for ever")
		}
	}
}

// Users who are changing when the gateway drains are sent away as all others
// are, and nobody is left behind.
func Test16Drain(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	var users sync.WaitGroup
	for i := range 5 {
		user := window(t, g, fmt.Sprint(i), "w", "w", "v")
		switched := make(chan struct{})
		users.Go(func() {
			for n := range 40 {
				switchTo(user, []string{"v", "w"}[n%2])
				if n == 5 {
					close(switched)
				}
			}
			user.CloseSend()
		})
		<-switched
		users.Go(func() {
			for {
				if _, err := user.Recv(); err != nil {
					return
				}
			}
		})
	}
	g.Stop()
	users.Wait()
	if n := g.Sessions.Count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
