package client

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

type kind uint8

const (
	kindNone kind = iota
	kindAgent
	kindUniqueTask
	kindTask
	kindUser
	kindWorkflowEngine
	kindMetricsBridge
	kindOrchestrator
	kindService
	kindBridge
)

// Identity is who a connection claims to be. The credential must cover all of
// it. The zero value is nobody; use one of the constructors. It is a value and
// may be copied.
type Identity struct {
	kind      kind
	workspace string
	impl      string // implementation, or the user's id
	spec      string // specifier, window or instance
	profiles  string // NUL-separated, so that an Identity stays comparable
}

// Agent is the agent `ag::workspace::implementation::specifier`.
func Agent(workspace, implementation, specifier string) Identity {
	return Identity{kind: kindAgent, workspace: workspace, impl: implementation, spec: specifier}
}

// UniqueTask is the named task `tu::workspace::implementation::specifier`.
func UniqueTask(workspace, implementation, specifier string) Identity {
	return Identity{kind: kindUniqueTask, workspace: workspace, impl: implementation, spec: specifier}
}

// Task is one of the workers of an implementation, which share the messages to
// `tb::workspace::implementation`. The gateway gives it an id; see
// [Client.Address].
func Task(workspace, implementation string) Identity {
	return Identity{kind: kindTask, workspace: workspace, impl: implementation}
}

// User is one window of a user, `us::user::window`. [Options.Workspace] says
// where it starts.
func User(user, window string) Identity {
	return Identity{kind: kindUser, impl: user, spec: window}
}

// WorkflowEngine is the subscriber of events.
func WorkflowEngine(instance string) Identity {
	return Identity{kind: kindWorkflowEngine, spec: instance}
}

// MetricsBridge is the subscriber of metrics.
func MetricsBridge(instance string) Identity {
	return Identity{kind: kindMetricsBridge, spec: instance}
}

// Orchestrator starts workers for the profiles that it names; "*" is all. What it
// is to start comes as the notice [Assigned].
func Orchestrator(implementation, specifier string, profiles ...string) Identity {
	id := Identity{kind: kindOrchestrator, impl: implementation, spec: specifier}
	for i, p := range profiles {
		if i > 0 {
			id.profiles += "\x00"
		}
		id.profiles += p
	}
	return id
}

// Service is the service `sv::implementation::specifier`.
func Service(implementation, specifier string) Identity {
	return Identity{kind: kindService, impl: implementation, spec: specifier}
}

// Bridge is the bridge `br::implementation::specifier`.
func Bridge(implementation, specifier string) Identity {
	return Identity{kind: kindBridge, impl: implementation, spec: specifier}
}

// Address is where messages reach this identity, or "" if nothing addresses it:
// workflow engines, metrics bridges and orchestrators have none, and a [Task]
// gets its own when it connects.
func (id Identity) Address() string {
	switch id.kind {
	case kindAgent:
		return "ag::" + id.workspace + "::" + id.impl + "::" + id.spec
	case kindUniqueTask:
		return "tu::" + id.workspace + "::" + id.impl + "::" + id.spec
	case kindUser:
		return "us::" + id.impl + "::" + id.spec
	case kindService:
		return "sv::" + id.impl + "::" + id.spec
	case kindBridge:
		return "br::" + id.impl + "::" + id.spec
	}
	return ""
}

// String is the identity as the gateway writes it in logs and lists.
func (id Identity) String() string {
	switch id.kind {
	case kindNone:
		return "nobody"
	case kindTask:
		return "ta::" + id.workspace + "::" + id.impl
	case kindWorkflowEngine:
		return "wfe::" + id.spec
	case kindMetricsBridge:
		return "metrics::" + id.spec
	case kindOrchestrator:
		return "orc::" + id.impl + "::" + id.spec
	}
	return id.Address()
}

// address is Address, with the id that the gateway assigned.
func (id Identity) address(assigned string) string {
	if id.kind == kindTask && assigned != "" {
		return id.String() + "::" + assigned
	}
	return id.Address()
}

// snapshot reports whether the gateway sends a ConfigSnapshot.
func (id Identity) snapshot() bool {
	return id.kind == kindAgent || id.kind == kindUniqueTask || id.kind == kindTask
}

func (id Identity) check() error {
	if id.kind == kindNone {
		return errors.New("no Identity: use client.Agent, client.User or another constructor")
	}
	for _, s := range []string{id.workspace, id.impl, id.spec, id.profiles} {
		if !utf8.ValidString(s) {
			return fmt.Errorf("the Identity %q is not valid UTF-8", s)
		}
	}
	missing := func(name, v string) error {
		if v == "" {
			return fmt.Errorf("the Identity %s: its %s is empty", id, name)
		}
		return nil
	}
	switch id.kind {
	case kindAgent, kindUniqueTask:
		return errors.Join(missing("workspace", id.workspace), missing("implementation", id.impl), missing("specifier", id.spec))
	case kindTask:
		return errors.Join(missing("workspace", id.workspace), missing("implementation", id.impl))
	case kindUser:
		return errors.Join(missing("user id", id.impl), missing("window id", id.spec))
	case kindWorkflowEngine, kindMetricsBridge:
		return missing("instance", id.spec)
	}
	return errors.Join(missing("implementation", id.impl), missing("specifier", id.spec))
}

// claim writes the identity into an init frame.
func (id Identity) claim(init *aetherv1.InitConnection) {
	switch id.kind {
	case kindAgent:
		init.Identity = &aetherv1.InitConnection_Agent{Agent: &aetherv1.AgentIdentity{
			Workspace: id.workspace, Implementation: id.impl, Specifier: id.spec,
		}}
	case kindUniqueTask, kindTask:
		init.Identity = &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{
			Workspace: id.workspace, Implementation: id.impl, UniqueSpecifier: id.spec,
		}}
	case kindUser:
		init.Identity = &aetherv1.InitConnection_User{User: &aetherv1.UserIdentity{UserId: id.impl, WindowId: id.spec}}
	case kindWorkflowEngine:
		init.Identity = &aetherv1.InitConnection_WorkflowEngine{
			WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: id.spec},
		}
	case kindMetricsBridge:
		init.Identity = &aetherv1.InitConnection_MetricsBridge{
			MetricsBridge: &aetherv1.MetricsBridgeIdentity{InstanceId: id.spec},
		}
	case kindOrchestrator:
		init.Identity = &aetherv1.InitConnection_Orchestrator{Orchestrator: &aetherv1.OrchestratorIdentity{
			Implementation: id.impl, Specifier: id.spec, SupportedProfiles: id.profileList(),
		}}
	case kindService:
		init.Identity = &aetherv1.InitConnection_Service{
			Service: &aetherv1.ServiceIdentity{Implementation: id.impl, Specifier: id.spec},
		}
	case kindBridge:
		init.Identity = &aetherv1.InitConnection_Bridge{
			Bridge: &aetherv1.BridgeIdentity{Implementation: id.impl, Specifier: id.spec},
		}
	}
}

func (id Identity) profileList() []string {
	if id.profiles == "" {
		return nil
	}
	return strings.Split(id.profiles, "\x00")
}
