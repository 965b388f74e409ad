package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/policy/policytest"
)

func parse(t testing.TB, s string) address.Address {
	t.Helper()
	a, err := address.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// world answers for a [policytest.World].
type world struct{ w policytest.World }

func (w world) InWorkspace(user, ws string) bool {
	return slices.Contains(w.w.Members[user], ws) && !w.Barred(user, ws)
}

func (w world) InAny(user string, set acl.WorkspaceSet) bool {
	return slices.ContainsFunc(w.w.Members[user], func(ws string) bool { return set.Covers(ws) && w.InWorkspace(user, ws) })
}

func (w world) Barred(user, ws string) bool { return slices.Contains(w.w.Barred[user], ws) }

var testWorld = policytest.World{
	Members: map[string][]string{"u-own": {"own"}, "u-other": {"other"}, "u-barred": {"own", "other"}},
	Barred:  map[string][]string{"u-barred": {"own"}},
}

var (
	testUsers      = []string{"u-own", "u-other", "u-barred", "u-unknown"}
	testWorkspaces = []string{"own", "other"}
)

// testSenders are all kinds, in a workspace and in none.
var testSenders = []policytest.Sender{
	{Kind: "agent", Identity: "ag::own::impl::1", Workspace: "own"},
	{Kind: "unique_task", Identity: "tu::own::impl::1", Workspace: "own"},
	{Kind: "non_unique_task", Identity: "ta::own::impl::7", Workspace: "own"},
	{Kind: "user", Identity: "us::u-own::win", Workspace: "own"},
	{Kind: "user", Identity: "us::u-nowhere::win"},
	{Kind: "workflow_engine", Identity: "wfe::1", Covers: []string{"own", "third"}, App: "own"},
	{Kind: "workflow_engine", Identity: "wfe::2"},
	{Kind: "metrics_bridge", Identity: "metrics::1", Covers: []string{"own"}, App: "own"},
	{Kind: "orchestrator", Identity: "orc::impl::1", Covers: []string{"own"}, App: "own"},
	{Kind: "service", Identity: "sv::impl::1", Covers: []string{"own"}, App: "own"},
	{Kind: "bridge", Identity: "br::impl::1", Covers: []string{"own"}, App: "own"},
}

func principalOf(t testing.TB, s policytest.Sender) *acl.Principal {
	t.Helper()
	workspaces := s.Covers
	if s.Workspace != "" {
		workspaces = []string{s.Workspace}
	}
	p, err := PrincipalOf(s.Identity, workspaces...)
	if err != nil {
		t.Fatal(err)
	}
	if p.Kind.String() != s.Kind || p.Name() != s.Identity || p.Workspace != s.Workspace {
		t.Fatalf("%+v became %+v", s, p)
	}
	return p
}

func identities(senders []policytest.Sender) (list []string) {
	for _, s := range senders {
		list = append(list, s.Identity)
	}
	return list
}

func setOf(t testing.TB, rules []policytest.Rule) *Set {
	t.Helper()
	var list []*Rule
	for i, r := range rules {
		list = append(list, compiled(t, int64(i+1), rule(r.Effect, r.Principal, r.Action, r.Address, r.Grammar)))
	}
	return NewSet(list)
}

// decide is what the router asks on the way of a message.
func decide(p *acl.Principal, to, app string, m acl.Members, s *Set) string {
	a, err := address.Parse(to)
	if err != nil {
		return policytest.BadName
	}
	if !acl.DecideWith(p, a, m, s).Allowed {
		return policytest.Denied
	}
	if a.Prefix() == address.PrefixMetric && a.Workspace() == "" && p.Workspace == "" && !acl.DecideMetrics(p, app, s).Allowed {
		return policytest.Denied
	}
	return policytest.Stored
}

// Senders × prefixes × workspaces × malformed × rules, against an oracle.
func TestRow18MatrixWithRules(t *testing.T) {
	t.Parallel()
	good := policytest.Addresses(testWorkspaces, testUsers)
	all := append(policytest.Malformed("own"), good...)
	r := rand.New(rand.NewPCG(1, 2))
	asked, stored := 0, 0
	for round := range 30 {
		rules := policytest.Rules(r, 4*round, identities(testSenders), good)
		s := setOf(t, rules)
		for _, sender := range testSenders {
			p := principalOf(t, sender)
			for _, to := range all {
				want := testWorld.Outcome(sender, to, rules)
				if got := decide(p, to, sender.App, world{testWorld}, s); got != want {
					t.Errorf("%s to %q: %s, the oracle says %s, with %+v", sender.Identity, to, got, want, rules)
				}
				asked++
				if want == policytest.Stored {
					stored++
				}
			}
		}
	}
	if stored < asked/100 || stored > asked/2 {
		t.Errorf("%d of %d are allowed", stored, asked)
	}
}

// All that is made up as malformed is, for the parser and for the oracle.
func TestMalformed(t *testing.T) {
	t.Parallel()
	for _, s := range policytest.Malformed("own") {
		if _, err := address.Parse(s); err == nil || policytest.Valid(s) {
			t.Errorf("%q is an address: %v", s, err)
		}
	}
	for _, s := range policytest.Addresses(testWorkspaces, testUsers) {
		if _, err := address.Parse(s); err != nil || !policytest.Valid(s) {
			t.Errorf("%q is no address: %v", s, err)
		}
	}
}

// The tree says what the patterns say one by one.
func TestSetAgainstRules(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	good := policytest.Addresses(testWorkspaces, testUsers)
	for range 200 {
		rules := policytest.Rules(r, 30, identities(testSenders), good)
		s := setOf(t, rules)
		for range 100 {
			who := identities(testSenders)[r.IntN(len(testSenders))]
			to := good[r.IntN(len(good))]
			action := []acl.Action{acl.ActionSend, acl.ActionObserve, acl.ActionKVRead}[r.IntN(3)]
			want := acl.NoEffect
			for _, m := range s.Matching(who, action, to) {
				if want != acl.Deny {
					want = m.effect
				}
			}
			if got := s.EffectOn(who, action, to); got != want {
				t.Fatalf("%s %s %s: %s, want %s of %+v", who, action, to, got, want, rules)
			}
		}
	}
}

func TestSetFailsClosed(t *testing.T) {
	t.Parallel()
	s := setOf(t, []policytest.Rule{{Effect: "allow", Principal: "*::*", Action: "send", Address: "*::*", Grammar: "subtree"}})
	agent := principalOf(t, testSenders[0])
	if s.Effect(&acl.Principal{Kind: acl.Agent}, acl.ActionSend, parse(t, "br::i::s")) != acl.Deny {
		t.Error("a principal without a name is allowed something")
	}
	if s.Effect(agent, acl.ActionSend, address.Address{}) != acl.Deny {
		t.Error("no address is allowed")
	}
	if s.Effect(&acl.Principal{Kind: acl.WorkflowEngine, Identity: "a::b::c::d::e"}, acl.ActionSend, parse(t, "br::i::s")) != acl.Deny {
		t.Error("a name that is too long is allowed")
	}
	for _, action := range []acl.Action{acl.ActionUnknown, acl.ActionKVWrite, 255} {
		if s.Effect(agent, action, parse(t, "br::i::s")) != acl.NoEffect {
			t.Errorf("action %d has rules", action)
		}
	}
	if new(Set).Effect(agent, acl.ActionSend, parse(t, "br::i::s")) != acl.NoEffect {
		t.Error("no rules have an effect")
	}
}

// Row 18: the name of a client is never a pattern.
func TestRow18WildcardsInNames(t *testing.T) {
	t.Parallel()
	s := setOf(t, []policytest.Rule{
		{Effect: "allow", Principal: "sv::impl::1", Action: "send", Address: "sv::i::s", Grammar: "strict"},
		{Effect: "allow", Principal: "wfe::1", Action: "send", Address: "sv::i::s", Grammar: "strict"},
	})
	for _, name := range []string{"wfe::*", "wfe::#", "*::1", "wfe::1*", "*::*", "sv::impl::*", "sv::*::1", "wfe::1::", "::1", "WFE::1"} {
		for _, to := range []string{"sv::i::s"} {
			if e := s.EffectOn(name, acl.ActionSend, to); e != acl.NoEffect {
				t.Errorf("%q: %s", name, e)
			}
			if e := s.Effect(&acl.Principal{Kind: acl.WorkflowEngine, Identity: name}, acl.ActionSend, parse(t, to)); e == acl.Allow {
				t.Errorf("%q: %s", name, e)
			}
		}
	}
	for _, to := range []string{"sv::i::*", "sv::*::s", "*::*", "sv::i::s::", "sv::i"} {
		if e := s.EffectOn("wfe::1", acl.ActionSend, to); e != acl.NoEffect {
			t.Errorf("to %q: %s", to, e)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	s := setOf(t, []policytest.Rule{
		{Effect: "allow", Principal: "ag::own::*", Action: "send", Address: "br::*", Grammar: "subtree"},
		{Effect: "deny", Principal: "ag::own::impl::1", Action: "send", Address: "br::slack::1", Grammar: "strict"},
		{Effect: "deny", Principal: "ag::own::impl::1", Action: "send", Address: "metric::own", Grammar: "strict"},
		{Effect: "deny", Principal: "ag::own::impl::1", Action: "observe", Address: "br::slack::1", Grammar: "strict"},
	})
	agent := principalOf(t, testSenders[0])
	explain := func(to string) (Explanation, string) {
		e := s.Explain(agent, parse(t, to), world{testWorld})
		var ids []int64
		for _, r := range e.Rules {
			ids = append(ids, r.ID)
		}
		return e, fmt.Sprint(ids)
	}
	if e, ids := explain("br::slack::1"); e.Decision.Allowed || e.Decision.Reason != acl.ReasonRule || e.Before.Reason != acl.ReasonKind || ids != "[1 2]" ||
		e.Text == "" || e.BeforeText == "" {
		t.Errorf("%+v, rules %s", e, ids)
	}
	if e, ids := explain("br::slack::2"); !e.Decision.Allowed || e.Before.Allowed || e.Text != "" || ids != "[1]" {
		t.Errorf("%+v, rules %s", e, ids)
	}
	if e, ids := explain("metric::*"); e.Decision.Allowed || !e.Before.Allowed || ids != "[3]" {
		t.Errorf("%+v, rules %s", e, ids)
	}
	if e, ids := explain("ga::other"); e.Decision.Reason != acl.ReasonWorkspace || e.Text != e.BeforeText || ids != "[]" {
		t.Errorf("%+v, rules %s", e, ids)
	}
}

func TestPrincipalOfRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		identity   string
		workspaces []string
	}{
		{"", nil},
		{"ga::w", nil},
		{"ag::w::i", nil},
		{"ag::w::i::*", nil},
		{"orc::i", nil},
		{"orc::i::s::t", nil},
		{"orc::i::*", nil},
		{"wfe::", nil},
		{"metrics::a b", nil},
		{"sv::i::s", []string{"a b"}},
		{"sv::i::s", []string{"receiver1"}},
		{"br::i::s", []string{""}},
	} {
		if p, err := PrincipalOf(c.identity, c.workspaces...); err == nil {
			t.Errorf("%q in %q is %+v", c.identity, c.workspaces, p)
		}
	}
	if p, err := PrincipalOf("sv::i::s", "*"); err != nil || !p.Workspaces.IsAll() {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := PrincipalOf("us::u::w", "a", "b"); err != nil || p.Workspace != "a" || !p.Workspaces.Covers("b") {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestEffectAllocatesNothing(t *testing.T) {
	s := NewSet(manyRules(t, 10_000))
	p := principalOf(t, testSenders[0])
	orc := principalOf(t, testSenders[8])
	var to []address.Address
	for _, a := range policytest.Addresses(testWorkspaces, testUsers) {
		to = append(to, parse(t, a))
	}
	if n := testing.AllocsPerRun(50, func() {
		for _, a := range to {
			acl.DecideWith(p, a, nil, s)
			acl.DecideWith(orc, a, nil, s)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// manyRules are rules as an organisation would have them: about single agents,
// about implementations and about workspaces, towards services, bridges, other
// workspaces and single addresses, in the same proportion whatever their number.
func manyRules(t testing.TB, n int) []*Rule {
	t.Helper()
	shapes := []struct{ effect, principal, address, grammar string }{
		{"allow", "ag::own::impl::%d", "br::slack::%d", "strict"},
		{"deny", "ag::own::impl::%d", "ag::own::secret::%d", "strict"},
		{"allow", "ag::w%d::*::*", "sv::billing::%d", "strict"},
		{"deny", "us::user%d::*", "ag::own::impl%d::*", "strict"},
		{"allow", "ag::own::impl%d::*", "ag::other%d::*", "subtree"},
		{"deny", "*::w%d::*", "ga::w%d", "subtree"},
		{"allow", "sv::svc%d::*", "ag::x%d::impl::*", "strict"},
		{"deny", "ta::own::job%d::*", "*::own::impl::%d", "strict"},
		{"allow", "wfe::%d", "event::w%d", "strict"},
		{"deny", "orc::impl::%d", "tu::own::*::%d", "strict"},
	}
	var list []*Rule
	for i := range n {
		s := shapes[i%len(shapes)]
		k := i / len(shapes)
		list = append(list, compiled(t, int64(i+1), rule(s.effect, fmt.Sprintf(s.principal, k), "send", fmt.Sprintf(s.address, k), s.grammar)))
	}
	return list
}

// Deciding with 10, 100, 1,000 and 10,000 rules: what is asked is the same, and
// hits rules that all of them have, or none.
func BenchmarkDecide(b *testing.B) {
	agent, err := PrincipalOf("ag::own::impl::0")
	if err != nil {
		b.Fatal(err)
	}
	var to []address.Address
	for _, s := range []string{"br::slack::0", "ag::own::secret::0", "ag::own::impl::0", "ga::own", "sv::billing::0", "ag::other0::i::s", "br::none::x", "tb::own::impl"} {
		to = append(to, parse(b, s))
	}
	for _, n := range []int{0, 10, 100, 1000, 10_000} {
		var s acl.Rules
		if n > 0 {
			s = NewSet(manyRules(b, n))
		}
		b.Run(fmt.Sprintf("%d rules", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				acl.DecideWith(agent, to[i%len(to)], nil, s)
				i++
			}
		})
	}
}

func BenchmarkNewSet(b *testing.B) {
	rules := manyRules(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		NewSet(rules)
	}
}
