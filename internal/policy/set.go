package policy

import (
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/subject"
)

// Set is rules, compiled. It is immutable and safe for concurrent use. The zero
// value has no rules.
//
// It is a tree for each action: the segments of the address first, then those
// of the principal. A decision goes down it along the segments at hand and
// along "*", so that rules which differ in any segment are not looked at one by
// one: what it takes follows from the length of the two names, not from the
// number of rules.
type Set struct {
	rules   []*Rule
	actions [256]*node // by action
}

var _ acl.Rules = (*Set)(nil)

// NewSet compiles rules to a set.
func NewSet(rules []*Rule) *Set {
	s := &Set{rules: rules}
	for _, r := range rules {
		root := &s.actions[r.action]
		if *root == nil {
			*root = &node{}
		}
		(*root).add(r.address, r.principal, effectsOf(r.effect))
	}
	return s
}

// Rules lists the rules of the set. The caller must not change them.
func (s *Set) Rules() []*Rule { return s.rules }

// Effect implements [acl.Rules]. It waits for nobody and allocates nothing.
func (s *Set) Effect(p *acl.Principal, action acl.Action, a address.Address) acl.Effect {
	root := s.actions[action]
	if root == nil {
		return acl.NoEffect
	}
	name := p.Name()
	if name == "" || a.IsZero() {
		return acl.Deny
	}
	var target [maxAddress]string
	n := 1 + a.Segments()
	target[0] = a.Prefix().String()
	for i := 1; i < n; i++ {
		target[i] = a.Segment(i - 1)
	}
	// metric::* is the sender's way to write the metrics of its workspace: what
	// holds for the one form holds for the other.
	if a.IsMetricAny() && p.Workspace != "" {
		target[1] = p.Workspace
	}
	var who [maxAddress]string
	m := split(name, &who)
	if m == 0 {
		return acl.Deny
	}
	return root.find(target[:n], who[:m], 0).effect()
}

// maxAddress is how many segments an address or identity has at most.
const maxAddress = 4

// split cuts an identity string into segments; 0 says that it has too many.
func split(name string, into *[maxAddress]string) int {
	for n := range into {
		end := strings.Index(name, "::")
		if end < 0 {
			into[n] = name
			return n + 1
		}
		into[n], name = name[:end], name[end+2:]
	}
	return 0
}

// EffectOn is Effect for names that are not addresses of messages, such as keys
// of the key-value store.
func (s *Set) EffectOn(principal string, action acl.Action, target string) acl.Effect {
	root := s.actions[action]
	if root == nil {
		return acl.NoEffect
	}
	return root.find(strings.Split(target, "::"), strings.Split(principal, "::"), 0).effect()
}

// effects is a set of effects.
type effects uint8

const (
	allows effects = 1 << iota
	denies
)

func effectsOf(e acl.Effect) effects {
	if e == acl.Allow {
		return allows
	}
	return denies
}

func (e effects) effect() acl.Effect {
	switch {
	case e&denies != 0:
		return acl.Deny
	case e&allows != 0:
		return acl.Allow
	}
	return acl.NoEffect
}

// node is a place in the tree.
type node struct {
	few  []edge           // literal segments, as long as they are few
	many map[string]*node // all of them, when they are not
	any  *node
	// What patterns that end here lead to: exactly here, or with one or more
	// segments to come. In the half of addresses that is a root of the half of
	// principals, there it is a leaf.
	end, tail *node
	// effects are those of all rules that lie here and below.
	effects effects
}

type edge struct {
	segment string
	to      *node
}

// fewEdges is up to when comparing is as quick as hashing.
const fewEdges = 4

// add puts a rule into the tree. then is the pattern of the other half, nil in
// the second.
func (n *node) add(p, then *subject.Pattern, e effects) {
	n.effects |= e
	for _, s := range p.Segments() {
		if s.Any {
			if n.any == nil {
				n.any = &node{}
			}
			n = n.any
		} else {
			n = n.child(s.Text)
		}
		n.effects |= e
	}
	at := &n.end
	if p.Tail() == subject.OneOrMore {
		at = &n.tail
	}
	if *at == nil {
		*at = &node{}
	}
	if then == nil {
		(*at).effects |= e
		return
	}
	(*at).add(then, nil, e)
}

// child finds the place behind a literal segment, or makes it.
func (n *node) child(segment string) *node {
	if to := n.literal(segment); to != nil {
		return to
	}
	to := &node{}
	if n.many == nil && len(n.few) < fewEdges {
		n.few = append(n.few, edge{segment, to})
		return to
	}
	if n.many == nil {
		n.many = make(map[string]*node, 2*fewEdges)
		for _, e := range n.few {
			n.many[e.segment] = e.to
		}
		n.few = nil
	}
	n.many[segment] = to
	return to
}

func (n *node) literal(segment string) *node {
	if n.many != nil {
		return n.many[segment]
	}
	for i := range n.few {
		if n.few[i].segment == segment {
			return n.few[i].to
		}
	}
	return nil
}

// find collects the effects of the rules that match, beside those already
// found. A denial ends the search, and so does what could find nothing new.
func (n *node) find(segments, then []string, found effects) effects {
	if n == nil || found&denies != 0 || n.effects&^found == 0 {
		return found
	}
	if len(segments) == 0 {
		return n.end.enter(then, found)
	}
	found = n.tail.enter(then, found)
	found = n.literal(segments[0]).find(segments[1:], then, found)
	return n.any.find(segments[1:], then, found)
}

// enter goes over to the half of principals, or collects from a leaf.
func (n *node) enter(then []string, found effects) effects {
	switch {
	case n == nil:
		return found
	case then == nil:
		return found | n.effects
	}
	return n.find(then, nil, found)
}
