package legacy

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// firstExtension is the lowest field number that a client of the base protocol does not know.
const firstExtension = 100

// roots are what such a client speaks: the frames, and what it finds inside payloads.
var roots = []protoreflect.MessageDescriptor{
	(*aetherv1.UpstreamMessage)(nil).ProtoReflect().Descriptor(),
	(*aetherv1.DownstreamMessage)(nil).ProtoReflect().Descriptor(),
	(*aetherv1.MessageEnvelope)(nil).ProtoReflect().Descriptor(),
	(*aetherv1.Metric)(nil).ProtoReflect().Descriptor(),
}

// File returns the base protocol as one file descriptor. It is registered nowhere, so that it
// does not clash with the generated code. Safe for concurrent use.
func File() protoreflect.FileDescriptor { return file() }

var file = sync.OnceValue(func() protoreflect.FileDescriptor {
	fd, err := protodesc.NewFile(strip(), nil)
	if err != nil {
		panic(fmt.Sprintf("legacy: the stripped descriptors do not hold together: %v", err))
	}
	return fd
})

// Message returns the base protocol's descriptor of a message of package aether.v1, or nil
// if it has none of that name. Safe for concurrent use.
func Message(name protoreflect.Name) protoreflect.MessageDescriptor {
	return File().Messages().ByName(name)
}

// strip merges all that is reachable from the roots by fields below firstExtension.
func strip() *descriptorpb.FileDescriptorProto {
	merged := &descriptorpb.FileDescriptorProto{
		Name:    proto.String("aether/v1/base.proto"),
		Package: proto.String(string(roots[0].ParentFile().Package())),
		Syntax:  proto.String("proto3"),
	}
	reached := map[protoreflect.FullName]bool{}
	top := []protoreflect.Descriptor{}
	for _, r := range roots {
		top = reach(r, reached, top)
	}
	for _, d := range top {
		switch d := d.(type) {
		case protoreflect.MessageDescriptor:
			m := protodesc.ToDescriptorProto(d)
			stripMessage(m, d.FullName(), reached)
			merged.MessageType = append(merged.MessageType, m)
		case protoreflect.EnumDescriptor:
			merged.EnumType = append(merged.EnumType, protodesc.ToEnumDescriptorProto(d))
		}
	}
	return merged
}

// reach marks d, and what its fields of the base protocol refer to, and appends the
// elements that stand at the top of their file.
func reach(d protoreflect.Descriptor, reached map[protoreflect.FullName]bool, top []protoreflect.Descriptor) []protoreflect.Descriptor {
	if reached[d.FullName()] {
		return top
	}
	reached[d.FullName()] = true
	if outer, nested := d.Parent().(protoreflect.MessageDescriptor); nested {
		top = reach(outer, reached, top)
	} else {
		top = append(top, d)
	}
	m, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return top
	}
	for i := range m.Fields().Len() {
		switch f := m.Fields().Get(i); {
		case f.Number() >= firstExtension:
		case f.Message() != nil:
			top = reach(f.Message(), reached, top)
		case f.Enum() != nil:
			top = reach(f.Enum(), reached, top)
		}
	}
	return top
}

// stripMessage takes the extensions out of m, and what is nested in it for their sake.
func stripMessage(m *descriptorpb.DescriptorProto, name protoreflect.FullName, reached map[protoreflect.FullName]bool) {
	m.Field = keep(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetNumber() < firstExtension })
	m.ReservedRange = keep(m.ReservedRange, func(r *descriptorpb.DescriptorProto_ReservedRange) bool {
		return r.GetEnd() <= firstExtension
	})
	m.EnumType = keep(m.EnumType, func(e *descriptorpb.EnumDescriptorProto) bool {
		return reached[name.Append(protoreflect.Name(e.GetName()))]
	})
	m.NestedType = keep(m.NestedType, func(n *descriptorpb.DescriptorProto) bool {
		inner := name.Append(protoreflect.Name(n.GetName()))
		if reached[inner] {
			stripMessage(n, inner, reached)
		}
		return reached[inner]
	})

	// An optional field of the extensions leaves an empty oneof behind; fields refer to oneofs
	// by their place.
	place := map[int32]int32{}
	var used []*descriptorpb.OneofDescriptorProto
	for _, f := range m.Field {
		if f.OneofIndex == nil {
			continue
		}
		old := f.GetOneofIndex()
		if _, known := place[old]; !known {
			place[old] = int32(len(used))
			used = append(used, m.OneofDecl[old])
		}
		f.OneofIndex = proto.Int32(place[old])
	}
	m.OneofDecl = used
}

func keep[T any](all []T, wanted func(T) bool) []T {
	var kept []T
	for _, v := range all {
		if wanted(v) {
			kept = append(kept, v)
		}
	}
	return kept
}
