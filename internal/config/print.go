package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// Entry is one key with its value, ready to be shown.
type Entry struct {
	Key string `json:"key"`
	// Value is the value as text, with passwords replaced.
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Entries lists every key of the mode with its value. Nothing in it is secret.
func (c *Config) Entries() []Entry {
	entries := make([]Entry, 0, len(table))
	for i := range table {
		k := &table[i]
		if k.Only != "" && k.Only != c.Mode {
			continue
		}
		entries = append(entries, Entry{Key: k.Name, Value: c.text(k), Source: c.sources[k.Name]})
	}
	return entries
}

// text is the value of a key as it may be shown.
func (c *Config) text(k *Key) string {
	switch v := k.field(c).(type) {
	case *string:
		if k.Secret() {
			return RedactURL(*v)
		}
		return *v
	case *[]string:
		shown := make([]string, len(*v))
		for i, s := range *v {
			shown[i] = RedactURL(s)
		}
		return strings.Join(shown, ",")
	case *[]KeyFile:
		shown := make([]string, len(*v))
		for i, f := range *v {
			if shown[i] = f.Path; f.Alg != "" {
				shown[i] = f.Alg + ":" + f.Path
			}
		}
		return strings.Join(shown, ",")
	case *[]Placement:
		return placementText(*v)
	case *[]CertificateEntry:
		return certificatesText(*v)
	case *[]wiring.Topic:
		return topicsText(*v)
	case *[]wiring.Route:
		return routesText(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *int64:
		if k.Auto && *v < 0 {
			return auto
		}
		return strconv.FormatInt(*v, 10)
	case *time.Duration:
		return FormatDuration(*v)
	case *Size:
		if k.Auto && *v < 0 {
			return auto
		}
		return v.String()
	}
	return ""
}

// placementText is the rules in YAML's flow form, which can be set again.
func placementText(rules []Placement) string {
	if len(rules) == 0 {
		return ""
	}
	shown := make([]string, len(rules))
	for i, r := range rules {
		switch {
		case r.Address != "":
			shown[i] = fmt.Sprintf("{address: %q}", r.Address)
		case r.Workspace != "":
			shown[i] = fmt.Sprintf("{prefix: %s, workspace: %q}", r.Prefix, r.Workspace)
		default:
			shown[i] = fmt.Sprintf("{prefix: %s}", r.Prefix)
		}
	}
	return "[" + strings.Join(shown, ", ") + "]"
}
