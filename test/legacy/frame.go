package legacy

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Identity is what a connection claims to be.
type Identity struct {
	kind   protoreflect.Name // the member of InitConnection's oneof
	fields map[protoreflect.Name]string
}

// Agent claims ag::workspace::implementation::specifier.
func Agent(workspace, implementation, specifier string) Identity {
	return Identity{"agent", map[protoreflect.Name]string{
		"workspace": workspace, "implementation": implementation, "specifier": specifier,
	}}
}

// Task claims a unique task, or, with an empty specifier, a new non-unique one.
func Task(workspace, implementation, specifier string) Identity {
	return Identity{"task", map[protoreflect.Name]string{
		"workspace": workspace, "implementation": implementation, "unique_specifier": specifier,
	}}
}

// User claims a window of a user.
func User(user, window string) Identity {
	return Identity{"user", map[protoreflect.Name]string{"user_id": user, "window_id": window}}
}

// Orchestrator claims an orchestrator without profiles; they can be added to the frame.
func Orchestrator(implementation, specifier string) Identity {
	return Identity{"orchestrator", map[protoreflect.Name]string{
		"implementation": implementation, "specifier": specifier,
	}}
}

// WorkflowEngine claims an instance of the workflow engine.
func WorkflowEngine(instance string) Identity {
	return Identity{"workflow_engine", map[protoreflect.Name]string{"instance_id": instance}}
}

// MetricsBridge claims an instance of the metrics bridge.
func MetricsBridge(instance string) Identity {
	return Identity{"metrics_bridge", map[protoreflect.Name]string{"instance_id": instance}}
}

// Bridge claims br::implementation::specifier.
func Bridge(implementation, specifier string) Identity {
	return Identity{"bridge", map[protoreflect.Name]string{
		"implementation": implementation, "specifier": specifier,
	}}
}

// Service claims sv::implementation::specifier.
func Service(implementation, specifier string) Identity {
	return Identity{"service", map[protoreflect.Name]string{
		"implementation": implementation, "specifier": specifier,
	}}
}

// InitFrame is the first frame of a stream. credentials may be nil; resume is the session id
// to take over, or empty.
func InitFrame(id Identity, credentials map[string]string, resume string) *dynamicpb.Message {
	frame, init := NewFrame("init")
	claim := init.Mutable(field(init, id.kind)).Message()
	for name, value := range id.fields {
		claim.Set(field(claim, name), protoreflect.ValueOfString(value))
	}
	if len(credentials) > 0 {
		m := init.Mutable(field(init, "credentials")).Map()
		for k, v := range credentials {
			m.Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
		}
	}
	init.Set(field(init, "resume_session_id"), protoreflect.ValueOfString(resume))
	return frame
}

// SendFrame sends payload to topic. messageType is the wire number of a MessageType; 0 is
// what clients send that do not set it.
func SendFrame(topic string, payload []byte, messageType protoreflect.EnumNumber) *dynamicpb.Message {
	frame, send := NewFrame("send")
	send.Set(field(send, "target_topic"), protoreflect.ValueOfString(topic))
	send.Set(field(send, "payload"), protoreflect.ValueOfBytes(payload))
	send.Set(field(send, "message_type"), protoreflect.ValueOfEnum(messageType))
	return frame
}

// SwitchWorkspaceFrame moves a user to another workspace.
func SwitchWorkspaceFrame(workspace string) *dynamicpb.Message {
	frame, sw := NewFrame("switch_workspace")
	sw.Set(field(sw, "new_workspace_id"), protoreflect.ValueOfString(workspace))
	return frame
}

// NewFrame makes an upstream frame whose payload is an empty message of the member, and
// returns that message to be filled. It panics if the base protocol has no such member.
func NewFrame(member protoreflect.Name) (*dynamicpb.Message, protoreflect.Message) {
	frame := dynamicpb.NewMessage(Message("UpstreamMessage"))
	return frame, frame.Mutable(field(frame, member)).Message()
}

// Payload returns which member of the payload a frame carries, and its content; "" and nil if
// none that the base protocol knows.
func Payload(frame *dynamicpb.Message) (protoreflect.Name, protoreflect.Message) {
	f := frame.WhichOneof(frame.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return "", nil
	}
	return f.Name(), frame.Get(f).Message()
}

// Get follows the names of fields down from m and returns the value of the last, which is the
// default where a message on the way is not set. It panics if a message has no such field.
func Get(m protoreflect.Message, path ...protoreflect.Name) protoreflect.Value {
	for _, name := range path[:len(path)-1] {
		m = m.Get(field(m, name)).Message()
	}
	return m.Get(field(m, path[len(path)-1]))
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	f := m.Descriptor().Fields().ByName(name)
	if f == nil {
		panic(fmt.Sprintf("legacy: %s has no field %s", m.Descriptor().FullName(), name))
	}
	return f
}
