package acl

import "github.com/aether-gateway/gateway/internal/address"

// Rules are what an operator has ruled for named principals. An implementation
// must be as quick as [Members] and safe for concurrent use.
type Rules interface {
	// Effect says what the rules say of p doing something with an address.
	// What it does not know it denies.
	Effect(p *Principal, action Action, a address.Address) Effect
}

// refine applies the rules to a decision of the matrix and the workspace rule:
// a denial always wins, an allowance opens what may be opened.
func refine(p *Principal, a address.Address, d Decision, m Members, rules Rules) Decision {
	switch rules.Effect(p, ActionSend, a) {
	case Deny:
		return deny(ReasonRule)
	case Allow:
		if !d.Allowed && openable(p, a, d.Reason, m) {
			return allow()
		}
	}
	return d
}

// openable reports whether an allowing rule may lift a refusal: towards
// services and bridges, and towards other workspaces, with what the matrix
// gives to the sender's kind there. Progress, the stored form of metrics, and
// the metrics of a workspace that is not the sender's stay closed.
func openable(p *Principal, a address.Address, r Reason, m Members) bool {
	switch r {
	case ReasonKind:
		return a.Prefix() == address.PrefixService || a.Prefix() == address.PrefixBridge
	case ReasonWorkspace:
		return Openable(a.Prefix())
	case ReasonNoWorkspace:
		// A user that has chosen no workspace chooses one first.
		if p.Kind.WorkspaceScoped() || !Openable(a.Prefix()) {
			return false
		}
		return a.Prefix() != address.PrefixUser || memberSomewhere(a.UserID(), m)
	case ReasonNotMember:
		// Who was put out of a workspace is out of reach for what is in it.
		return memberSomewhere(a.UserID(), m) && (p.Workspace == "" || !m.Barred(a.UserID(), p.Workspace))
	}
	return false
}

func memberSomewhere(user string, m Members) bool { return m != nil && m.InAny(user, All()) }

// Openable reports whether an allowing rule can open anything at addresses of
// a prefix.
func Openable(p address.Prefix) bool {
	return p != 0 && p != address.PrefixProgress && p != address.PrefixMetric
}

// CanOpen reports whether an allowing rule can open anything at addresses of a
// prefix to senders of a kind: services and bridges to everybody, and the other
// kinds of addresses, in other workspaces, to those who have them in their own.
func CanOpen(k Kind, p address.Prefix) bool {
	return p == address.PrefixService || p == address.PrefixBridge || Openable(p) && inMatrix(k, p)
}

// Permit applies the rules to an action whose usual answer is base, such as
// whether the principal may send there, or owns what is asked for: a denial
// always wins, an allowance makes it allowed. Nobody, and an unknown action, is
// denied. Nil rules change nothing.
func Permit(p *Principal, action Action, a address.Address, base Decision, rules Rules) Decision {
	if p == nil || !p.Kind.Known() || !action.Known() {
		return deny(ReasonUnknownSender)
	}
	if rules == nil {
		return base
	}
	switch rules.Effect(p, action, a) {
	case Deny:
		return deny(ReasonRule)
	case Allow:
		return allow()
	}
	return base
}

// DecideMetrics says whether p may write the metrics of a workspace: for
// senders and forms of address that name the workspace in the message only, of
// which [DecideWith] cannot know it.
func DecideMetrics(p *Principal, workspace string, rules Rules) Decision {
	if rules == nil {
		return allow()
	}
	a, err := address.Metric(workspace)
	if err != nil || rules.Effect(p, ActionSend, a) == Deny {
		return deny(ReasonRule)
	}
	return allow()
}
