// Package proto_test holds the compiled protocol against a table of its wire contract that
// was written apart from the .proto files, so that a slip in one is caught by the other.
package proto_test

import (
	"bufio"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "github.com/aether-gateway/gateway/gen/aether/v1" // registers the descriptors
)

//go:embed testdata/contract.txt
var contractText string

// contractPackage is the package that clients outside this repository speak.
const contractPackage = "aether.v1"

// firstExtension is the lowest field number of ours in a message that others speak: such
// clients skip what they do not know, so nothing of theirs may ever be there.
const firstExtension = 100

// What the contract holds, counted once.
const (
	baseMessages    = 81
	baseFields      = 603
	extensionFields = 51
)

// element is a message, an enum or a service: its kind (base, opaque or ours), and its
// parts as lines in the form of the table, those of "extends" included.
type element struct {
	kind  string
	parts []string
}

// table maps "message NAME", "enum NAME" and "service NAME" to what they hold.
type table map[string]element

func parseTable(text string) (table, error) {
	t := table{}
	var name, kind string
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " "):
			if name == "" {
				return nil, fmt.Errorf("line %d: a part before any element", n)
			}
			if number, isField := fieldNumber(line); isField && strings.HasPrefix(name, "message ") {
				if kind == "extends" && number < firstExtension || kind == "base" && number >= firstExtension {
					return nil, fmt.Errorf("line %d: a number of the other side: %q", n, line)
				}
			}
			e := t[name]
			e.parts = append(e.parts, strings.Join(words, " "))
			t[name] = e
		case len(words) == 3:
			name, kind = words[0]+" "+words[1], words[2]
			e, known := t[name]
			switch {
			case !slices.Contains([]string{"base", "extends", "opaque", "ours"}, kind):
				return nil, fmt.Errorf("line %d: unknown kind %q", n, kind)
			case kind == "extends" && e.kind != "base":
				return nil, fmt.Errorf("line %d: %s is not there to be extended", n, name)
			case kind != "extends" && known:
				return nil, fmt.Errorf("line %d: %s is there twice", n, name)
			case kind != "extends":
				e.kind = kind
			}
			t[name] = e
		default:
			return nil, fmt.Errorf("line %d: not understood: %q", n, line)
		}
	}
	return t, lines.Err()
}

// describe renders the compiled protocol in the form of the table; kinds are left empty.
func describe() table {
	t := table{}
	protoregistry.GlobalFiles.RangeFilesByPackage(contractPackage, func(f protoreflect.FileDescriptor) bool {
		describeMessages(t, f.Messages())
		describeEnums(t, f.Enums())
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			var e element
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				e.parts = append(e.parts, fmt.Sprintf("%s %s %s", m.Name(),
					endpoint(m.Input(), m.IsStreamingClient()), endpoint(m.Output(), m.IsStreamingServer())))
			}
			t["service "+short(s)] = e
		}
		return true
	})
	return t
}

func describeMessages(t table, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		var e element
		for j := range m.Fields().Len() {
			e.parts = append(e.parts, fieldLine(m.Fields().Get(j)))
		}
		for j := range m.ReservedRanges().Len() {
			r := m.ReservedRanges().Get(j)
			for n := r[0]; n < r[1]; n++ {
				e.parts = append(e.parts, fmt.Sprintf("reserved %d", n))
			}
		}
		t["message "+short(m)] = e
		describeMessages(t, m.Messages())
		describeEnums(t, m.Enums())
	}
}

func describeEnums(t table, enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		d := enums.Get(i)
		var e element
		for j := range d.Values().Len() {
			v := d.Values().Get(j)
			e.parts = append(e.parts, fmt.Sprintf("%d %s", v.Number(), v.Name()))
		}
		t["enum "+short(d)] = e
	}
}

func fieldLine(f protoreflect.FieldDescriptor) string {
	words := []string{strconv.Itoa(int(f.Number())), string(f.Name())}
	switch {
	case f.IsMap():
		words = append(words, "map", typeName(f.MapKey())+":"+typeName(f.MapValue()))
	case f.IsList():
		words = append(words, "repeated", typeName(f))
	case f.HasOptionalKeyword():
		words = append(words, "optional", typeName(f))
	default:
		words = append(words, "single", typeName(f))
	}
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		words = append(words, "oneof:"+string(o.Name()))
	}
	if o, ok := f.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
		words = append(words, "deprecated")
	}
	return strings.Join(words, " ")
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return short(f.Message())
	case f.Enum() != nil:
		return short(f.Enum())
	default:
		return f.Kind().String()
	}
}

func endpoint(m protoreflect.MessageDescriptor, stream bool) string {
	if stream {
		return "stream:" + short(m)
	}
	return short(m)
}

// short is a name without the package; names of other packages stay whole.
func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), contractPackage+".")
}

// difference lists, sorted, what one side has and the other has not.
func difference(want, got table) []string {
	var problems []string
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			problems = append(problems, "the .proto files lack "+name)
			continue
		}
		for _, p := range w.parts {
			if !slices.Contains(g.parts, p) {
				problems = append(problems, fmt.Sprintf("the .proto files lack %s: %s", name, p))
			}
		}
		for _, p := range g.parts {
			if !slices.Contains(w.parts, p) {
				problems = append(problems, fmt.Sprintf("the table lacks %s: %s", name, p))
			}
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			problems = append(problems, "the table lacks "+name)
		}
	}
	slices.Sort(problems)
	return problems
}

