package grants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/store"
)

// reference decides on a message by the words of what was asked for, slowly and
// without any of the code under test.
type reference struct {
	asked   *asked
	parent  *reference
	revoked bool
	expires time.Time
}

func (r *reference) allows(to address.Address, workspace string, now time.Time) bool {
	if r.revoked || !now.Before(r.expires) {
		return false
	}
	in := func(ws string) bool {
		return ws == "" || len(r.asked.workspaces) == 0 || slices.Contains(r.asked.workspaces, ws)
	}
	if !in(workspace) || !in(to.Workspace()) {
		return false
	}
	if ops := r.asked.operations; len(ops) > 0 && !slices.Contains(ops, "send") && !slices.Contains(ops, "*") {
		return false
	}
	if r.asked.level != 0 && r.asked.level < 20 {
		return false
	}
	patterns, _ := r.asked.patterns()
	if len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool { return slowMatch(p, to.String()) }) {
		return false
	}
	return r.parent == nil || r.parent.allows(to, workspace, now)
}

func slowMatch(pattern, s string) bool {
	if pattern == "*" {
		return true
	}
	p, a := strings.Split(pattern, "::"), strings.Split(s, "::")
	for i, segment := range p {
		switch {
		case i >= len(a):
			return false
		case i == len(p)-1 && segment == "*":
			return true
		case segment != "*" && segment != a[i]:
			return false
		}
	}
	return len(p) == len(a)
}

var somePatterns = []string{"*", "ag::w::*", "ag::*::i::*", "ag::w::i::a", "ag::w::i::*", "ga::w", "ga::*", "gu::*", "event::w", "tb::w::i", "*::w", "*::w::i", "us::x::*"}

func drawAsked(t *rapid.T, now time.Time) *asked {
	a := &asked{
		workspaces: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"w", "v"}), 0, 2, rapid.ID).Draw(t, "workspaces"),
		operations: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"send", "kv:read", "*", "task:create"}), 0, 2, rapid.ID).Draw(t, "operations"),
		level:      rapid.SampledFrom([]int32{0, 10, 20, 30}).Draw(t, "level"),
		hops:       rapid.Int32Range(0, 4).Draw(t, "hops"),
		expiresAt:  rapid.SampledFrom([]int64{0, now.Unix() + 50, now.Unix() + 100}).Draw(t, "expires"),
	}
	a.mayDelegate = a.hops > 0
	if list := rapid.SliceOfN(rapid.SampledFrom(somePatterns), 0, 3).Draw(t, "patterns"); len(list) > 0 {
		a.resources = []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "address", Patterns: list}}
	}
	return a
}

// A derived grant never allows what its parent or its subject does not, whatever
// is asked for; and what all of them allow is allowed.
func Test17DerivedIsNeverMore(t *testing.T) {
	t.Parallel()
	targets := []string{"ag::w::i::a", "ag::w::i::x", "ag::w::j::x", "ag::v::i::x", "ga::w", "ga::v", "gu::w", "event::w", "tb::w::i", "us::x::1", "metric::*", "sv::i::s", "pg::w"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		s := &Service{o: w.options()}
		subject, _ := policy.PrincipalOf(rapid.SampledFrom([]string{userU, "ag::w::i::s", "sv::i::s", "wfe::1"}).Draw(t, "subject"), "w", "v")
		now := w.clock()
		var chain []*reference
		var ids []string
		delegate := func(i int) string { return fmt.Sprint("ag::w::i::d", i) }
		for i := range rapid.IntRange(1, 5).Draw(t, "depth") {
			a := drawAsked(t, now)
			if err := a.check(); err != nil {
				t.Fatalf("%v: %v", a, err)
			}
			to := audience{delegate: ref{"agent", delegate(i)}}
			var g store.Grant
			r := &reference{asked: a}
			if i == 0 {
				made, err := s.first(subject, nil, a, to)
				if err != nil {
					return
				}
				g = made
			} else {
				made, err := s.belowWith(s.find(ids[i-1]), s.find(ids[i-1]).terms.Hops, delegate(i-1), a, to)
				if err != nil {
					break
				}
				g, r.parent = made, chain[i-1]
			}
			r.expires = g.ExpiresAt
			s.adopt([]store.Grant{g}, false)
			chain, ids = append(chain, r), append(ids, g.ID)
		}
		last := len(ids) - 1
		if n := rapid.IntRange(-1, last).Draw(t, "revoked"); n >= 0 && rapid.Bool().Draw(t, "revoke") {
			g := s.find(ids[n])
			gone := g.Grant
			gone.RevokedAt, gone.Terms = now, g.terms.encode()
			s.adopt([]store.Grant{gone}, false)
			chain[n].revoked = true
		}
		w.forward(time.Duration(rapid.IntRange(0, 120).Draw(t, "later")) * time.Second)
		out := rapid.Bool().Draw(t, "out")
		w.out[[2]string{"u", "w"}] = out
		for _, text := range targets {
			to, err := address.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, workspace := range []string{"w", "v"} {
				actor, _ := policy.PrincipalOf(delegate(last))
				_, _, refused := s.Authorize(actor, "", &aetherv1.AuthorizationContext{GrantId: ids[last]}, to, workspace)
				want := chain[last].allows(to, workspace, w.clock()) && subjectAllows(subject, to, workspace, w)
				// An empty scope of the first grant is the place of the subject.
				if len(chain[0].asked.workspaces) == 0 && subject.Kind.WorkspaceScoped() {
					want = want && workspace == "w" && (to.Workspace() == "" || to.Workspace() == "w")
				}
				if got := refused == nil; got != want {
					t.Fatalf("%s in %s for %s: allowed %v, want %v (%v)", text, workspace, subject.Name(), got, want, refused)
				}
			}
		}
	})
}

