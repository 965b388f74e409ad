package acl

import (
	"fmt"

	"github.com/aether-gateway/gateway/internal/address"
)

// Reason says why a message is refused. The zero value is no reason.
type Reason uint8

// The reasons.
const (
	ReasonNone          Reason = iota
	ReasonUnknownSender        // the sender is of no known kind
	ReasonNoAddress            // there is no target address
	ReasonKind                 // the matrix has no such cell
	ReasonStoredForm           // metric::receiver0, written by a client
	ReasonNoWorkspace          // the sender is in no workspace, or its credential covers none
	ReasonWorkspace            // the address is in a workspace that the sender does not reach
	ReasonNotMember            // the addressed user is not where the sender may reach users
	ReasonRule                 // a rule of the operator says so

	reasonEnd
)

var reasonTexts = [reasonEnd]string{
	ReasonNone:          "allowed",
	ReasonUnknownSender: "the sender is of no known kind",
	ReasonNoAddress:     "there is no target address",
	ReasonKind:          "senders of this kind may not send to addresses of this kind",
	ReasonStoredForm:    "metrics are sent to metric::* or metric::{workspace}",
	ReasonNoWorkspace:   "the sender is in no workspace",
	ReasonWorkspace:     "the address is in another workspace",
	ReasonNotMember:     "the addressed user is not a member of a workspace that the sender reaches",
	ReasonRule:          "a rule forbids it",
}

// String is a sentence fragment without particulars, fit for logs.
func (r Reason) String() string {
	if r < reasonEnd {
		return reasonTexts[r]
	}
	return "unknown reason"
}

// things name what the addresses of a prefix reach.
var things = map[address.Prefix]string{
	address.PrefixAgent:         "agents",
	address.PrefixUniqueTask:    "unique tasks",
	address.PrefixTask:          "tasks",
	address.PrefixTaskBroadcast: "the workers of an implementation",
	address.PrefixUser:          "users' windows",
	address.PrefixUserWorkspace: "a user's windows in a workspace",
	address.PrefixAllAgents:     "all agents of a workspace",
	address.PrefixAllUsers:      "all users of a workspace",
	address.PrefixProgress:      "progress addresses",
	address.PrefixEvent:         "event addresses",
	address.PrefixMetric:        "metric addresses",
	address.PrefixService:       "services",
	address.PrefixBridge:        "bridges",
}

// Message is the sentence for the client whose message was refused: what it may
// not do, and with which names. It is "" if the message is allowed.
func (d Decision) Message(p *Principal, a address.Address) string {
	if d.Allowed {
		return ""
	}
	if p == nil {
		p = &Principal{}
	}
	switch d.Reason {
	case ReasonKind:
		text := fmt.Sprintf("%s may not send to %s (%s)", p.Kind.plural(), things[a.Prefix()], a.Prefix())
		if a.Prefix() == address.PrefixProgress {
			text += "; progress is reported, not sent"
		}
		return text
	case ReasonNoWorkspace:
		if p.Kind.WorkspaceScoped() {
			return "the sender is in no workspace; switch to one first"
		}
		return "the sender's credential covers no workspace"
	case ReasonWorkspace:
		if p.Kind.WorkspaceScoped() {
			return fmt.Sprintf("the address is in workspace %q, the sender in %q", a.Workspace(), p.Workspace)
		}
		return fmt.Sprintf("the address is in workspace %q, which the sender's credential does not cover", a.Workspace())
	case ReasonNotMember:
		if p.Kind.WorkspaceScoped() {
			return fmt.Sprintf("user %q is not a member of workspace %q", a.UserID(), p.Workspace)
		}
		return fmt.Sprintf("user %q is not a member of a workspace that the sender's credential covers", a.UserID())
	}
	return d.Reason.String()
}
