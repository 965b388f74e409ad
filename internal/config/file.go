package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// maxFile bounds a configuration file; a larger one is surely something else.
const maxFile = 1 << 20

func fileLayer(o Options) (layer, Problems) {
	if o.File == "" {
		return nil, nil
	}
	f, err := os.Open(o.File)
	if err != nil {
		text := err.Error()
		if errors.Is(err, fs.ErrNotExist) {
			text = fmt.Sprintf("the configuration file %s does not exist", o.File)
		}
		return nil, Problems{{Text: text}}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, Problems{{Text: fmt.Sprintf("reading %s: %v", o.File, err)}}
	}
	return parseFile(o.File, data)
}

// parseFile reads the content of a configuration file.
func parseFile(name string, data []byte) (layer, Problems) {
	source := Source{Kind: FromFile, Name: name}
	refuse := func(format string, args ...any) (layer, Problems) {
		return nil, Problems{{Text: name + ": " + fmt.Sprintf(format, args...)}}
	}
	if len(data) > maxFile {
		return refuse("is larger than %s", Size(maxFile))
	}
	if err := oneMapping(data); err != nil {
		return refuse("%v", err)
	}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), yaml.Parser()); err != nil {
		return refuse("%s", yamlError(err))
	}
	l, ps := layer{}, Problems(nil)
	all := k.All()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch value := all[key]; {
		case byName[key] == nil && isSection(key) && isEmpty(value):
			// A section whose keys are all commented out sets nothing.
		case byName[key] == nil && isSection(key):
			ps = append(ps, Problem{Key: key, Source: source, Text: "is a section; set the keys below it"})
		case byName[key] == nil && above(key) != nil && above(key).example() != "":
			k := above(key)
			if !ps.about(k.Name) {
				ps = append(ps, Problem{Key: k.Name, Source: source, Text: "has keys below it; accepted is a list such as " + k.example()})
			}
		case byName[key] == nil && byName[parent(key)] != nil:
			ps = append(ps, Problem{Key: printable(key), Source: source, Text: parent(key) + " is a single value and has no keys below it"})
		case byName[key] == nil:
			ps = append(ps, unknown(key, source))
		case value == nil:
			// `key:` without a value leaves the default.
		default:
			l[key] = sourced{value, source}
		}
	}
	return l, ps
}

// oneMapping checks that there is at most one document and that it is a
// mapping without anchors of a size that only a machine would write.
func oneMapping(data []byte) error {
	dec := yamlv3.NewDecoder(strings.NewReader(string(data)))
	var doc yamlv3.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return errors.New(yamlError(err))
	}
	if len(doc.Content) == 1 {
		top := doc.Content[0]
		if top.Kind != yamlv3.MappingNode && top.Tag != "!!null" {
			return errors.New("must hold keys and values (`key: value`)")
		}
	}
	var more yamlv3.Node
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return errors.New(yamlError(err))
	}
	return errors.New("holds more than one document (`---`); only one would be read")
}

// yamlError takes the parser's name out of its message. A message of the YAML
// parser quotes at most keys and single scalars that failed to decode; those
// are cut off, since they may be secret.
func yamlError(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	if i := strings.IndexByte(text, '`'); i >= 0 {
		text = strings.TrimSpace(text[:i]) + " (value not shown)"
	}
	return "is not valid YAML: " + text
}

func parent(key string) string {
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i]
	}
	return ""
}

// above is the key below which something was set that is no key, nil if there is
// none.
func above(key string) *Key {
	for p := parent(key); p != ""; p = parent(p) {
		if k := byName[p]; k != nil {
			return k
		}
	}
	return nil
}

func isSection(name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, name+".") })
}

func isEmpty(v any) bool {
	m, isMap := v.(map[string]any)
	return v == nil || isMap && len(m) == 0
}

// printable keeps control characters of a key out of terminals and logs.
func printable(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
