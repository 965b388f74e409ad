package policy

import (
	"fmt"
	"slices"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// Explanation is why a principal may, or may not, send to an address.
type Explanation struct {
	// Decision is what a send gets, Text its sentence, "" if it is allowed.
	Decision acl.Decision
	Text     string
	// Before is what it would get without rules, BeforeText its sentence.
	Before     acl.Decision
	BeforeText string
	// Rules are those that match, by id: all, also those that others overrule.
	Rules []*Rule
}

// Explain says why p may, or may not, send to a.
func (s *Set) Explain(p *acl.Principal, a address.Address, m acl.Members) Explanation {
	e := Explanation{Decision: acl.DecideWith(p, a, m, s), Before: acl.Decide(p, a, m)}
	e.Text, e.BeforeText = e.Decision.Message(p, a), e.Before.Message(p, a)
	target := a.String()
	if a.IsMetricAny() && p.Workspace != "" {
		target = "metric::" + p.Workspace
	}
	e.Rules = s.Matching(p.Name(), acl.ActionSend, target)
	return e
}

// Matching lists the rules about a principal, an action and a target, by id.
func (s *Set) Matching(principal string, action acl.Action, target string) (list []*Rule) {
	for _, r := range s.rules {
		if r.Matches(principal, action, target) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *Rule) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	return list
}

// PrincipalOf makes a principal of an identity string, for questions about it.
// Workspaces are those that its credential covers; of a user the first is the
// one it is in. For agents and tasks, who name theirs, they are ignored. Nobody
// is authenticated by it.
func PrincipalOf(identity string, workspaces ...string) (*acl.Principal, error) {
	for _, ws := range workspaces {
		if err := address.ValidWorkspace(ws); ws != "*" && err != nil {
			return nil, fmt.Errorf("workspace %.64q: %w", ws, err)
		}
	}
	p := &acl.Principal{Workspaces: acl.Workspaces(workspaces...)}
	if slices.Contains(workspaces, "*") {
		p.Workspaces = acl.All()
	}
	var parts [maxAddress]string
	n := split(identity, &parts)
	kind, named := unaddressed[parts[0]]
	if named && n == kind.segments {
		for _, part := range parts[1:n] {
			if err := address.ValidSegment(part); err != nil {
				return nil, fmt.Errorf("identity %.64q: %w", identity, err)
			}
		}
		p.Kind, p.Identity = kind.kind, identity
		return p, nil
	}
	a, err := address.Parse(identity)
	if err != nil {
		return nil, fmt.Errorf("identity %.64q: %w", identity, err)
	}
	p.Address = a
	switch a.Prefix() {
	case address.PrefixAgent:
		p.Kind = acl.Agent
	case address.PrefixUniqueTask:
		p.Kind = acl.UniqueTask
	case address.PrefixTask:
		p.Kind = acl.Task
	case address.PrefixUser:
		p.Kind = acl.User
		if len(workspaces) > 0 && workspaces[0] != "*" {
			p.Workspace = workspaces[0]
		}
	case address.PrefixService:
		p.Kind = acl.Service
	case address.PrefixBridge:
		p.Kind = acl.Bridge
	default:
		return nil, fmt.Errorf("identity %.64q: nobody is called so; identities look like ag::workspace::implementation::specifier", identity)
	}
	if ws := a.Workspace(); ws != "" {
		p.Workspace, p.Workspaces = ws, acl.Workspaces(ws)
	}
	return p, nil
}

// unaddressed are the identities that are no addresses, by their prefix.
var unaddressed = map[string]struct {
	kind     acl.Kind
	segments int
}{
	"orc":     {acl.Orchestrator, 3},
	"wfe":     {acl.WorkflowEngine, 2},
	"metrics": {acl.MetricsBridge, 2},
}