func contract(t *testing.T) table {
	t.Helper()
	c, err := parseTable(contractText)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryPartOfTheContractIsCompiledAsWritten(t *testing.T) {
	t.Parallel()
	for _, p := range difference(contract(t), describe()) {
		t.Error(p)
	}
}

// A comparison that finds nothing proves something only if it would find each kind of slip.
func TestSlipsAreFound(t *testing.T) {
	t.Parallel()
	for _, slip := range []struct{ name, written, instead string }{
		{"two numbers exchanged", "  3 key single string\n  4 value single bytes", "  4 key single string\n  3 value single bytes"},
		{"field number", "  2 payload single bytes", "  9 payload single bytes"},
		{"field name", "  2 payload single bytes", "  2 body single bytes"},
		{"field type", "  103 origin single fixed64", "  103 origin single uint64"},
		{"presence", "  107 position optional uint64", "  107 position single uint64"},
		{"cardinality", "  32 active_extensions repeated string", "  32 active_extensions single string"},
		{"map value", "  1 kv map string:bytes deprecated", "  1 kv map string:string deprecated"},
		{"deprecation", "  2 global_kv map string:bytes deprecated", "  2 global_kv map string:bytes"},
		{"place in a oneof", "  110 batch repeated UpstreamMessage", "  110 batch repeated UpstreamMessage oneof:payload"},
		{"reservation", "  reserved 104", ""},
		{"enum number", "  50 TASK_PRIORITY_PREEMPT", "  60 TASK_PRIORITY_PREEMPT"},
		{"streaming", "Connect stream:UpstreamMessage", "Connect UpstreamMessage"},
		{"whole message", "message TunnelAck opaque", ""},
		{"field only in the table", "  1 workspace single string", "  1 workspace single string\n  7 surplus single string"},
	} {
		t.Run(slip.name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(contractText, slip.written, slip.instead, 1)
			if changed == contractText {
				t.Fatalf("the table has no %q", slip.written)
			}
			c, err := parseTable(changed)
			if err != nil {
				t.Fatal(err)
			}
			if len(difference(c, describe())) == 0 {
				t.Error("not found")
			}
		})
	}
}

// Clients that predate the extension skip unknown fields, but only where they know none: a
// field of ours below 100 could be theirs tomorrow. The table's parser refuses one; here the
// compiled protocol is counted against what the contract holds, so that no field can pass as
// theirs by being written into the wrong part of the table.
func TestExtensionsOfForeignMessagesBeginAt100(t *testing.T) {
	t.Parallel()
	c, compiled := contract(t), describe()
	messages, theirs, ours := 0, 0, 0
	for name, e := range c {
		if !strings.HasPrefix(name, "message ") {
			continue
		}
		if e.kind == "opaque" && len(compiled[name].parts) != 0 {
			t.Errorf("%s: fields of a message that is not settled", name)
		}
		if e.kind != "base" {
			continue
		}
		messages++
		for _, part := range compiled[name].parts {
			switch number, isField := fieldNumber(part); {
			case !isField:
			case number < firstExtension:
				theirs++
			default:
				ours++
			}
		}
	}
	if messages != baseMessages || theirs != baseFields || ours != extensionFields {
		t.Errorf("%d base messages with %d fields below 100 and %d above; want %d, %d, %d",
			messages, theirs, ours, baseMessages, baseFields, extensionFields)
	}
}

// A field of a foreign message refers to a message of ours only from 100 on: otherwise the
// base protocol could not be read without the extension.
func TestBaseFieldsReferToBaseMessages(t *testing.T) {
	t.Parallel()
	c := contract(t)
	for name, e := range c {
		if e.kind != "base" || !strings.HasPrefix(name, "message ") {
			continue
		}
		for _, part := range e.parts {
			number, isField := fieldNumber(part)
			if !isField || number >= firstExtension {
				continue
			}
			typ := strings.Fields(part)[3]
			for _, sort := range []string{"message ", "enum "} {
				if c[sort+typ].kind == "ours" {
					t.Errorf("%s: %s refers to an extension", name, part)
				}
			}
		}
	}
}

func fieldNumber(part string) (int, bool) {
	n, err := strconv.Atoi(strings.Fields(part)[0])
	return n, err == nil
}

func TestTableIsParsedStrictly(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a part before any element":             "  1 a single string",
		"an unknown kind":                       "message M theirs",
		"an extension of nothing":               "message M extends",
		"an extension of a message of ours":     "message M ours\nmessage M extends",
		"an extension with a foreign number":    "message M base\nmessage M extends\n  99 a single string",
		"a foreign field with a number of ours": "message M base\n  100 a single string",
		"an element that is there twice":        "enum E base\nenum E base",
		"a line that is no element":             "message M",
	} {
		if _, err := parseTable(text); err == nil {
			t.Errorf("accepted: %s", name)
		}
	}
}
