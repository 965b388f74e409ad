package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aether-gateway/gateway/internal/address"
)

var ruleFields = []string{"prefix", "workspace", "address", "max_age", "max_bytes"}

// parseRule reads one rule of streams.placement.
func parseRule(fields map[string]any) (Placement, error) {
	var (
		p    Placement
		errs []error
		what int
	)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text, err := scalar(fields[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", printable(name), err))
			continue
		}
		switch name {
		case "prefix":
			what++
			p.Prefix = text
			if !isPrefix(text) {
				err = fmt.Errorf("%q is no prefix of an address", text)
			}
		case "workspace":
			what++
			p.Workspace = text
			err = address.ValidWorkspace(text)
		case "address":
			what++
			p.Address = text
			_, err = address.Parse(text)
		case "max_age":
			p.MaxAge, err = ParseDuration(text)
		case "max_bytes":
			p.MaxBytes, err = ParseSize(text)
		default:
			err = errors.New("there is no such field")
			if near := suggest(name, ruleFields); near != "" {
				err = fmt.Errorf("there is no such field; did you mean %s?", near)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", printable(name), err))
		}
	}
	if what != 1 {
		errs = append(errs, errors.New("a rule has exactly one of prefix, workspace and address"))
	}
	if p.MaxAge < 0 {
		errs = append(errs, errors.New("max_age: must not be negative"))
	}
	return p, errors.Join(errs...)
}

func isPrefix(s string) bool {
	for _, p := range address.Prefixes() {
		if p.String() == s {
			return true
		}
	}
	return false
}
