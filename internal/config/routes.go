package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/subject"
	"github.com/aether-gateway/gateway/internal/wiring"
)

const routeExample = "[{from: 'ga::shop', filter: 'order.*', to: 'tb::shop::billing', principal: 'sv::router::main'}]"

// maxRouteName bounds a route's name, which is part of a key in the store.
const maxRouteName = 128

// parseRoutes reads the entries of routes.
func parseRoutes(raw any) ([]wiring.Route, error) {
	var routes []wiring.Route
	fs := entries(raw, routeExample, func(f *fields) { routes = append(routes, parseRoute(f)) })
	if len(fs) > 0 {
		return routes, fs
	}
	return routes, nil
}

const sourceForm = "an address other than of progress, or ag, tu, ta or tb with a workspace, such as ag::acme"

func parseRoute(f *fields) wiring.Route {
	var r wiring.Route
	if s, ok := f.text("name", "a name of up to 128 bytes"); ok {
		if s == "" || len(s) > maxRouteName || printable(s) != s && len(s) <= 80 || strings.TrimSpace(s) != s {
			f.fault("name", wiring.NameEmpty, "is %s; accepted is a name of up to %d bytes", shown(s), maxRouteName)
		} else {
			r.Name = s
		}
	}
	if s, ok := f.required("from", sourceForm); ok {
		from, why := wiring.ParseSource(s)
		if why != "" {
			f.fault("from", wiring.UnknownValue, "%s %s; accepted is %s", shown(s), why, sourceForm)
		}
		r.From = from
	}
	r.Filter = parseFilter(f)
	const target, service = "an address such as tb::acme::billing", "the address of a service, such as sv::router::main"
	if s, ok := f.required("to", target); ok {
		a, err := address.Parse(s)
		if err != nil {
			f.fault("to", wiring.UnknownValue, "is %s: %v; accepted is %s", shown(s), err, target)
		}
		r.To = a
	}
	if s, ok := f.required("principal", service); ok {
		a, err := address.Parse(s)
		if err != nil || a.Prefix() != address.PrefixService {
			f.fault("principal", wiring.UnknownValue, "is %s; accepted is %s", shown(s), service)
		} else {
			r.Principal = a
		}
	}
	r.Workspaces = f.list("workspaces", "a list of workspaces, or \"*\"")
	for _, ws := range r.Workspaces {
		if err := address.ValidWorkspace(ws); err != nil && (ws != "*" || len(r.Workspaces) > 1) {
			f.fault("workspaces", wiring.UnknownValue, "has %s; accepted are names of workspaces, or \"*\" alone", shown(ws))
			r.Workspaces = nil
			break
		}
	}
	if r.Name == "" {
		r.Name = r.From.String() + " > " + r.To.String()
		if r.Filter != nil {
			r.Name = r.From.String() + " [" + r.Filter.String() + "] > " + r.To.String()
		}
	}
	return r
}

// required is text that must be set.
func (f *fields) required(name, accepted string) (string, bool) {
	s, ok := f.text(name, accepted)
	if !ok && f.values[name] == nil {
		f.fault(name, wiring.Missing, "is not set; accepted is %s", accepted)
	}
	return s, ok
}

// parseFilter reads the filter of a route and its grammar.
func parseFilter(f *fields) *subject.Pattern {
	name := subject.Strict.String()
	oneOf(f, "grammar", &name, subject.Strict.String(), subject.Subtree.String(), subject.Segmented.String())
	s, ok := f.text("filter", "a pattern for subjects")
	if !ok {
		return nil
	}
	grammar, _ := subject.ParseGrammar(name)
	p, err := subject.Compile(grammar, s)
	var broken *subject.Error
	if errors.As(err, &broken) {
		f.fault("filter", wiring.UnknownValue, "is %s: by the grammar %s %v; accepted is a pattern such as order.*.created", shown(s), name, err)
		return nil
	}
	return p
}

// filterNotes says where a filter looks as if more was meant.
func filterNotes(routes []wiring.Route, source Source) (notes Problems) {
	for i := range routes {
		if p := routes[i].Filter; p != nil && p.MeantAsSubtree() {
			notes = append(notes, Problem{Key: fmt.Sprintf("routes[%d].filter", i), Source: source, Text: fmt.Sprintf(
				"%q ends with a *, which by the grammar strict is one segment; for all that lies below write grammar: subtree", p)})
		}
	}
	return notes
}

// routesText is the routes in YAML's flow form, which can be set again.
func routesText(routes []wiring.Route) string {
	if len(routes) == 0 {
		return ""
	}
	list := make([]string, len(routes))
	for i := range routes {
		r := &routes[i]
		from := r.From.String()
		if from == address.MetricReceiver().String() {
			from = address.MetricAny().String()
		}
		parts := []string{fmt.Sprintf("name: %q, from: %q", r.Name, from)}
		if r.Filter != nil {
			parts = append(parts, fmt.Sprintf("filter: %q, grammar: %s", r.Filter, r.Filter.Grammar()))
		}
		parts = append(parts, fmt.Sprintf("to: %q, principal: %q", r.To, r.Principal))
		if len(r.Workspaces) > 0 {
			parts = append(parts, "workspaces: "+quoted(r.Workspaces))
		}
		list[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(list, ", ") + "]"
}
