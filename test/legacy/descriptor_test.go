package legacy_test

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/test/legacy"
)

func eachMessage(ms protoreflect.MessageDescriptors, do func(protoreflect.MessageDescriptor)) {
	for i := range ms.Len() {
		do(ms.Get(i))
		eachMessage(ms.Get(i).Messages(), do)
	}
}

func TestNothingOfTheExtensionsIsLeft(t *testing.T) {
	t.Parallel()
	file := legacy.File()
	messages, fields := 0, 0
	eachMessage(file.Messages(), func(m protoreflect.MessageDescriptor) {
		messages++
		for i := range m.Fields().Len() {
			fields++
			if f := m.Fields().Get(i); f.Number() >= 100 {
				t.Errorf("%s is still there", f.FullName())
			}
		}
		for i := range m.Oneofs().Len() {
			if o := m.Oneofs().Get(i); o.Fields().Len() == 0 {
				t.Errorf("%s has no member", o.FullName())
			}
		}
	})
	if messages < 100 || fields < 600 {
		t.Errorf("only %d messages with %d fields: too much was taken out", messages, fields)
	}
	for _, gone := range []protoreflect.Name{
		"DeliveryOptions", "TopicFilter", "DeliveryAck", "Nack", "Reauthenticate", "Tracking", "SendReceipt", "HistoryGap",
		"CredentialExpiring", "Reauthenticated", "Heartbeat", "MessageStatusRequest", "MessageStatus", "WorkspaceSwitched",
	} {
		if legacy.Message(gone) != nil {
			t.Errorf("%s is still there", gone)
		}
	}
	for _, gone := range []protoreflect.Name{"AckMode", "TrackingMode"} {
		if file.Enums().ByName(gone) != nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if n := legacy.Message("MessageEnvelope").Enums().Len(); n != 0 {
		t.Errorf("MessageEnvelope has %d enums, although no field of theirs is left", n)
	}
}

// What is left must be the generated descriptors to the letter, or the fixture would test
// another protocol.
func TestTheRestIsUnchanged(t *testing.T) {
	t.Parallel()
	for _, file := range []protoreflect.FileDescriptor{
		aetherv1.File_aether_v1_gateway_proto, aetherv1.File_aether_v1_connection_proto, aetherv1.File_aether_v1_messaging_proto,
		aetherv1.File_aether_v1_task_proto, aetherv1.File_aether_v1_kv_proto, aetherv1.File_aether_v1_progress_proto,
		aetherv1.File_aether_v1_authority_proto, aetherv1.File_aether_v1_admin_proto,
	} {
		eachMessage(file.Messages(), func(full protoreflect.MessageDescriptor) {
			if _, nested := full.Parent().(protoreflect.MessageDescriptor); nested {
				return // reached through the fields of the outer message
			}
			base := legacy.Message(full.Name())
			if base == nil {
				return // an extension as a whole: named above
			}
			for i := range full.Fields().Len() {
				want := full.Fields().Get(i)
				got := base.Fields().ByNumber(want.Number())
				if want.Number() >= 100 {
					continue
				}
				if got == nil {
					t.Errorf("%s is lost", want.FullName())
					continue
				}
				if got.FullName() != want.FullName() || got.Kind() != want.Kind() || got.Cardinality() != want.Cardinality() ||
					got.IsMap() != want.IsMap() || oneof(got) != oneof(want) || target(got) != target(want) {
					t.Errorf("%s was changed: %v", want.FullName(), got)
				}
			}
		})
	}
}

func oneof(f protoreflect.FieldDescriptor) protoreflect.FullName {
	if o := f.ContainingOneof(); o != nil {
		return o.FullName()
	}
	return ""
}

func target(f protoreflect.FieldDescriptor) protoreflect.FullName {
	switch {
	case f.Message() != nil:
		return f.Message().FullName()
	case f.Enum() != nil:
		return f.Enum().FullName()
	default:
		return ""
	}
}
