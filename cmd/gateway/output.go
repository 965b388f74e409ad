package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// table prints messages as rows with a header, or as an array of JSON objects.
func table[M proto.Message](p *program, output string, rows []M, header []string, cells func(M) []string) error {
	if output == "json" {
		list := make([]map[string]any, len(rows))
		for i, row := range rows {
			list[i] = object(row)
		}
		return json.NewEncoder(p.stdout).Encode(list)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		texts := cells(row)
		for i, text := range texts {
			if texts[i] = printable(text); texts[i] == "" {
				texts[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	return w.Flush()
}

// object is a message with the wire's field names: all fields, also those that
// are empty; numbers as numbers, enums by their short names in lower case.
func object(m proto.Message) map[string]any {
	fields := m.ProtoReflect().Descriptor().Fields()
	o := make(map[string]any, fields.Len())
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.ProtoReflect().Has(f) {
			continue
		}
		o[string(f.Name())] = fieldValue(f, m.ProtoReflect().Get(f))
	}
	return o
}

func fieldValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.IsMap():
		m := map[string]any{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			m[k.String()] = single(f.MapValue(), v)
			return true
		})
		return m
	case f.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			list[i] = single(f, v.List().Get(i))
		}
		return list
	}
	return single(f, v)
}

func single(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return object(v.Message().Interface())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return strings.ToLower(string(e.Name()))
		}
		return int32(v.Enum())
	}
	return v.Interface()
}

// ago is a time for people.
func ago(unix int64) string {
	if unix == 0 {
		return ""
	}
	return age(time.Since(time.Unix(unix, 0))) + " ago"
}

// age is a duration by its two largest units.
func age(d time.Duration) string {
	switch d = max(d, 0).Round(time.Second); {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return d.String()
}

// clock is a time in a table.
func clock(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
