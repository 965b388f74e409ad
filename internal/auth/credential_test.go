package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/acl"
)

// verified is the credential of a token that was minted and verified.
func verified(t testing.TB, c Claims) *Credential {
	t.Helper()
	v, key := setup(t)
	c.ExpiresAt = now.Add(time.Hour)
	cred, err := v.Verify(context.Background(), mint(t, key, c))
	if err != nil {
		t.Fatal(err)
	}
	return cred
}

func TestBind(t *testing.T) {
	t.Parallel()
	var (
		agent   = Claims{Kind: KindAgent, Workspaces: []string{"w1", "w2"}, Impl: "i", Spec: "s-*"}
		unique  = Claims{Kind: KindTask, Workspaces: []string{"w1"}, Impl: "i", Spec: "nightly"}
		plain   = Claims{Kind: KindTask, Workspaces: []string{"w1"}, Impl: "i"}
		anyTask = Claims{Kind: KindTask, Workspaces: []string{"w1"}, Impl: "i", Spec: "*"}
		user    = Claims{Kind: KindUser, Workspaces: []string{"w1", "w2"}, User: "u"}
		single  = Claims{Kind: KindUser, Workspaces: []string{"w1"}, User: "u"}
		loner   = Claims{Kind: KindUser, User: "u"}
		engine  = Claims{Kind: KindWorkflowEngine, Workspaces: []string{"*"}, Spec: "e*"}
		metrics = Claims{Kind: KindMetricsBridge, Workspaces: []string{"*"}, Spec: "m1"}
		orc     = Claims{Kind: KindOrchestrator, Workspaces: []string{"*"}, Impl: "i", Spec: "*"}
		service = Claims{Kind: KindService, Workspaces: []string{"w1"}, Impl: "i", Spec: "s"}
		bridge  = Claims{Kind: KindBridge, Workspaces: []string{"*"}, Impl: "i", Spec: "s"}
	)
	id := func(k acl.Kind, workspace, impl, spec string) Identity {
		return Identity{Kind: k, Workspace: workspace, Implementation: impl, Specifier: spec}
	}
	userID := func(user, window, workspace string) Identity {
		return Identity{Kind: acl.User, UserID: user, Window: window, Workspace: workspace}
	}
	type want struct {
		err       error
		address   string
		workspace string
	}
	for _, c := range []struct {
		name   string
		claims Claims
		id     Identity
		want   want
	}{
		{"agent", agent, id(acl.Agent, "w1", "i", "s-1"), want{nil, "ag::w1::i::s-1", "w1"}},
		{"agent, second workspace", agent, id(acl.Agent, "w2", "i", "s-"), want{nil, "ag::w2::i::s-", "w2"}},
		{"agent, other workspace", agent, id(acl.Agent, "w3", "i", "s-1"), want{err: ErrNotCovered}},
		{"agent, workspace in capitals", agent, id(acl.Agent, "W1", "i", "s-1"), want{err: ErrNotCovered}},
		{"agent, other impl", agent, id(acl.Agent, "w1", "j", "s-1"), want{err: ErrNotCovered}},
		{"agent, longer impl", agent, id(acl.Agent, "w1", "ii", "s-1"), want{err: ErrNotCovered}},
		{"agent, other spec", agent, id(acl.Agent, "w1", "i", "t-1"), want{err: ErrNotCovered}},
		{"agent, no spec", agent, id(acl.Agent, "w1", "i", ""), want{err: ErrInvalidIdentity}},
		{"agent, spec with a separator", agent, id(acl.Agent, "w1", "i", "s-::x"), want{err: ErrInvalidIdentity}},
		{"agent, wildcard", agent, id(acl.Agent, "w1", "i", "s-*"), want{err: ErrInvalidIdentity}},
		{"agent, reserved workspace", agent, id(acl.Agent, "receiver1", "i", "s-1"), want{err: ErrInvalidIdentity}},
		{"agent as task", agent, id(acl.UniqueTask, "w1", "i", "s-1"), want{err: ErrNotCovered}},
		{"agent as service", agent, id(acl.Service, "", "i", "s-1"), want{err: ErrNotCovered}},
		{"agent as bridge", agent, id(acl.Bridge, "", "i", "s-1"), want{err: ErrNotCovered}},
		{"agent as user", agent, userID("u", "w", ""), want{err: ErrNotCovered}},
		{"agent as workflow engine", agent, id(acl.WorkflowEngine, "", "", "s-1"), want{err: ErrNotCovered}},
		{"unknown kind", agent, id(acl.KindUnknown, "w1", "i", "s-1"), want{err: ErrInvalidIdentity}},
		{"kind out of range", agent, id(99, "w1", "i", "s-1"), want{err: ErrInvalidIdentity}},

		{"unique task", unique, id(acl.UniqueTask, "w1", "i", "nightly"), want{nil, "tu::w1::i::nightly", "w1"}},
		{"unique task, other spec", unique, id(acl.UniqueTask, "w1", "i", "daily"), want{err: ErrNotCovered}},
		{"unique task as plain task", unique, id(acl.Task, "w1", "i", ""), want{err: ErrNotCovered}},
		{"unique task as plain task of that id", unique, id(acl.Task, "w1", "i", "nightly"), want{err: ErrNotCovered}},
		{"plain task, no id yet", plain, id(acl.Task, "w1", "i", ""), want{nil, "", "w1"}},
		{"plain task with its id", plain, id(acl.Task, "w1", "i", "42"), want{nil, "ta::w1::i::42", "w1"}},
		{"plain task as unique", plain, id(acl.UniqueTask, "w1", "i", "nightly"), want{err: ErrNotCovered}},
		{"plain task, other workspace", plain, id(acl.Task, "w2", "i", ""), want{err: ErrNotCovered}},
		{"plain task, no workspace", plain, id(acl.Task, "", "i", ""), want{err: ErrInvalidIdentity}},
		{"plain task, other impl", plain, id(acl.Task, "w1", "j", ""), want{err: ErrNotCovered}},
		{"any task as unique", anyTask, id(acl.UniqueTask, "w1", "i", "x"), want{nil, "tu::w1::i::x", "w1"}},
		{"any task as plain", anyTask, id(acl.Task, "w1", "i", ""), want{nil, "", "w1"}},
		{"any task as agent", anyTask, id(acl.Agent, "w1", "i", "x"), want{err: ErrNotCovered}},

		{"user", user, userID("u", "win", "w2"), want{nil, "us::u::win", "w2"}},
		{"user, any window", user, userID("u", "другое", "w2"), want{nil, "us::u::другое", "w2"}},
		{"user of two workspaces, none asked", user, userID("u", "win", ""), want{nil, "us::u::win", ""}},
		{"user of one workspace, none asked", single, userID("u", "win", ""), want{nil, "us::u::win", "w1"}},
		{
			"user whose only workspace makes too long an address",
			Claims{Kind: KindUser, Workspaces: []string{strings.Repeat("w", 126)}, User: strings.Repeat("u", 126)},
			userID(strings.Repeat("u", 126), "win", ""),
			want{err: ErrInvalidIdentity},
		},
		{"user of no workspace", loner, userID("u", "win", ""), want{nil, "us::u::win", ""}},
		{"user of no workspace asks for one", loner, userID("u", "win", "w1"), want{err: ErrNotCovered}},
		{"user, other workspace", user, userID("u", "win", "w3"), want{err: ErrNotCovered}},
		{"user, bad workspace", user, userID("u", "win", "w 3"), want{err: ErrInvalidIdentity}},
		{"other user", user, userID("v", "win", ""), want{err: ErrNotCovered}},
		{"user, no window", user, userID("u", "", ""), want{err: ErrInvalidIdentity}},

		{"workflow engine", engine, id(acl.WorkflowEngine, "", "", "e1"), want{nil, "", ""}},
		{"workflow engine, ignored fields", engine, id(acl.WorkflowEngine, "w9", "x", "e1"), want{nil, "", ""}},
		{"workflow engine, other instance", engine, id(acl.WorkflowEngine, "", "", "f1"), want{err: ErrNotCovered}},
		{"workflow engine, no instance", engine, id(acl.WorkflowEngine, "", "", ""), want{err: ErrInvalidIdentity}},
		{"workflow engine as metrics bridge", engine, id(acl.MetricsBridge, "", "", "e1"), want{err: ErrNotCovered}},
		{"metrics bridge", metrics, id(acl.MetricsBridge, "", "", "m1"), want{nil, "", ""}},
		{"metrics bridge, other instance", metrics, id(acl.MetricsBridge, "", "", "m2"), want{err: ErrNotCovered}},

		{"orchestrator", orc, id(acl.Orchestrator, "", "i", "any"), want{nil, "", ""}},
		{"orchestrator, other impl", orc, id(acl.Orchestrator, "", "j", "any"), want{err: ErrNotCovered}},
		{"orchestrator, bad spec", orc, id(acl.Orchestrator, "", "i", "a b"), want{err: ErrInvalidIdentity}},
		{"orchestrator, too long together", orc, id(acl.Orchestrator, "", strings.Repeat("i", 128), strings.Repeat("s", 128)), want{err: ErrInvalidIdentity}},
		{"orchestrator as service", orc, id(acl.Service, "", "i", "any"), want{err: ErrNotCovered}},
		{"service", service, id(acl.Service, "", "i", "s"), want{nil, "sv::i::s", ""}},
		{"service, other spec", service, id(acl.Service, "", "i", "t"), want{err: ErrNotCovered}},
		{"service as bridge", service, id(acl.Bridge, "", "i", "s"), want{err: ErrNotCovered}},
		{"bridge", bridge, id(acl.Bridge, "", "i", "s"), want{nil, "br::i::s", ""}},
		{"bridge, other impl", bridge, id(acl.Bridge, "", "ii", "s"), want{err: ErrNotCovered}},
	} {
		p, err := verified(t, c.claims).Bind(c.id)
		if c.want.err != nil {
			if !errors.Is(err, c.want.err) || p.Kind != acl.KindUnknown {
				t.Errorf("%s: %v, want %v", c.name, err, c.want.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if p.Kind != c.id.Kind || p.Address.String() != c.want.address || p.Workspace != c.want.workspace {
			t.Errorf("%s: %+v", c.name, p)
		}
		if got, want := p.Workspaces.String(), strings.Join(c.claims.Workspaces, ","); got != want {
			t.Errorf("%s: workspaces %q, want %q", c.name, got, want)
		}
		// The address of a principal is its identity string.
		if s := p.Address.String(); s != "" && s != c.id.String() {
			t.Errorf("%s: address %s, identity %s", c.name, s, c.id)
		}
	}
}

// TestBindGenerated compares Bind with the rule said in other words, over every
// kind of token and of identity that differ in one part.
func TestBindGenerated(t *testing.T) {
	t.Parallel()
	covers := map[string][]acl.Kind{
		KindAgent: {acl.Agent}, KindTask: {acl.UniqueTask, acl.Task}, KindUser: {acl.User},
		KindWorkflowEngine: {acl.WorkflowEngine}, KindMetricsBridge: {acl.MetricsBridge},
		KindOrchestrator: {acl.Orchestrator}, KindService: {acl.Service}, KindBridge: {acl.Bridge}, KindOperator: {},
	}
	base := Identity{Workspace: "w", Implementation: "i", Specifier: "s", UserID: "u", Window: "x"}
	changes := map[string]func(*Identity){
		"":          func(*Identity) {},
		"workspace": func(id *Identity) { id.Workspace = "w2" },
		"impl":      func(id *Identity) { id.Implementation = "i2" },
		"spec":      func(id *Identity) { id.Specifier = "s2" },
		"user":      func(id *Identity) { id.UserID = "u2" },
		"window":    func(id *Identity) { id.Window = "x2" },
	}
	// The parts that a kind of identity has; a change to another is no change.
	parts := map[acl.Kind]string{
		acl.Agent: "workspace impl spec", acl.UniqueTask: "workspace impl spec", acl.Task: "workspace impl",
		acl.User: "workspace user", acl.WorkflowEngine: "spec", acl.MetricsBridge: "spec",
		acl.Orchestrator: "impl spec", acl.Service: "impl spec", acl.Bridge: "impl spec",
	}
	for kind, fits := range covers {
		for _, spec := range []string{"s", "*", ""} {
			claims := Claims{Kind: kind, Workspaces: []string{"w"}, Impl: "i", Spec: spec, User: "u"}
			if claims.check() != nil {
				continue
			}
			cred := verified(t, claims)
			for _, k := range acl.Kinds() {
				for part, change := range changes {
					id := base
					id.Kind = k
					change(&id)
					want := false
					for _, f := range fits {
						want = want || f == k
					}
					switch k {
					case acl.Task:
						want = want && spec != "s"
					case acl.UniqueTask:
						want = want && spec != ""
					}
					if part != "" && strings.Contains(parts[k], part) && (part != "spec" || spec != "*") {
						want = false
					}
					if _, err := cred.Bind(id); (err == nil) != want {
						t.Errorf("%s token, spec %q, as %s with another %q: %v", kind, spec, id, part, err)
					} else if err != nil && Code(err) != codes.PermissionDenied {
						t.Errorf("%v: status %s", err, Code(err))
					}
				}
			}
		}
	}
}

func TestIdentityStrings(t *testing.T) {
	t.Parallel()
	for want, k := range map[string]acl.Kind{
		"ag::w::i::s": acl.Agent, "tu::w::i::s": acl.UniqueTask, "ta::w::i::s": acl.Task, "us::u::x": acl.User, "sv::i::s": acl.Service,
		"br::i::s": acl.Bridge, "orc::i::s": acl.Orchestrator, "wfe::s": acl.WorkflowEngine, "metrics::s": acl.MetricsBridge, "": acl.KindUnknown,
	} {
		id := Identity{Kind: k, Workspace: "w", Implementation: "i", Specifier: "s", UserID: "u", Window: "x"}
		if got := id.String(); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, spec string
		want          bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "aa", false},
		{"*", "anything", true},
		{"a*", "a", true},
		{"a*", "ab", true},
		{"a*", "ba", false},
		{"*a", "ba", true},
		{"*a", "ab", false},
		{"a*b", "ab", true},
		{"a*b", "axxb", true},
		{"a*b", "axxbx", false},
		{"a*b*c", "a-b-b-c", true},
		{"**", "x", true},
		{"a?", "ab", false},
		{"a?", "a?", true},
		{"[ab]", "a", false},
		{`\*`, "*", false},
		{"A*", "ab", false},
		{"ü*", "üx", true},
		{"a:*", "a:b", true},
		{"", "", true},
		{"", "a", false},
		{strings.Repeat("*a", 60), strings.Repeat("a", 128), true},
		{strings.Repeat("*a", 60) + "b", strings.Repeat("a", 128), false},
	} {
		if matchSpec(c.pattern, c.spec) != c.want {
			t.Errorf("%q and %q: %v", c.pattern, c.spec, !c.want)
		}
	}
}
