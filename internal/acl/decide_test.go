package acl

import (
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
)

func TestDeniedByDefault(t *testing.T) {
	t.Parallel()
	a := parse(t, "ga::own")
	for name, d := range map[string]Decision{
		"zero decision":   {},
		"nobody":          Decide(nil, a, nil),
		"zero principal":  Decide(&Principal{}, a, nil),
		"unknown kind":    Decide(&Principal{Kind: 99, Workspace: "own", Workspaces: All()}, a, nil),
		"zero address":    Decide(&Principal{Kind: Bridge}, address.Address{}, nil),
		"nil members":     Decide(&Principal{Kind: Agent, Workspace: "own"}, parse(t, "us::u::w"), nil),
		"nil members, wf": Decide(&Principal{Kind: WorkflowEngine, Workspaces: All()}, parse(t, "us::u::w"), nil),
	} {
		if d.Allowed {
			t.Errorf("%s is allowed", name)
		}
		if d.Message(nil, a) == "" {
			t.Errorf("%s has no message", name)
		}
	}
	for k := range Kind(255) {
		for p := range address.Prefix(255) {
			if inMatrix(k, p) && (!k.Known() || p.String() == "") {
				t.Errorf("kind %d may send to prefix %d", k, p)
			}
		}
	}
}

func TestWorkspaceIsComparedByteForByte(t *testing.T) {
	t.Parallel()
	p := &Principal{Kind: Agent, Workspace: "prod"}
	for _, other := range []string{"Prod", "prod.", "prod:x", "pro", "prodd", "prod\u200b", "other"} {
		if d := Decide(p, parse(t, "ga::"+other), nil); d.Allowed || d.Reason != ReasonWorkspace {
			t.Errorf("%q: %+v", other, d)
		}
	}
	composed, decomposed := "caf\u00e9", "cafe\u0301"
	if Decide(&Principal{Kind: Agent, Workspace: composed}, parse(t, "ga::"+decomposed), nil).Allowed {
		t.Error("two spellings of one name are taken for one workspace")
	}
}

// A window's user may have the name of the sender's workspace, and the user of
// uw the name of another one; neither counts.
func TestWorkspaceIsReadFromItsOwnPlace(t *testing.T) {
	t.Parallel()
	p := &Principal{Kind: Agent, Workspace: "own"}
	if Decide(p, parse(t, "us::own::own"), members{}).Allowed {
		t.Error("a window whose user is named like the workspace is reached")
	}
	if Decide(p, parse(t, "uw::own::other"), members{}).Allowed {
		t.Error("uw of another workspace is reached")
	}
	if !Decide(p, parse(t, "uw::other::own"), members{}).Allowed {
		t.Error("uw of the own workspace is refused")
	}
}

func TestUserWithoutWorkspace(t *testing.T) {
	t.Parallel()
	// A user that has chosen no workspace reaches nobody, whatever its token
	// covers, not even its own other windows.
	p := &Principal{Kind: User, Workspaces: Workspaces("a", "b")}
	for _, s := range []string{"ag::a::i::s", "gu::a", "us::me::w2", "uw::me::a", "metric::*"} {
		if Decide(p, parse(t, s), members{"me": {"a", "b"}}).Allowed {
			t.Errorf("%s is allowed", s)
		}
	}
}

func TestWideCredentials(t *testing.T) {
	t.Parallel()
	who := members{"u": {"x"}, "stranger": nil}
	engine := &Principal{Kind: WorkflowEngine, Workspaces: All()}
	for s, want := range map[string]bool{
		"ag::anything::i::s": true, "us::u::w": true, "us::stranger::w": false, "us::unknown::w": false,
		"metric::*": true, "metric::receiver0": false, "sv::i::s": false,
	} {
		if got := Decide(engine, parse(t, s), who).Allowed; got != want {
			t.Errorf("workflow engine → %s: %v", s, got)
		}
	}
	// A `*` credential widens the workspaces of an agent no further than the
	// one that it is in.
	agent := &Principal{Kind: Agent, Workspace: "x", Workspaces: All()}
	if Decide(agent, parse(t, "ga::y"), who).Allowed {
		t.Error("an agent leaves its workspace")
	}
}

