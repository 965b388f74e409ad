package e2e

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// TestServeWorkspaces: an operator lets people and agents in and out of
// workspaces while two gateways run, from a terminal, on the real broker,
// database and Redis: on either gateway it counts on both within 2 s.
func TestServeWorkspaces(t *testing.T) {
	t.Parallel()
	broker, database := testservices.RabbitMQ(t).URL(), testservices.Postgres(t).URL()
	redis := "AETHER_REDIS_URL=" + testservices.Redis(t).URL()
	start := func(name string) *gateway {
		return startServe(t, broker, database, redis, "AETHER_INSTANCE_ID="+name, "AETHER_WORKSPACES_AUTO_CREATE=false")
	}
	a, b := start("a"), start("b")
	token, err := createToken("--kind", "operator")
	check(t, err)
	run := func(g *gateway, args ...string) string {
		t.Helper()
		out, stderr, code, err := command([]string{"AETHER_ADDR=" + g.grpc, "AETHER_TOKEN=" + token}, args...)
		if err != nil || code != 0 {
			t.Fatalf("gateway %q: exit %d, %v\n%s", args, code, err, stderr)
		}
		return out
	}
	const ws = "office"
	clerk := agent(ws, "clerk", "1")

	// Nobody is in a workspace that does not exist, and the refusal says what to
	// do.
	_, err = dial(t, b, clerk)
	if s := statusOf(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), "gateway workspace create "+ws) {
		t.Errorf("an agent in no workspace: %v", err)
	}
	run(a, "workspace", "create", ws)
	begun := time.Now()
	if !eventually(patience, func() bool {
		w, err := dial(t, b, clerk)
		if err == nil {
			check(t, w.leave())
		}
		return err == nil
	}) {
		t.Fatal("the workspace is not known on the other gateway")
	}
	within(t, 2*time.Second, begun, "the news of a workspace")
	agents := []*peer{reconnect(t, b, clerk), connect(t, a, agent(ws, "clerk", "2"))}

	// A user who never connected is written to once an operator has put them in.
	agents[0].refused("ERR_PERMISSION_DENIED", chat("us::bob::1", "too early"))
	run(a, "workspace", "members", ws, "--add", "bob")
	if !eventually(patience, func() bool {
		receipt, _ := agents[0].ask(chat("us::bob::1", "welcome"))
		return receipt != nil
	}) {
		t.Fatal("the member is not known on the other gateway")
	}
	if m := connect(t, a, user("bob", "1", ws)).read(); string(m.GetPayload()) != "welcome" {
		t.Errorf("bob got %q", m.GetPayload())
	}

	// One who is removed is out on both, at once and for what comes.
	windows := []*wire{}
	for i, g := range []*gateway{a, b} {
		w, err := dial(t, g, user("alice", string('1'+rune(i)), ws))
		check(t, err)
		windows = append(windows, w)
	}
	run(a, "workspace", "members", ws, "--remove", "alice")
	begun = time.Now()
	for i, w := range windows {
		s := w.end()
		if s.Code() != codes.PermissionDenied {
			t.Errorf("a removed member's session ended with %v", s)
		}
		for _, m := range w.kept {
			if m.GetMsg() != nil {
				t.Errorf("window %d got %q", i, m.GetMsg().GetPayload())
			}
		}
	}
	within(t, 2*time.Second, begun, "the end of a removed member's sessions")
	for _, p := range agents {
		p.accepted(chat("gu::"+ws, "canary"))
		p.refused("ERR_PERMISSION_DENIED", chat("us::alice::1", "canary"))
	}
	for _, g := range []*gateway{a, b} {
		if _, err := dial(t, g, user("alice", "1", ws)); statusOf(err).Code() != codes.PermissionDenied {
			t.Errorf("a removed member connects: %v", err)
		}
	}
	if out := run(b, "workspace", "members", ws); !strings.Contains(out, "alice") || !strings.Contains(out, "out") {
		t.Errorf("the members are\n%s", out)
	}

	// A workspace that is deleted on one gateway ends on both.
	run(b, "workspace", "delete", ws)
	begun = time.Now()
	for _, p := range agents {
		if s := p.end(); s.Code() != codes.PermissionDenied {
			t.Errorf("a session in a deleted workspace ended with %v", s)
		}
	}
	within(t, 2*time.Second, begun, "the end of a deleted workspace's sessions")
	for _, g := range []*gateway{a, b} {
		if _, err := dial(t, g, clerk); statusOf(err).Code() != codes.FailedPrecondition {
			t.Errorf("an agent in a deleted workspace: %v", err)
		}
	}
	if out := run(a, "workspace", "list"); strings.Contains(out, ws) {
		t.Errorf("the workspaces are\n%s", out)
	}
}