// subjectAllows is whether the subject may send there itself, being in a
// workspace.
func subjectAllows(p *acl.Principal, to address.Address, workspace string, w *world) bool {
	own := *p
	if own.Kind == acl.User {
		own.Workspace = workspace
		if !w.InWorkspace(own.Address.UserID(), workspace) {
			return false
		}
	} else if own.Kind.WorkspaceScoped() && own.Workspace != workspace {
		return false
	}
	return acl.Decide(&own, to, w).Allowed
}

// FuzzOperation: no operation makes the service panic, and what it stores it can
// read.
func FuzzOperation(f *testing.F) {
	for _, op := range []*aetherv1.AuthorityGrantOperation{exchangeOp(nil), deriveOp("gr_x", agentB, nil)} {
		b, err := proto.Marshal(op)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	w := newWorld()
	s := &Service{o: w.options()}
	s.o.Lifetime, s.o.MaxLifetime = time.Hour, time.Hour
	u := w.caller(f, userU, "w")
	parent, _ := s.exchange(f.Context(), u, exchangeOp(nil).GetExchangeRequest())
	s.adopt([]store.Grant{parent}, false)
	a := w.caller(f, agentA)
	f.Fuzz(func(t *testing.T, b []byte) {
		var op aetherv1.AuthorityGrantOperation
		if proto.Unmarshal(b, &op) != nil {
			return
		}
		if r := op.GetExchangeRequest(); r != nil {
			if g, err := s.exchange(t.Context(), u, r); err == nil {
				readable(t, g)
			}
		}
		if r := op.GetDeriveRequest(); r != nil {
			if g, err := s.derive(t.Context(), a, parent.ID, deriveAsked(r), r.GetDelegate()); err == nil {
				readable(t, g)
			}
		}
	})
}

func readable(t *testing.T, g store.Grant) {
	t.Helper()
	if _, err := hold(g); err != nil {
		t.Errorf("%+v: %v", g, err)
	}
}

// FuzzTerms: what is stored is read or refused.
func FuzzTerms(f *testing.F) {
	f.Add(`{"workspaces":["w"],"level":20,"as":"us::u::w"}`)
	f.Add(`{"workspaces":["*"],"patterns":["ag::*"],"operations":["x"],"hops":-1,"as":""}`)
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := hold(store.Grant{ID: "g", Terms: text}); err == nil && h.subject.Kind == acl.KindUnknown {
			t.Errorf("%q is a grant of nobody", text)
		}
	})
}

// A send under a grant costs no allocation.
func BenchmarkAuthorize(b *testing.B) {
	for _, depth := range []int{0, 3} {
		b.Run(fmt.Sprint("derived ", depth), func(b *testing.B) {
			w := newWorld()
			s := &Service{o: w.options()}
			s.o.Lifetime, s.o.MaxLifetime = time.Hour, time.Hour
			u := w.caller(b, userU, "w")
			g, err := s.exchange(b.Context(), u, exchangeOp(nil).GetExchangeRequest())
			if err != nil {
				b.Fatal(err)
			}
			s.adopt([]store.Grant{g}, false)
			actor := agentA
			for i := range depth {
				c := w.caller(b, actor)
				actor = fmt.Sprint("ag::w::i::d", i)
				next, err := s.derive(b.Context(), c, g.ID, &asked{mayDelegate: i < depth-1}, &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: actor})
				if err != nil {
					b.Fatal(err)
				}
				g = next
				s.adopt([]store.Grant{g}, false)
			}
			p := w.caller(b, actor).Principal
			to, _ := address.Parse("ga::w")
			a := &aetherv1.AuthorizationContext{GrantId: g.ID}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := s.Authorize(p, "s", a, to, "w"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
