package acl

import "github.com/aether-gateway/gateway/internal/address"

// Reports tells whether principals of a kind report progress: agents, tasks and
// services. Nobody else's reports are published.
func (k Kind) Reports() bool {
	switch k {
	case Agent, UniqueTask, Task, Service:
		return true
	}
	return false
}

// DecideProgress says whether p may report progress in a workspace, whose
// progress address is a: its own, or for a service one that its credential
// covers. A rule that denies sending there denies it; none opens another
// workspace. Nil rules refine nothing.
func DecideProgress(p *Principal, a address.Address, rules Rules) Decision {
	switch {
	case p == nil || !p.Kind.Known():
		return deny(ReasonUnknownSender)
	case a.Prefix() != address.PrefixProgress:
		return deny(ReasonNoAddress)
	case !p.Kind.Reports():
		return deny(ReasonKind)
	case !CoversWorkspace(p, a.Workspace()):
		return deny(ReasonWorkspace)
	case rules != nil && rules.Effect(p, ActionSend, a) == Deny:
		return deny(ReasonRule)
	}
	return allow()
}

// DecideRecipient says whether p's report may be addressed to somebody in a
// workspace, by the address of one, or by uw::{user}::{workspace} of all windows
// of a user: to whom is in it, unless a rule keeps p from sending there.
func DecideRecipient(p *Principal, to address.Address, workspace string, m Members, rules Rules) Decision {
	switch to.Prefix() {
	case address.PrefixAgent, address.PrefixUniqueTask, address.PrefixTask:
		if to.Workspace() != workspace {
			return deny(ReasonWorkspace)
		}
	case address.PrefixUser, address.PrefixUserWorkspace:
		if m == nil || !m.InWorkspace(to.UserID(), workspace) {
			return deny(ReasonNotMember)
		}
	default:
		return deny(ReasonKind)
	}
	if rules != nil && rules.Effect(p, ActionSend, to) == Deny {
		return deny(ReasonRule)
	}
	return allow()
}
