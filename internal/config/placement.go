package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
)

var ruleFields = []string{"prefix", "workspace", "address"}

// parseRule reads one rule of streams.placement.
func parseRule(fields map[string]any) (Placement, error) {
	var (
		p    Placement
		errs []error
	)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text, err := scalar(fields[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", printable(name), err))
			continue
		}
		switch name {
		case "prefix":
			p.Prefix = text
			if !isPrefix(text) {
				err = fmt.Errorf("%q is no prefix of an address", printable(text))
			}
		case "workspace":
			p.Workspace = text
			err = address.ValidWorkspace(text)
		case "address":
			p.Address = text
			_, err = address.Parse(text)
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
	switch {
	case len(errs) > 0:
	case (p.Address == "") == (p.Prefix == ""):
		errs = append(errs, errors.New("a rule has a prefix or an address, and not both"))
	case p.Workspace != "" && !hasWorkspaceFirst(p.Prefix):
		errs = append(errs, fmt.Errorf("workspace: cannot be given with prefix %s, whose addresses do not begin with one", p.Prefix))
	}
	return p, errors.Join(errs...)
}

func isPrefix(s string) bool {
	return slices.ContainsFunc(address.Prefixes(), func(p address.Prefix) bool { return p.String() == s })
}

// Match is what the rule matches: one whole address, or every address that
// begins with a text. One of the two is "".
func (p Placement) Match() (equals, begins string) {
	switch {
	case p.Address != "":
		return p.Address, ""
	case p.Workspace == "":
		return "", p.Prefix + "::"
	case wholeWorkspace(p.Prefix):
		return p.Prefix + "::" + p.Workspace, ""
	default:
		return "", p.Prefix + "::" + p.Workspace + "::"
	}
}

// wholeWorkspace reports whether a workspace has one address with the prefix.
func wholeWorkspace(prefix string) bool {
	switch prefix {
	case "ga", "gu", "pg", "event":
		return true
	}
	return false
}

func hasWorkspaceFirst(prefix string) bool {
	switch prefix {
	case "ag", "tu", "ta", "tb":
		return true
	}
	return wholeWorkspace(prefix)
}

// covers reports whether every address that later matches is matched by p, so
// that later would never be used.
func (p Placement) covers(later Placement) bool {
	equals, begins := p.Match()
	laterEquals, laterBegins := later.Match()
	if begins == "" {
		return equals == laterEquals
	}
	return strings.HasPrefix(laterEquals+laterBegins, begins)
}
