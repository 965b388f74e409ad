package legacy

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Method is the full name of the method that Dial calls.
const Method = "/aether.v1.AetherGateway/Connect"

// Stream is a call of Connect. One goroutine may send while another receives; neither Send
// nor Recv may be called by two at once.
type Stream struct {
	call grpc.ClientStream
}

// Dial opens the stream; it ends with ctx. It sends no frame: the first is the caller's, as
// made by InitFrame. opts are those of the call, for example grpc.Header.
func Dial(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (*Stream, error) {
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, Method, opts...)
	if err != nil {
		return nil, err
	}
	return &Stream{call: call}, nil
}

// Send sends a frame. The error is io.EOF if the stream has ended; Recv then tells why.
func (s *Stream) Send(frame *dynamicpb.Message) error { return s.call.SendMsg(frame) }

// CloseSend half-closes the stream: nothing more will be sent.
func (s *Stream) CloseSend() error { return s.call.CloseSend() }

// Recv waits for the next frame. The numbers are those of the unknown fields in it, at any
// depth, sorted and each once; UnknownFields tells where they stand. The error is io.EOF at
// a clean end, else a gRPC status.
func (s *Stream) Recv() (*dynamicpb.Message, []protowire.Number, error) {
	frame := dynamicpb.NewMessage(Message("DownstreamMessage"))
	if err := s.call.RecvMsg(frame); err != nil {
		return nil, nil, err
	}
	var numbers []protowire.Number
	for _, u := range UnknownFields(frame) {
		numbers = append(numbers, u.Number)
	}
	slices.Sort(numbers)
	return frame, slices.Compact(numbers), nil
}

// Unknown is a field that a message carries and its descriptor does not have.
type Unknown struct {
	// Message is the message that carries it.
	Message protoreflect.FullName
	Number  protowire.Number
}

// UnknownFields lists the unknown fields of m and of the messages in it, m's own first. A
// field that is there several times is listed as often.
func UnknownFields(m protoreflect.ProtoMessage) []Unknown { return unknownIn(nil, m.ProtoReflect()) }

func unknownIn(list []Unknown, m protoreflect.Message) []Unknown {
	for raw := []byte(m.GetUnknown()); len(raw) > 0; {
		number, _, n := protowire.ConsumeField(raw)
		if n < 0 {
			// The message was parsed, so its unknown bytes are whole fields.
			panic("legacy: unknown fields that cannot be read: " + protowire.ParseError(n).Error())
		}
		list = append(list, Unknown{Message: m.Descriptor().FullName(), Number: number})
		raw = raw[n:]
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					list = unknownIn(list, v.Message())
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				list = unknownIn(list, v.List().Get(i).Message())
			}
		default:
			list = unknownIn(list, v.Message())
		}
		return true
	})
	return list
}
