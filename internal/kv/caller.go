package kv

import (
	"slices"
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Caller is who asks.
type Caller struct {
	Principal acl.Principal
	// Identity is the identity string, Session the session's id.
	Identity, Session string
	// Implementation is that of an agent, a task or a service; it does not count
	// for other kinds.
	Implementation string
}

// The scopes, as the store has them. They are the wire's, and one of
// checkpoints.
const (
	scopeGlobal              = uint8(aetherv1.KVOperation_SCOPE_GLOBAL)
	scopeWorkspace           = uint8(aetherv1.KVOperation_SCOPE_WORKSPACE)
	scopeUser                = uint8(aetherv1.KVOperation_SCOPE_USER)
	scopeUserWorkspace       = uint8(aetherv1.KVOperation_SCOPE_USER_WORKSPACE)
	scopeGlobalExclusive     = uint8(aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE)
	scopeWorkspaceExclusive  = uint8(aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE)
	scopeUserShared          = uint8(aetherv1.KVOperation_SCOPE_USER_SHARED)
	scopeUserWorkspaceShared = uint8(aetherv1.KVOperation_SCOPE_USER_WORKSPACE_SHARED)
	scopeCheckpoint          = uint8(100)
)

// place is whose keys a request is about.
type place struct {
	space store.KVSpace
	// name is how rules call the keys, without the key; with "::" and the key
	// behind it, one of them.
	name string
	// account is who the keys are counted for.
	account string
}

func refusal(code wireerr.Code, format string, args ...any) *wireerr.Error {
	return wireerr.New(code, format, args...)
}

// mayKeep refuses the kinds that have no keys.
func (c *Caller) mayKeep() *wireerr.Error {
	switch c.Principal.Kind {
	case acl.Agent, acl.UniqueTask, acl.Task, acl.Service, acl.WorkflowEngine, acl.MetricsBridge:
		return nil
	}
	return refusal(wireerr.InvalidPrincipal, "a principal of kind %s has no keys", c.Principal.Kind)
}

// implementation is what the caller's keys are kept by. Kinds without an
// implementation have a name that no implementation can have.
func (c *Caller) implementation() string {
	switch c.Principal.Kind {
	case acl.WorkflowEngine, acl.MetricsBridge:
		return "#" + c.Principal.Kind.String()
	}
	return c.Implementation
}

// workspace is the one that a request is about.
func (s *Service) workspace(c *Caller, named string) (string, *wireerr.Error) {
	p := &c.Principal
	if p.Kind.WorkspaceScoped() {
		if named != "" && named != p.Workspace {
			return "", refusal(wireerr.PermissionDenied, "the keys of another workspace are out of reach")
		}
		return p.Workspace, nil
	}
	if named == "" {
		only, ok := p.Workspaces.Only()
		if !ok {
			return "", refusal(wireerr.InvalidArgument, "workspace is missing: a principal of kind %s names the one that it means", p.Kind)
		}
		named = only
	}
	if !acl.CoversWorkspace(p, named) {
		return "", refusal(wireerr.PermissionDenied, "the credential does not cover this workspace")
	}
	if s.o.Spaces != nil {
		if _, exists := s.o.Spaces.Check(named); !exists {
			return "", refusal(wireerr.NotFound, "workspace %.64q does not exist", named)
		}
	}
	return named, nil
}

// place says whose keys a scope means.
func (s *Service) place(c *Caller, scope aetherv1.KVOperation_Scope, workspace, user string) (pl place, err *wireerr.Error) {
	if err = c.mayKeep(); err != nil {
		return pl, err
	}
	if scope == aetherv1.KVOperation_SCOPE_UNSPECIFIED {
		scope = aetherv1.KVOperation_SCOPE_WORKSPACE
	}
	word, known := scopeNames[scope]
	if !known {
		return pl, refusal(wireerr.InvalidArgument, "scope %d is unknown", scope)
	}
	sp := &pl.space
	sp.Scope = uint8(scope)
	switch sp.Scope {
	case scopeWorkspace, scopeUserWorkspace, scopeWorkspaceExclusive, scopeUserWorkspaceShared:
		if sp.Workspace, err = s.workspace(c, workspace); err != nil {
			return place{}, err
		}
	}
	switch sp.Scope {
	case scopeGlobal, scopeWorkspace, scopeUser, scopeUserWorkspace:
		sp.Implementation = c.implementation()
	}
	switch sp.Scope {
	case scopeGlobalExclusive, scopeWorkspaceExclusive:
		sp.Owner = c.Identity
	case scopeUser, scopeUserWorkspace, scopeUserShared, scopeUserWorkspaceShared:
		if address.ValidSegment(user) != nil {
			return place{}, refusal(wireerr.InvalidArgument, "user_id must name the user that the scope is about")
		}
		sp.Owner = user
	}
	if sp.Scope == scopeUserShared && !s.inReach(c, user) {
		return place{}, refusal(wireerr.PermissionDenied, "the user is no member of a workspace of the caller's")
	}
	if sp.Scope == scopeGlobalExclusive {
		// They end with the identity's workspace.
		sp.Workspace = c.Principal.Workspace
	}
	pl.account = c.account(sp)
	parts := []string{word, strings.TrimPrefix(sp.Implementation, "#"), sp.Owner}
	if sp.Scope != scopeGlobalExclusive {
		parts = slices.Insert(parts, 1, sp.Workspace)
	}
	pl.name = strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "::")
	return pl, nil
}

