package e2e

import (
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// identity is who a peer is, and the token that proves it.
type identity struct {
	// name is the identity string: the address, where the kind has one, and
	// the source of what it sends. A task's ends where its id comes.
	name  string
	init  *aetherv1.InitConnection
	flags []string // of `gateway token create`
}

func workspaceFlags(list []string) []string {
	var flags []string
	for _, ws := range list {
		flags = append(flags, "--workspace", ws)
	}
	return flags
}

func agent(ws, impl, spec string) identity {
	return identity{
		"ag::" + ws + "::" + impl + "::" + spec,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Agent{
			Agent: &aetherv1.AgentIdentity{Workspace: ws, Implementation: impl, Specifier: spec},
		}},
		[]string{"--kind", "agent", "--workspace", ws, "--impl", impl, "--spec", "*"},
	}
}

func uniqueTask(ws, impl, spec string) identity {
	return identity{
		"tu::" + ws + "::" + impl + "::" + spec,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Task{
			Task: &aetherv1.TaskIdentity{Workspace: ws, Implementation: impl, UniqueSpecifier: spec},
		}},
		[]string{"--kind", "task", "--workspace", ws, "--impl", impl, "--spec", "*"},
	}
}

// task is a non-unique task: it gets its id at connect.
func task(ws, impl string) identity {
	return identity{
		"ta::" + ws + "::" + impl + "::",
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Task{
			Task: &aetherv1.TaskIdentity{Workspace: ws, Implementation: impl},
		}},
		[]string{"--kind", "task", "--workspace", ws, "--impl", impl},
	}
}

// user is a window of a user, who starts in the first of the workspaces that
// the token covers.
func user(id, window string, workspaces ...string) identity {
	init := &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_User{
		User: &aetherv1.UserIdentity{UserId: id, WindowId: window},
	}}
	if len(workspaces) > 1 {
		init.Workspace = workspaces[0]
	}
	return identity{"us::" + id + "::" + window, init, append([]string{"--kind", "user", "--user", id}, workspaceFlags(workspaces)...)}
}

func engine(instance string, workspaces ...string) identity {
	return identity{
		"wfe::" + instance,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_WorkflowEngine{
			WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: instance},
		}},
		append([]string{"--kind", "workflow_engine", "--spec", "*"}, workspaceFlags(workspaces)...),
	}
}

func metricsBridge(instance string) identity {
	return identity{
		"metrics::" + instance,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_MetricsBridge{
			MetricsBridge: &aetherv1.MetricsBridgeIdentity{InstanceId: instance},
		}},
		[]string{"--kind", "metrics_bridge", "--spec", "*"},
	}
}

func orchestrator(impl, spec string, workspaces ...string) identity {
	return identity{
		"orc::" + impl + "::" + spec,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Orchestrator{
			Orchestrator: &aetherv1.OrchestratorIdentity{Implementation: impl, Specifier: spec},
		}},
		append([]string{"--kind", "orchestrator", "--impl", impl, "--spec", spec}, workspaceFlags(workspaces)...),
	}
}

func service(impl, spec string, workspaces ...string) identity {
	return identity{
		"sv::" + impl + "::" + spec,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Service{
			Service: &aetherv1.ServiceIdentity{Implementation: impl, Specifier: spec},
		}},
		append([]string{"--kind", "service", "--impl", impl, "--spec", spec}, workspaceFlags(workspaces)...),
	}
}

func bridge(impl, spec string) identity {
	return identity{
		"br::" + impl + "::" + spec,
		&aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Bridge{
			Bridge: &aetherv1.BridgeIdentity{Implementation: impl, Specifier: spec},
		}},
		[]string{"--kind", "bridge", "--impl", impl, "--spec", spec},
	}
}

// option changes an init frame.
type option func(*aetherv1.InitConnection)

// client asks for CLIENT mode with a window.
func client(window uint32) option {
	return func(i *aetherv1.InitConnection) {
		i.Delivery = &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_CLIENT, MaxUnacked: window}
	}
}

// auto asks for AUTO mode; the gateway then knows that the client knows the
// extension.
func auto(i *aetherv1.InitConnection) {
	i.Delivery = &aetherv1.DeliveryOptions{AckMode: aetherv1.AckMode_ACK_MODE_AUTO}
}

// plain is a client that does not know of acknowledgements at all.
func plain(i *aetherv1.InitConnection) { i.Delivery = nil }

// echo asks for the own broadcasts too.
func echo(i *aetherv1.InitConnection) {
	if i.Delivery == nil {
		i.Delivery = &aetherv1.DeliveryOptions{}
	}
	i.Delivery.Echo = true
}

// credentials are the ones to present, instead of the identity's token.
func credentials(c map[string]string) option {
	return func(i *aetherv1.InitConnection) { i.Credentials = c }
}

// frame returns the identity's init with a token, in CLIENT mode unless an
// option says otherwise.
func (id identity) frame(options ...option) (*aetherv1.InitConnection, error) {
	init := proto.CloneOf(id.init)
	client(0)(init)
	for _, o := range options {
		o(init)
	}
	if init.Credentials == nil {
		token, err := createToken(id.flags...)
		if err != nil {
			return nil, err
		}
		init.Credentials = map[string]string{"authorization": "Bearer " + token}
	}
	return init, nil
}
