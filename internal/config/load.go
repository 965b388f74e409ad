package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// SourceKind says which layer a value came from.
type SourceKind string

// The layers, each overriding the ones before it.
const (
	FromDefault     SourceKind = "default"
	FromFile        SourceKind = "file"
	FromEnvironment SourceKind = "environment"
	FromFlag        SourceKind = "flag"
)

// Source says where a value came from.
type Source struct {
	Kind SourceKind `json:"kind"`
	// Name is the file, variable or flag; "" for a default.
	Name string `json:"name,omitempty"`
}

// String is the source in words.
func (s Source) String() string {
	if s.Name == "" {
		return string(s.Kind)
	}
	return string(s.Kind) + " " + s.Name
}

// Options say what to read.
type Options struct {
	Mode Mode
	// File is the path of a YAML file, "" for none.
	File string
	// Environ is the environment, as os.Environ returns it.
	Environ []string
	// Flags are values of keys that were given on the command line.
	Flags map[string]string
}

// Load reads and checks everything. The error is a [Problems] with all that is
// wrong. The configuration is returned with it, as far as it could be read, so
// that it can be shown.
func Load(o Options) (*Config, error) {
	c := &Config{Mode: o.Mode, sources: map[string]Source{}}
	var problems Problems

	// Each layer is checked alone, so that a problem names its source; koanf
	// then lays one over the other.
	merged := koanf.New(".")
	for _, layer := range []func(Options) (layer, Problems){fileLayer, envLayer, flagLayer} {
		l, ps := layer(o)
		problems = append(problems, ps...)
		flat := map[string]any{}
		for key, v := range l {
			flat[key] = v.value
			c.sources[key] = v.source
		}
		if err := merged.Load(confmap.Provider(flat, "."), nil); err != nil {
			problems = append(problems, Problem{Text: err.Error()})
		}
	}

	for i := range table {
		k := &table[i]
		source, set := c.sources[k.Name]
		if !set {
			source = Source{Kind: FromDefault}
			c.sources[k.Name] = source
			if err := assign(k, k.field(c), k.DefaultIn(o.Mode)); err != nil {
				panic(fmt.Sprintf("config: default of %s: %v", k.Name, err))
			}
			continue
		}
		if err := assign(k, k.field(c), merged.Get(k.Name)); err != nil {
			problems = append(problems, keyProblems(k.Name, source, err)...)
		}
	}
	problems = append(problems, c.readPasswords(problems)...)
	problems = append(problems, c.check(problems)...)
	if len(problems) > 0 {
		return c, problems.sorted()
	}
	return c, nil
}

// keyProblems are those of a key: one for each option in it that is wrong.
func keyProblems(key string, source Source, err error) (ps Problems) {
	var several faults
	if !errors.As(err, &several) {
		return Problems{{Key: key, Source: source, Text: oneLine(err)}}
	}
	for _, f := range several {
		ps = append(ps, Problem{Key: key + f.Path, Source: source, Text: oneLine(errors.New(f.Text))})
	}
	return ps
}

// oneLine joins the lines of several errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// layer is what one source sets: known keys only.
type layer map[string]sourced

type sourced struct {
	value  any
	source Source
}

func flagLayer(o Options) (layer, Problems) {
	l, ps := layer{}, Problems(nil)
	for _, name := range slices.Sorted(maps.Keys(o.Flags)) {
		k := byName[name]
		if k == nil {
			ps = append(ps, unknown(name, Source{Kind: FromFlag}))
			continue
		}
		source := Source{Kind: FromFlag, Name: k.Flag}
		l[name] = sourced{o.Flags[name], source}
	}
	return l, ps
}

// unknown is the problem of a key that does not exist.
func unknown(name string, source Source) Problem {
	text := "there is no such key"
	if near := suggest(name, names); near != "" {
		text += "; did you mean " + near + "?"
	} else {
		text += "; `gateway config print` lists them all"
	}
	return Problem{Key: printable(name), Source: source, Text: text}
}

// Source says where the value of a key came from.
func (c *Config) Source(key string) Source { return c.sources[key] }

// IsSet reports whether somebody has set the key, be it to its default.
func (c *Config) IsSet(key string) bool {
	s, ok := c.sources[key]
	return ok && s.Kind != FromDefault
}

// Notes are keys that were set and have no effect, and why.
func (c *Config) Notes() Problems {
	var notes Problems
	for i := range table {
		k := &table[i]
		if !c.IsSet(k.Name) || k.hasEffect(c.Mode) {
			continue
		}
		text := "has no effect in " + string(c.Mode)
		if k.Later != "" {
			text = "has no effect yet: " + k.Later
		}
		notes = append(notes, Problem{Key: k.Name, Source: c.sources[k.Name], Text: text})
	}
	return append(notes, filterNotes(c.Routes, c.sources["routes"])...)
}
