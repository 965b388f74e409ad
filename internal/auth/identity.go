package auth

import (
	"fmt"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// Identity is who a connection says it is, before anything is proved. Which
// fields count depends on the kind; the others are ignored.
type Identity struct {
	Kind acl.Kind
	// Workspace is that of an agent or a task, and the one in which a user wants
	// to start ("" leaves it to the credential).
	Workspace      string
	Implementation string
	// Specifier is the id of a non-unique task, where it has one already, and
	// the instance id of workflow engines and metrics bridges.
	Specifier string
	UserID    string
	Window    string
}

// String is the identity string, by which leases and positions are kept:
// ag::{workspace}::{implementation}::{specifier} and so on. It is "" for an
// unknown kind. It does not check the parts.
func (id Identity) String() string {
	switch id.Kind {
	case acl.Agent:
		return "ag::" + id.Workspace + "::" + id.Implementation + "::" + id.Specifier
	case acl.UniqueTask:
		return "tu::" + id.Workspace + "::" + id.Implementation + "::" + id.Specifier
	case acl.Task:
		return "ta::" + id.Workspace + "::" + id.Implementation + "::" + id.Specifier
	case acl.User:
		return "us::" + id.UserID + "::" + id.Window
	case acl.Service:
		return "sv::" + id.Implementation + "::" + id.Specifier
	case acl.Bridge:
		return "br::" + id.Implementation + "::" + id.Specifier
	case acl.Orchestrator:
		return "orc::" + id.Implementation + "::" + id.Specifier
	case acl.WorkflowEngine:
		return "wfe::" + id.Specifier
	case acl.MetricsBridge:
		return "metrics::" + id.Specifier
	}
	return ""
}

// address checks the parts of the identity and gives its address, which is zero
// for the kinds that have none and for a non-unique task without an id. Its
// errors wrap ErrInvalidIdentity.
func (id Identity) address() (address.Address, error) {
	var (
		a   address.Address
		err error
	)
	switch id.Kind {
	case acl.Agent:
		a, err = address.Agent(id.Workspace, id.Implementation, id.Specifier)
	case acl.UniqueTask:
		a, err = address.UniqueTask(id.Workspace, id.Implementation, id.Specifier)
	case acl.Task:
		if id.Specifier == "" {
			// The workers' address has the same parts, all but the id.
			_, err = address.TaskBroadcast(id.Workspace, id.Implementation)
			break
		}
		a, err = address.Task(id.Workspace, id.Implementation, id.Specifier)
	case acl.User:
		if a, err = address.User(id.UserID, id.Window); err == nil && id.Workspace != "" {
			// Also the address of the user in that workspace must fit.
			_, err = address.UserWorkspace(id.UserID, id.Workspace)
		}
	case acl.Service:
		a, err = address.Service(id.Implementation, id.Specifier)
	case acl.Bridge:
		a, err = address.Bridge(id.Implementation, id.Specifier)
	case acl.Orchestrator:
		if err = address.ValidSegment(id.Implementation); err == nil {
			err = address.ValidSegment(id.Specifier)
		}
		if n := utf8.RuneCountInString(id.String()); err == nil && n > address.MaxRunes {
			err = fmt.Errorf("it has more than %d characters", address.MaxRunes)
		}
	case acl.WorkflowEngine, acl.MetricsBridge:
		err = address.ValidSegment(id.Specifier)
	default:
		return address.Address{}, fmt.Errorf("%w: unknown kind of principal", ErrInvalidIdentity)
	}
	if err != nil {
		return address.Address{}, fmt.Errorf("%w: %s: %w", ErrInvalidIdentity, id.Kind, err)
	}
	return a, nil
}
