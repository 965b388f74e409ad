package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// maxEntries bounds the entries of a list of topics or routes.
const maxEntries = 10_000

// faults is the error of a value in which several options are wrong.
type faults []wiring.Fault

func (fs faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// fields reads the options of one entry, or of a section in it, and notes all
// that is wrong by its path.
type fields struct {
	path   string
	values map[string]any
	known  []string
	faults *faults
	// given gets what was set, by its path below the entry; below is this
	// section's.
	given map[string]bool
	below string
}

// entries calls take for each entry of a YAML list, or of text in YAML's flow
// form; example is such a list.
func entries(raw any, example string, take func(*fields)) faults {
	var fs faults
	fault := func(path string, format string, args ...any) {
		fs = append(fs, wiring.Fault{Path: path, Code: wiring.WrongType, Text: fmt.Sprintf(format, args...)})
	}
	if text, ok := raw.(string); ok {
		raw = nil
		if err := yamlv3.Unmarshal([]byte(text), &raw); err != nil {
			fault("", "%s", yamlError(err))
			return fs
		}
	}
	if raw == nil {
		return nil
	}
	items, ok := raw.([]any)
	switch {
	case !ok:
		fault("", "is %s; accepted is a list such as %s", shown(raw), example)
		return fs
	case len(items) > maxEntries:
		fault("", "has %d entries; accepted are at most %d", len(items), maxEntries)
		return fs
	}
	for i, item := range items {
		path := "[" + strconv.Itoa(i) + "]"
		values, ok := item.(map[string]any)
		if !ok {
			fault(path, "is %s; accepted are options and their values, as in %s", shown(item), example)
			continue
		}
		f := &fields{path: path, values: values, faults: &fs, given: map[string]bool{}}
		take(f)
		f.end()
	}
	return fs
}

// shown is a value as a problem quotes it.
func shown(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(printable(v))
	case []any:
		return "a list"
	case map[string]any, map[any]any:
		return "keys and values"
	case nil:
		return "nothing"
	}
	return printable(fmt.Sprint(v))
}

func (f *fields) fault(name string, code wiring.Code, format string, args ...any) {
	*f.faults = append(*f.faults, wiring.Fault{Path: f.path + "." + name, Code: code, Text: fmt.Sprintf(format, args...)})
}

// get returns the value of an option; ok is false if it is not set.
func (f *fields) get(name string) (v any, ok bool) {
	f.known = append(f.known, name)
	v = f.values[name]
	if v == nil {
		return nil, false
	}
	f.given[f.below+name] = true
	return v, true
}

// end notes the options that there are not.
func (f *fields) end() {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if slices.Contains(f.known, name) {
			continue
		}
		text := "there is no such option"
		if near := suggest(name, f.known); near != "" {
			text += "; did you mean " + near + "?"
		}
		f.fault(printable(name), wiring.UnknownField, "is set to %s, but %s; accepted are %s", shown(f.values[name]), text, strings.Join(f.known, ", "))
	}
}

func (f *fields) text(name, accepted string) (string, bool) {
	v, ok := f.get(name)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		f.fault(name, wiring.WrongType, "is %s; accepted is %s", shown(v), accepted)
	}
	return s, ok
}

// oneOf sets to, if the option is set, to one of the accepted values.
func oneOf[T ~string](f *fields, name string, to *T, accepted ...T) {
	words := make([]string, len(accepted))
	for i, a := range accepted {
		words[i] = string(a)
	}
	list := strings.Join(words, ", ")
	s, ok := f.text(name, list)
	switch {
	case !ok:
	case !slices.Contains(accepted, T(s)):
		f.fault(name, wiring.UnknownValue, "is %s; accepted are %s", shown(s), list)
	default:
		*to = T(s)
	}
}

// whole returns a value that is a whole number.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return int64(min(v, math.MaxInt64)), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v), true
		}
	}
	return 0, false
}

func (f *fields) count(name string, to *int) {
	v, ok := f.get(name)
	if !ok {
		return
	}
	n, ok := whole(v)
	if !ok {
		f.fault(name, wiring.WrongType, "is %s; accepted is a number of messages", shown(v))
		return
	}
	*to = int(n)
}

func (f *fields) duration(name string, to *time.Duration) {
	s, ok := f.text(name, "a duration such as 30s")
	if !ok {
		return
	}
	d, err := ParseDuration(s)
	if err != nil {
		f.fault(name, wiring.WrongType, "is %s; accepted is a duration such as 30s", shown(s))
		return
	}
	*to = d
}

func (f *fields) size(name string, to *int64) {
	v, ok := f.get(name)
	if !ok {
		return
	}
	if n, ok := whole(v); ok {
		*to = n
		return
	}
	s, _ := v.(string)
	size, err := ParseSize(s)
	if err != nil {
		f.fault(name, wiring.WrongType, "is %s; accepted is a size such as 4MiB", shown(v))
		return
	}
	*to = int64(size)
}

func (f *fields) flag(name string, to *bool) {
	v, ok := f.get(name)
	if !ok {
		return
	}
	b, ok := v.(bool)
	if !ok {
		f.fault(name, wiring.WrongType, "is %s; accepted are true and false", shown(v))
		return
	}
	*to = b
}

// section reads an option that has options below it; it is nil if it is not set,
// or is none.
func (f *fields) section(name, accepted string) *fields {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	values, ok := v.(map[string]any)
	if !ok {
		f.fault(name, wiring.WrongType, "is %s; accepted are options below it: %s", shown(v), accepted)
		return nil
	}
	return &fields{path: f.path + "." + name, values: values, faults: f.faults, given: f.given, below: f.below + name + "."}
}

// list reads several texts, or one.
func (f *fields) list(name, accepted string) []string {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	if s, ok := v.(string); ok {
		return []string{s}
	}
	items, ok := v.([]any)
	texts := make([]string, 0, len(items))
	for _, item := range items {
		s, isText := item.(string)
		ok = ok && isText
		texts = append(texts, s)
	}
	if !ok {
		f.fault(name, wiring.WrongType, "is %s; accepted is %s", shown(v), accepted)
		return nil
	}
	return texts
}
