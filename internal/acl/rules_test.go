package acl

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
)

// ruled is a rule set with one answer.
type ruled Effect

func (r ruled) Effect(*Principal, Action, address.Address) Effect { return Effect(r) }

// barring are members of whom one is put out of a workspace.
type barring struct {
	members
	user, ws string
}

func (b barring) Barred(user, ws string) bool { return user == b.user && ws == b.ws }

// Spec clause 4.3: a denial wins over everything, also over the matrix.
func Test43DenyWins(t *testing.T) {
	t.Parallel()
	who := members{"u": {"own"}}
	for _, p := range []*Principal{
		{Kind: Agent, Workspace: "own"}, {Kind: Bridge}, {Kind: Service, Workspaces: All()}, {Kind: WorkflowEngine, Workspaces: All()},
	} {
		for _, s := range []string{"ga::own", "us::u::w", "metric::*", "br::i::s", "pg::own"} {
			if d := DecideWith(p, parse(t, s), who, ruled(Deny)); d.Allowed || d.Reason != ReasonRule {
				t.Errorf("%s to %s: %+v", p.Kind, s, d)
			}
		}
	}
}

func Test43AllowOpens(t *testing.T) {
	t.Parallel()
	who := barring{members{"here": {"own"}, "there": {"other"}, "barred": {"other"}}, "barred", "own"}
	agent := &Principal{Kind: Agent, Workspace: "own"}
	user := &Principal{Kind: User, Workspace: "own"}
	nowhere := &Principal{Kind: User, Workspaces: Workspaces("own")}
	service := &Principal{Kind: Service, Workspaces: Workspaces("own")}
	engine := &Principal{Kind: WorkflowEngine, Workspaces: Workspaces("own")}
	uncovered := &Principal{Kind: WorkflowEngine}
	metrics := &Principal{Kind: MetricsBridge}
	cases := []struct {
		p    *Principal
		to   string
		want bool
	}{
		{agent, "sv::i::s", true},
		{agent, "br::i::s", true},
		{user, "br::i::s", true},
		{nowhere, "sv::i::s", true},
		{metrics, "sv::i::s", true},
		{agent, "ag::other::i::s", true},
		{agent, "ga::other", true},
		{agent, "event::other", true},
		{agent, "uw::there::other", true},
		{agent, "us::there::w", true},
		{service, "ga::other", true},
		{engine, "us::there::w", true},
		{uncovered, "ga::other", true},
		{uncovered, "us::there::w", true},
		// What stays closed.
		{agent, "pg::own", false},
		{agent, "pg::other", false},
		{agent, "metric::other", false},
		{agent, "metric::receiver0", false},
		{engine, "metric::other", false},
		{uncovered, "metric::*", false},
		{agent, "us::unknown::w", false},
		{agent, "us::barred::w", false},
		{uncovered, "us::unknown::w", false},
		{user, "event::own", false},
		{user, "event::other", false},
		{nowhere, "ga::own", false},
		{nowhere, "us::there::w", false},
		{service, "us::here::w", false},
		{service, "gu::own", false},
		{metrics, "ga::own", false},
		// And what was open stays so.
		{agent, "ga::own", true},
		{&Principal{Kind: Bridge}, "pg::other", true},
	}
	for _, c := range cases {
		d := DecideWith(c.p, parse(t, c.to), who, ruled(Allow))
		if d.Allowed != c.want {
			t.Errorf("%s to %s: %+v", c.p.Kind, c.to, d)
		}
		if before := Decide(c.p, parse(t, c.to), who); !c.want && d != before {
			t.Errorf("%s to %s: the refusal changed from %+v to %+v", c.p.Kind, c.to, before, d)
		}
	}
	if DecideWith(&Principal{}, parse(t, "ga::own"), who, ruled(Allow)).Allowed ||
		DecideWith(nil, parse(t, "ga::own"), who, ruled(Allow)).Allowed ||
		DecideWith(agent, address.Address{}, who, ruled(Allow)).Allowed ||
		DecideWith(agent, parse(t, "us::there::w"), nil, ruled(Allow)).Allowed {
		t.Error("a rule let nobody send, or send to nothing, or to nobody known")
	}
}

func TestPermit(t *testing.T) {
	t.Parallel()
	agent, a := &Principal{Kind: Agent, Workspace: "own"}, parse(t, "ga::own")
	for _, action := range Actions() {
		for _, base := range []Decision{{}, {Allowed: true}} {
			if d := Permit(agent, action, a, base, nil); d != base {
				t.Errorf("%s without rules: %+v", action, d)
			}
			if d := Permit(agent, action, a, base, ruled(NoEffect)); d != base {
				t.Errorf("%s with other rules: %+v", action, d)
			}
			if d := Permit(agent, action, a, base, ruled(Deny)); d.Allowed || d.Reason != ReasonRule {
				t.Errorf("%s denied: %+v", action, d)
			}
			if d := Permit(agent, action, a, base, ruled(Allow)); !d.Allowed {
				t.Errorf("%s allowed: %+v", action, d)
			}
		}
	}
	for _, p := range []*Principal{nil, {}} {
		if Permit(p, ActionSend, a, Decision{Allowed: true}, nil).Allowed {
			t.Error("nobody is permitted something")
		}
	}
	for _, action := range []Action{ActionUnknown, actionEnd, 255} {
		if Permit(agent, action, a, Decision{Allowed: true}, ruled(Allow)).Allowed || action.Known() || action.String() != "unknown" {
			t.Errorf("action %d is permitted", action)
		}
	}
}

func TestDecideMetrics(t *testing.T) {
	t.Parallel()
	bridge := &Principal{Kind: Bridge}
	if !DecideMetrics(bridge, "w", nil).Allowed || !DecideMetrics(bridge, "w", ruled(Allow)).Allowed || !DecideMetrics(bridge, "w", ruled(NoEffect)).Allowed {
		t.Error("metrics are refused")
	}
	if DecideMetrics(bridge, "w", ruled(Deny)).Allowed || DecideMetrics(bridge, "", ruled(Allow)).Allowed {
		t.Error("metrics are allowed")
	}
}

func TestNamesOfActions(t *testing.T) {
	t.Parallel()
	for _, a := range Actions() {
		if got, ok := ParseAction(a.String()); !ok || got != a || !a.Known() {
			t.Errorf("%s: %v, %v", a, got, ok)
		}
	}
	for _, s := range []string{"", "unknown", "SEND", "send ", "kv"} {
		if a, ok := ParseAction(s); ok || a != ActionUnknown {
			t.Errorf("%q is action %s", s, a)
		}
	}
	for _, e := range []Effect{Allow, Deny} {
		if got, ok := ParseEffect(e.String()); !ok || got != e {
			t.Errorf("%s: %v, %v", e, got, ok)
		}
	}
	if e, ok := ParseEffect("none"); ok || e != NoEffect || NoEffect.String() != "none" {
		t.Error("none is an effect")
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*Principal{
		"ag::w::i::s": {Kind: Agent, Address: parse(t, "ag::w::i::s"), Identity: "ignored"},
		"wfe::1":      {Kind: WorkflowEngine, Identity: "wfe::1"},
		"":            {Kind: Task},
	} {
		if got := p.Name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
