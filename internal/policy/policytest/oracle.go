// Package policytest says once more who may send where, for tests: the matrix,
// the workspace rule and the rules of operators, written down from their
// definition and for reading, not for speed. It shares nothing with the code
// that it is compared with: it cuts texts into segments and compares them.
//
// It also makes up what to ask: senders, addresses good and malformed, and
// rules.
package policytest

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sender is a principal, as texts.
type Sender struct {
	Kind     string // as on the wire: agent, unique_task, ...
	Identity string
	// Workspace is where an agent, task or user is; "" for a user in none.
	Workspace string
	// Covers are the workspaces of the credential of the others.
	Covers []string
	// App is what the sender names as app_workspace when it writes metrics; ""
	// for those that are in a workspace.
	App string
}

// Rule is a rule of an operator, as texts.
type Rule struct{ Effect, Principal, Action, Address, Grammar string }

// World is who is a member where.
type World struct {
	// Members are the workspaces of each user; Barred those that a user was put
	// out of.
	Members, Barred map[string][]string
}

// The outcomes of a send.
const (
	Stored  = "stored"
	Denied  = "ERR_PERMISSION_DENIED"
	BadName = "ERR_INVALID_TOPIC"
)

// Outcome is what becomes of a send.
func (w World) Outcome(s Sender, to string, rules []Rule) string {
	if !Valid(to) {
		return BadName
	}
	forms := []string{to}
	if to == "metric::*" || to == "metric::receiver0" {
		ws := s.Workspace
		if ws == "" {
			ws = s.App
		}
		forms = append(forms, "metric::"+ws)
	}
	allowed, denied := false, false
	for _, r := range rules {
		if r.Action != "send" || !Matches(r.Grammar, r.Principal, s.Identity) {
			continue
		}
		for _, form := range forms {
			if Matches(r.Grammar, r.Address, form) {
				allowed = allowed || r.Effect == "allow"
				denied = denied || r.Effect == "deny"
			}
		}
	}
	if !denied && (w.byNature(s, to) || allowed && w.openable(s, to)) {
		return Stored
	}
	return Denied
}

// cells are the prefixes to which each kind may send.
var cells = map[string]string{
	"agent":           "ag ga tu ta tb us uw gu event metric",
	"unique_task":     "ag ga tu ta tb us uw gu event metric",
	"non_unique_task": "ag ga tu ta tb us uw gu event metric",
	"user":            "ag ga tu ta tb us uw gu",
	"workflow_engine": "ag ga tu ta tb us uw gu event metric",
	"metrics_bridge":  "",
	"orchestrator":    "ag tu ta tb ga",
	"service":         "ag tu ta tb ga",
	"bridge":          "ag ga tu ta tb us uw gu event metric pg sv br",
}

func hasCell(kind, prefix string) bool { return slices.Contains(strings.Fields(cells[kind]), prefix) }

func scoped(kind string) bool {
	return slices.Contains([]string{"agent", "unique_task", "non_unique_task", "user"}, kind)
}

// reach are the workspaces that a sender reaches.
func reach(s Sender) []string {
	if !scoped(s.Kind) {
		return s.Covers
	}
	if s.Workspace == "" {
		return nil
	}
	return []string{s.Workspace}
}

// byNature is the matrix and the workspace rule.
func (w World) byNature(s Sender, to string) bool {
	part := strings.Split(to, "::")
	if !hasCell(s.Kind, part[0]) {
		return false
	}
	if s.Kind == "bridge" {
		return true
	}
	switch {
	case to == "metric::receiver0":
		return false
	case to == "metric::*":
		return len(reach(s)) > 0
	case part[0] == "us":
		return slices.ContainsFunc(reach(s), func(ws string) bool { return w.member(part[1], ws) })
	}
	return slices.Contains(reach(s), workspaceOf(to))
}

func (w World) member(user, ws string) bool {
	return slices.Contains(w.Members[user], ws) && !slices.Contains(w.Barred[user], ws)
}

// openable is what a rule can open: services, bridges, and other workspaces.
func (w World) openable(s Sender, to string) bool {
	part := strings.Split(to, "::")
	switch {
	case part[0] == "sv" || part[0] == "br":
		return true
	case part[0] == "pg" || part[0] == "metric" || !hasCell(s.Kind, part[0]):
		return false
	case scoped(s.Kind) && s.Workspace == "":
		return false
	case part[0] != "us":
		return true
	}
	somewhere := slices.ContainsFunc(w.Members[part[1]], func(ws string) bool { return w.member(part[1], ws) })
	return somewhere && (s.Workspace == "" || !slices.Contains(w.Barred[part[1]], s.Workspace))
}

func workspaceOf(address string) string {
	part := strings.Split(address, "::")
	if part[0] == "uw" {
		return part[2]
	}
	return part[1]
}

// Matches says whether a pattern of a rule takes a name.
func Matches(grammar, pattern, name string) bool {
	p, n := strings.Split(pattern, "::"), strings.Split(name, "::")
	if grammar == "subtree" && len(p) > 1 && p[len(p)-1] == "*" {
		if len(n) < len(p) {
			return false
		}
		n = n[:len(p)]
	}
	if len(p) != len(n) {
		return false
	}
	for i := range p {
		if p[i] != "*" && p[i] != n[i] {
			return false
		}
	}
	return true
}

// depth is how many segments an address of a prefix has.
var depth = map[string]int{
	"ag": 4, "tu": 4, "ta": 4, "tb": 3, "us": 3, "uw": 3, "ga": 2, "gu": 2, "pg": 2, "event": 2, "metric": 2, "sv": 3, "br": 3,
}

var reserved = regexp.MustCompile(`^receiver[0-9]+$`)

// Valid says whether a text is an address.
func Valid(address string) bool {
	if address == "metric::*" || address == "metric::receiver0" {
		return true
	}
	part := strings.Split(address, "::")
	if len(part) < 2 || depth[part[0]] != len(part) || utf8.RuneCountInString(address) > 256 || !utf8.ValidString(address) {
		return false
	}
	for _, s := range part[1:] {
		bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("*#>", r) }
		if s == "" || len(s) > 128 || strings.ContainsFunc(s, bad) || s[0] == ':' || s[len(s)-1] == ':' {
			return false
		}
	}
	named := !slices.Contains([]string{"us", "sv", "br"}, part[0]) // a workspace
	return !named || !reserved.MatchString(workspaceOf(address))
}
