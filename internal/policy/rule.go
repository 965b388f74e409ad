package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/subject"
)

const (
	// MaxPattern bounds a pattern, in characters, as an address is bounded.
	MaxPattern = address.MaxRunes
	// MaxNote bounds a note and who created the rule, in bytes.
	MaxNote = 256
	// DefaultLimit is how many rules there may be, if nothing else is said.
	DefaultLimit = 10_000
)

// Rule is a rule that has been checked and compiled. It is immutable.
type Rule struct {
	store.Rule
	effect             acl.Effect
	action             acl.Action
	principal, address *subject.Pattern
}

// InvalidError says what is wrong with a rule. Nothing was done.
type InvalidError struct {
	// Field is the part of the rule: effect, principal, action, address,
	// grammar, created_by or note.
	Field string
	// Reason is a sentence fragment: what is wrong, and what is accepted.
	Reason string
}

func (e *InvalidError) Error() string { return "the rule's " + e.Field + " " + e.Reason }

func invalid(field, reason string, args ...any) error {
	return &InvalidError{field, fmt.Sprintf(reason, args...)}
}

// Compile checks a rule. The error is an [*InvalidError].
func Compile(r store.Rule) (*Rule, error) {
	c := &Rule{Rule: r}
	var ok bool
	if c.effect, ok = acl.ParseEffect(r.Effect); !ok {
		return nil, invalid("effect", "is %.32q: allow and deny are known", r.Effect)
	}
	if c.action, ok = acl.ParseAction(r.Action); !ok {
		return nil, invalid("action", "is %.32q: %s are known", r.Action, actionList())
	}
	g, _ := subject.ParseGrammar(r.Grammar)
	if g != subject.Strict && g != subject.Subtree {
		return nil, invalid("grammar", "is %.32q: strict and subtree are known", r.Grammar)
	}
	var err error
	if c.principal, err = pattern("principal", g, r.Principal, identityForms); err != nil {
		return nil, err
	}
	forms := addressForms
	if !onAddresses(c.action) {
		forms = nil
	}
	if c.address, err = pattern("address", g, r.Address, forms); err != nil {
		return nil, err
	}
	for field, text := range map[string]string{"note": r.Note, "created_by": r.CreatedBy} {
		if len(text) > MaxNote {
			return nil, invalid(field, "has %d bytes, %d are allowed", len(text), MaxNote)
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, invalid(field, "is not a line of text")
		}
	}
	return c, nil
}

// AddressPattern compiles a pattern over addresses by the subtree grammar, as a
// rule has one. The error is an [*InvalidError] of that field.
func AddressPattern(field, text string) (*subject.Pattern, error) {
	return pattern(field, subject.Subtree, text, addressForms)
}

// onAddresses reports whether an action is one on addresses of messages. The
// others are on names that their own parts define.
func onAddresses(a acl.Action) bool {
	switch a {
	case acl.ActionSend, acl.ActionObserve, acl.ActionStatusRead:
		return true
	}
	return false
}

func actionList() string {
	var names []string
	for _, a := range acl.Actions() {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// pattern compiles a pattern. forms are those that the names which it is for
// can have; nil is any.
func pattern(field string, g subject.Grammar, text string, forms []form) (*subject.Pattern, error) {
	if !utf8.ValidString(text) {
		return nil, invalid(field, "is not valid UTF-8")
	}
	if n := utf8.RuneCountInString(text); n > MaxPattern {
		return nil, invalid(field, "has %d characters, %d are allowed", n, MaxPattern)
	}
	p, err := subject.CompileAddress(g, text)
	if err != nil {
		return nil, invalid(field, "is %.64q: %v; segments are separated by ::", text, err)
	}
	for i, s := range p.Segments() {
		if s.Any {
			continue
		}
		// A wildcard inside a segment would be data that nothing has, and its
		// author would think that it widens or narrows something.
		if err := address.ValidSegment(s.Text); err != nil {
			return nil, invalid(field, "is %.64q: segment %d is neither * nor one that a name can have: %v", text, i+1, err)
		}
		if i == 0 && forms != nil && !anyForm(forms, func(f form) bool { return f.prefix == s.Text }) {
			return nil, invalid(field, "begins with %.32q: %s and * are known", s.Text, prefixList(forms))
		}
	}
	return p, nil
}

// form is what names of one kind look like.
type form struct {
	prefix   string
	segments int      // the prefix included
	kind     acl.Kind // of an identity
}

var addressForms = func() (all []form) {
	for _, p := range address.Prefixes() {
		all = append(all, form{prefix: p.String(), segments: strings.Count(p.Format(), "::") + 1})
	}
	return all
}()

var identityForms = []form{
	{"ag", 4, acl.Agent},
	{"tu", 4, acl.UniqueTask},
	{"ta", 4, acl.Task},
	{"us", 3, acl.User},
	{"sv", 3, acl.Service},
	{"br", 3, acl.Bridge},
	{"orc", 3, acl.Orchestrator},
	{"wfe", 2, acl.WorkflowEngine},
	{"metrics", 2, acl.MetricsBridge},
}

func anyForm(forms []form, is func(form) bool) bool {
	for _, f := range forms {
		if is(f) {
			return true
		}
	}
	return false
}

func prefixList(forms []form) string {
	var names []string
	for _, f := range forms {
		names = append(names, f.prefix)
	}
	return strings.Join(names, ", ")
}

// fits reports whether a name of the form can match the pattern.
func (f form) fits(p *subject.Pattern) bool {
	if !p.TakesDepth(f.segments) {
		return false
	}
	s := p.Segments()
	return len(s) == 0 || s[0].Any || s[0].Text == f.prefix
}

// Matches reports whether the rule is about a principal and an address.
func (r *Rule) Matches(principal string, action acl.Action, target string) bool {
	return r.action == action && r.principal.Match(principal) && r.address.Match(target)
}
