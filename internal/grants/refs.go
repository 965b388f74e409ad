package grants

import (
	"slices"
	"strings"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// ref points at a principal: a kind's name and an identity string, or, for all
// windows of a user, the bare id of the user.
type ref struct{ kind, id string }

func (r ref) wire() *aetherv1.PrincipalRef {
	if r.kind == "" {
		return nil
	}
	return &aetherv1.PrincipalRef{PrincipalType: r.kind, PrincipalId: r.id}
}

// refKinds are the types of a reference, and the kinds of principals they take.
var refKinds = map[string][]acl.Kind{
	"agent":           {acl.Agent},
	"task":            {acl.UniqueTask, acl.Task},
	"unique_task":     {acl.UniqueTask},
	"non_unique_task": {acl.Task},
	"user":            {acl.User},
	"workflow_engine": {acl.WorkflowEngine},
	"metrics_bridge":  {acl.MetricsBridge},
	"orchestrator":    {acl.Orchestrator},
	"service":         {acl.Service},
	"bridge":          {acl.Bridge},
}

// parseRef reads a reference of a client.
func parseRef(what, kind, id string) (ref, *wireerr.Error) {
	kinds, known := refKinds[strings.ToLower(kind)]
	switch {
	case !known:
		return ref{}, wireerr.New(wireerr.InvalidArgument, "%s: %.32q is no type of a principal", what, kind)
	case kinds[0] == acl.User && !strings.Contains(id, "::"):
		if err := address.ValidSegment(id); err != nil {
			return ref{}, wireerr.New(wireerr.InvalidArgument, "%s: the user id: %v", what, err)
		}
		return ref{acl.User.String(), id}, nil
	}
	p, err := policy.PrincipalOf(id)
	if err != nil {
		return ref{}, wireerr.New(wireerr.InvalidArgument, "%s: %v", what, err)
	}
	if !slices.Contains(kinds, p.Kind) {
		return ref{}, wireerr.New(wireerr.InvalidArgument, "%s: the type %.32q and %.64q do not belong together", what, kind, id)
	}
	return ref{p.Kind.String(), id}, nil
}

// refOf is the reference to a principal: of a user, to all windows.
func refOf(p *acl.Principal) ref {
	if p.Kind == acl.User {
		return ref{p.Kind.String(), p.Address.UserID()}
	}
	return ref{p.Kind.String(), p.Name()}
}

// isRef reports whether a reference points at a principal. Identities have "::"
// in them and user ids do not, so that neither is taken for the other.
func isRef(kind, id string, p *acl.Principal) bool {
	if id == "" || kind != p.Kind.String() {
		return false
	}
	return id == p.Name() || p.Kind == acl.User && id == p.Address.UserID()
}

// same reports whether two references point at the same principal, or one at a
// window of the other's user.
func (r ref) same(other ref) bool { return r.kind == other.kind && r.owner() == other.owner() }

// owner is the user of a user's window, or else the identity.
func (r ref) owner() string {
	if r.kind == acl.User.String() {
		if a, err := address.Parse(r.id); err == nil {
			return a.UserID()
		}
	}
	return r.id
}

// at is an address by which rules can name the principal; zero if there is none.
func (r ref) at(workspaces acl.WorkspaceSet) address.Address {
	if a, err := address.Parse(r.id); err == nil {
		return a
	}
	if r.kind == acl.User.String() {
		if names := workspaces.Names(); len(names) > 0 {
			if a, err := address.UserWorkspace(r.id, names[0]); err == nil {
				return a
			}
		}
	}
	return address.Address{}
}

// workspace is the one in which an identity lives, "" for those in none.
func (r ref) workspace() string {
	if a, err := address.Parse(r.id); err == nil {
		return a.Workspace()
	}
	return ""
}
