package kv

import (
	"context"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// book has grants by id: the subject, and up to which level.
type book map[string]struct {
	subject acl.Principal
	level   int32
}

// May implements [Grants], and notes nothing else of a use than whether it knows
// the grant.
func (b book) May(_ context.Context, u *grants.Use) (*acl.Principal, *wireerr.Error) {
	g, ok := b[u.Under.GetGrantId()]
	if !ok || g.level < u.Level || u.Session != "s" || u.Workspace != "w" {
		return nil, refusal(wireerr.GrantInvalid, "no")
	}
	return &g.subject, nil
}

func userWindow(id string) acl.Principal {
	a, err := address.User(id, "1")
	if err != nil {
		panic(err)
	}
	return acl.Principal{Kind: acl.User, Address: a, Workspace: "w", Workspaces: acl.Workspaces("w")}
}

// Test17Keys: under a grant a caller reads and writes what both it and the
// subject may; whoever names somebody else without one is refused.
func Test17Keys(t *testing.T) {
	t.Parallel()
	c := agent("w", "i", "1")
	c.Session = "s"
	b := newBench(t, func(o *Options) {
		o.Grants = book{
			"user":    {userWindow("u"), grants.LevelWrite},
			"reading": {userWindow("u"), grants.LevelRead},
			"like":    {agent("w", "i", "2").Principal, grants.LevelWrite},
			"other":   {agent("w", "j", "1").Principal, grants.LevelWrite},
		}
	})
	const scopeUserOf, workspaceOf = aetherv1.KVOperation_SCOPE_USER, aetherv1.KVOperation_SCOPE_WORKSPACE
	under := func(grant string, scope aetherv1.KVOperation_Scope, op *aetherv1.KVOperation) *aetherv1.KVOperation {
		op.Authorization = &aetherv1.AuthorizationContext{AuthorityMode: "on_behalf_of", GrantId: grant}
		if op.Scope = scope; scope == scopeUserOf {
			op.UserId = "u"
		}
		return op
	}
	get := func(key string) *aetherv1.KVOperation { return &aetherv1.KVOperation{Key: key} }
	b.do(c, under("user", scopeUserOf, put("k", "v")))
	if r := b.do(c, under("reading", scopeUserOf, get("k"))); string(r.GetValue()) != "v" {
		t.Errorf("read %q", r.GetValue())
	}
	b.do(c, under("like", workspaceOf, put("shared", "v")))
	for name, op := range map[string]*aetherv1.KVOperation{
		"written under a grant for reading": under("reading", scopeUserOf, put("k", "x")),
		"an unknown grant":                  under("none", scopeUserOf, get("k")),
		"a user's grant, the agents' keys":  under("user", workspaceOf, get("shared")),
		"of another implementation":         under("other", workspaceOf, get("shared")),
		"the caller's own":                  under("like", aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE, get("own")),
	} {
		if r, err := b.try(c, op); err == nil || err.Code != wireerr.GrantInvalid {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	stranger := under("user", scopeUserOf, get("k"))
	stranger.UserId = "v"
	b.refused(c, stranger, wireerr.GrantInvalid, "")
	named := get("k")
	named.Authorization = &aetherv1.AuthorizationContext{Subject: &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: "u"}}
	b.refused(c, named, wireerr.GrantInvalid, "names no grant")
	b.refused(c, under("user", scopeUserOf, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY}), wireerr.InvalidArgument, "not purged")
	if r := b.do(c, under("user", scopeUserOf, get("k"))); string(r.GetValue()) != "v" {
		t.Errorf("a refused request left %q", r.GetValue())
	}
}
