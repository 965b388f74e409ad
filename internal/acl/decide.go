package acl

import "github.com/aether-gateway/gateway/internal/address"

// Principal is an authenticated participant, as far as permission is concerned.
// The zero value is nobody and is denied everything. Decide only reads it; its
// owner may change Workspace between decisions, never during one.
type Principal struct {
	Kind Kind
	// Address is where the principal is reached, and the source that is stamped
	// on what it sends. It is zero for orchestrators, workflow engines and
	// metrics bridges, which have none.
	Address address.Address
	// Identity is the identity string of those that have no address:
	// orc::implementation::specifier, wfe::instance, metrics::instance.
	Identity string
	// Workspace is where an agent, a task or a user is now; "" for a user that
	// has chosen none, and for the kinds that are not workspace-scoped.
	Workspace string
	// Workspaces are those that the credential covers. For users they are the
	// ones between which they may switch.
	Workspaces WorkspaceSet
}

// Name is the principal's identity string, by which rules name it; "" as long
// as it has none.
func (p *Principal) Name() string {
	if p.Address.IsZero() {
		return p.Identity
	}
	return p.Address.String()
}

// Members knows which users are in which workspaces. Its methods are called on
// the send path, from many goroutines at once: they answer from memory, without
// waiting and without allocating, and with false where they do not know.
type Members interface {
	// InWorkspace reports whether the user is a member of the workspace.
	InWorkspace(userID, workspace string) bool
	// InAny reports whether the user is a member of some workspace of the set.
	InAny(userID string, set WorkspaceSet) bool
	// Barred reports whether an operator has put the user out of the workspace.
	Barred(userID, workspace string) bool
}

// Decision is whether a message may be sent. The zero value is a denial.
type Decision struct {
	Allowed bool
	Reason  Reason // why not; ReasonNone if allowed
}

func allow() Decision        { return Decision{Allowed: true} }
func deny(r Reason) Decision { return Decision{Reason: r} }
func allowIf(ok bool, r Reason) Decision {
	if ok {
		return allow()
	}
	return deny(r)
}

// Decide says whether p may send to a: by the matrix, then by the workspace
// rule. A nil Members knows nobody, so that no user's window can be addressed.
// It is safe for concurrent use, does not wait and does not allocate.
func Decide(p *Principal, a address.Address, m Members) Decision {
	return DecideWith(p, a, m, nil)
}

// DecideWith is Decide, refined by rules. Nil rules refine nothing.
func DecideWith(p *Principal, a address.Address, m Members, rules Rules) Decision {
	switch {
	case p == nil || !p.Kind.Known():
		return deny(ReasonUnknownSender)
	case a.IsZero():
		return deny(ReasonNoAddress)
	}
	d := decide(p, a, m)
	if rules != nil {
		d = refine(p, a, d, m, rules)
	}
	return d
}

func decide(p *Principal, a address.Address, m Members) Decision {
	if !inMatrix(p.Kind, a.Prefix()) {
		return deny(ReasonKind)
	}
	if p.Kind == Bridge {
		return allow() // exempt from the workspace rule
	}
	// The stored form of the metrics address names no workspace, so a message to
	// it could not be held to one; the others write metric::* or
	// metric::{workspace}, and the gateway alone turns that into this.
	if a.IsMetricReceiver() {
		return deny(ReasonStoredForm)
	}
	if p.Kind.WorkspaceScoped() {
		return inOwnWorkspace(p, a, m)
	}
	return inCoveredWorkspaces(p, a, m)
}

// inOwnWorkspace is the workspace rule of agents, tasks and users: they reach
// their current workspace and no other.
func inOwnWorkspace(p *Principal, a address.Address, m Members) Decision {
	switch {
	case p.Workspace == "":
		return deny(ReasonNoWorkspace)
	case a.Prefix() == address.PrefixUser:
		return allowIf(m != nil && m.InWorkspace(a.UserID(), p.Workspace), ReasonNotMember)
	case a.IsMetricAny():
		return allow() // the metrics of the sender's own workspace
	}
	// Addresses that name no workspace, which the cases above are not, never
	// equal the sender's.
	return allowIf(a.Workspace() == p.Workspace, ReasonWorkspace)
}

// inCoveredWorkspaces is the workspace rule of services, orchestrators and
// workflow engines: they reach the workspaces that their credential covers.
func inCoveredWorkspaces(p *Principal, a address.Address, m Members) Decision {
	switch {
	case p.Workspaces.IsEmpty():
		return deny(ReasonNoWorkspace)
	case a.Prefix() == address.PrefixUser:
		return allowIf(m != nil && m.InAny(a.UserID(), p.Workspaces), ReasonNotMember)
	case a.IsMetricAny():
		// Such a sender names the workspace in the message; who reads it there
		// asks CoversWorkspace.
		return allow()
	}
	return allowIf(p.Workspaces.Covers(a.Workspace()), ReasonWorkspace)
}

// CoversWorkspace reports whether p may act in the workspace that it names: its
// current one for agents, tasks and users, any covered one for the others, any
// at all for bridges. Names that no workspace can have are never covered.
func CoversWorkspace(p *Principal, ws string) bool {
	switch {
	case p == nil || !p.Kind.Known() || ws == "":
		return false
	case p.Kind.WorkspaceScoped():
		return ws == p.Workspace
	case p.Kind == Bridge || p.Workspaces.IsAll():
		return address.ValidWorkspace(ws) == nil
	}
	return p.Workspaces.Covers(ws)
}