func TestCoversWorkspace(t *testing.T) {
	t.Parallel()
	cases := []struct {
		p    *Principal
		ws   string
		want bool
	}{
		{nil, "a", false},
		{&Principal{Workspaces: All()}, "a", false},
		{&Principal{Kind: Agent, Workspace: "a", Workspaces: All()}, "a", true},
		{&Principal{Kind: Agent, Workspace: "a", Workspaces: Workspaces("a", "b")}, "b", false},
		{&Principal{Kind: User, Workspaces: Workspaces("a")}, "a", false},
		{&Principal{Kind: User}, "", false},
		{&Principal{Kind: WorkflowEngine, Workspaces: Workspaces("a", "b")}, "b", true},
		{&Principal{Kind: WorkflowEngine, Workspaces: Workspaces("a", "b")}, "c", false},
		{&Principal{Kind: WorkflowEngine, Workspaces: All()}, "c", true},
		{&Principal{Kind: WorkflowEngine, Workspaces: All()}, "", false},
		{&Principal{Kind: WorkflowEngine, Workspaces: All()}, "a::b", false},
		{&Principal{Kind: WorkflowEngine, Workspaces: All()}, "receiver0", false},
		{&Principal{Kind: Bridge}, "a", true},
		{&Principal{Kind: Bridge}, "*", false},
	}
	for _, c := range cases {
		if got := CoversWorkspace(c.p, c.ws); got != c.want {
			t.Errorf("%+v, %q: %v", c.p, c.ws, got)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	agent := &Principal{Kind: Agent, Workspace: "own"}
	service := &Principal{Kind: Service, Workspaces: Workspaces("own")}
	engine := &Principal{Kind: WorkflowEngine, Workspaces: Workspaces("own")}
	cases := []struct {
		p    *Principal
		to   string
		want string
	}{
		{agent, "pg::own", "agents may not send to progress addresses (pg); progress is reported, not sent"},
		{agent, "sv::i::s", "agents may not send to services (sv)"},
		{agent, "ga::other", `the address is in workspace "other", the sender in "own"`},
		{agent, "us::bob::w", `user "bob" is not a member of workspace "own"`},
		{agent, "metric::receiver0", "metrics are sent to metric::* or metric::{workspace}"},
		{service, "ga::other", `the address is in workspace "other", which the sender's credential does not cover`},
		{engine, "us::bob::w", `user "bob" is not a member of a workspace that the sender's credential covers`},
		{&Principal{Kind: User}, "ga::own", "the sender is in no workspace; switch to one first"},
		{&Principal{Kind: Service}, "ga::own", "the sender's credential covers no workspace"},
		{&Principal{Kind: MetricsBridge}, "ga::own", "metrics bridges may not send to all agents of a workspace (ga)"},
		{&Principal{Kind: Bridge}, "ga::own", ""},
	}
	for _, c := range cases {
		a := parse(t, c.to)
		if got := Decide(c.p, a, members{}).Message(c.p, a); got != c.want {
			t.Errorf("%s → %s: %q, want %q", c.p.Kind, c.to, got, c.want)
		}
	}
	for r := range reasonEnd + 1 {
		if r.String() == "" {
			t.Errorf("reason %d has no text", r)
		}
	}
	for _, p := range address.Prefixes() {
		if things[p] == "" {
			t.Errorf("no word for %s", p)
		}
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	who := members{"u": {"own"}}
	agent := &Principal{Kind: Agent, Workspace: "own"}
	engine := &Principal{Kind: WorkflowEngine, Workspaces: Workspaces("a", "b", "own")}
	var to []address.Address
	for _, s := range []string{"ag::own::i::s", "ga::other", "us::u::w", "us::v::w", "uw::u::own", "metric::*", "pg::own", "br::i::s"} {
		to = append(to, parse(t, s))
	}
	allowed := 0
	if n := testing.AllocsPerRun(200, func() {
		for _, a := range to {
			for _, p := range []*Principal{agent, engine} {
				if Decide(p, a, who).Allowed {
					allowed++
				}
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if allowed == 0 {
		t.Error("nothing was allowed")
	}
}

func TestWorkspaceSet(t *testing.T) {
	t.Parallel()
	given := []string{"b", "", "a", "b"}
	s := Workspaces(given...)
	given[0] = "x"
	if got := s.String(); got != "a,b" {
		t.Errorf("set %q", got)
	}
	s.Names()[0] = "z"
	for ws, want := range map[string]bool{"a": true, "b": true, "": false, "z": false, "x": false, "*": false} {
		if s.Covers(ws) != want {
			t.Errorf("Covers(%q) is %v", ws, !want)
		}
	}
	if _, ok := s.Only(); ok {
		t.Error("two workspaces are one")
	}
	if ws, ok := Workspaces("a").Only(); !ok || ws != "a" {
		t.Error("one workspace is not found")
	}
	if All().Covers("") || !All().Covers("x") || All().String() != "*" || All().Names() != nil || All().IsEmpty() {
		t.Error("All is not all")
	}
	var zero WorkspaceSet
	if !zero.IsEmpty() || zero.Covers("a") || Workspaces("*").Covers("a") || !Workspaces("").IsEmpty() {
		t.Error("an empty set covers something")
	}
	overlaps := []struct {
		a, b WorkspaceSet
		want bool
	}{
		{zero, All(), false},
		{All(), zero, false},
		{All(), All(), true},
		{s, All(), true},
		{s, Workspaces("b", "c"), true},
		{s, Workspaces("c"), false},
	}
	for _, c := range overlaps {
		if c.a.Overlaps(c.b) != c.want || c.b.Overlaps(c.a) != c.want {
			t.Errorf("%s and %s", c.a, c.b)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	p := &Principal{Kind: Agent, Workspace: "prod"}
	a := parse(b, "ag::prod::"+strings.Repeat("i", 20)+"::1")
	b.ReportAllocs()
	for b.Loop() {
		if !Decide(p, a, nil).Allowed {
			b.Fatal("refused")
		}
	}
}