var scopeNames = map[aetherv1.KVOperation_Scope]string{
	aetherv1.KVOperation_SCOPE_GLOBAL:                "global",
	aetherv1.KVOperation_SCOPE_WORKSPACE:             "workspace",
	aetherv1.KVOperation_SCOPE_USER:                  "user",
	aetherv1.KVOperation_SCOPE_USER_WORKSPACE:        "user_workspace",
	aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE:      "global_exclusive",
	aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE:   "workspace_exclusive",
	aetherv1.KVOperation_SCOPE_USER_SHARED:           "user_shared",
	aetherv1.KVOperation_SCOPE_USER_WORKSPACE_SHARED: "user_workspace_shared",
}

// checkpoints is where a caller's checkpoints are.
func (c *Caller) checkpoints() (place, *wireerr.Error) {
	if err := c.mayKeep(); err != nil {
		return place{}, err
	}
	sp := store.KVSpace{Workspace: c.Principal.Workspace, Scope: scopeCheckpoint, Owner: c.Identity}
	return place{space: sp, name: "checkpoint::" + c.Identity, account: c.account(&sp)}, nil
}

// account is who a space's keys are counted for: its workspace; where it has
// none, the caller's, or the implementation that shares them.
func (c *Caller) account(sp *store.KVSpace) string {
	switch {
	case sp.Workspace != "":
		return "workspace " + sp.Workspace
	case sp.Implementation != "":
		return "implementation " + sp.Implementation
	case c.Principal.Workspace != "":
		return "workspace " + c.Principal.Workspace
	}
	return "implementation " + c.implementation()
}

// inReach reports whether a user is in a workspace of the caller's: what all
// implementations share of a user is not for those who have nothing to do with
// the user.
func (s *Service) inReach(c *Caller, user string) bool {
	m := s.o.Members
	switch {
	case m == nil:
		return false
	case c.Principal.Kind.WorkspaceScoped():
		return m.InWorkspace(user, c.Principal.Workspace)
	}
	return m.InAny(user, c.Principal.Workspaces)
}

// permitted refuses what rules deny of keys by that name.
func (s *Service) permitted(c *Caller, name string, actions ...acl.Action) *wireerr.Error {
	for _, action := range actions {
		if s.denied(c, action, name) {
			return refusal(wireerr.PermissionDenied, "a rule denies %s of these keys", action)
		}
	}
	return nil
}

func (s *Service) denied(c *Caller, action acl.Action, name string) bool {
	return s.o.Rules != nil && s.o.Rules.EffectOn(c.Identity, action, name) == acl.Deny
}
