package policy

import (
	"fmt"
	"slices"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/subject"
)

// Warning is something about a rule that is allowed, but may not be what its
// author meant.
type Warning struct {
	// Code is one of the codes below.
	Code string
	// Text is a sentence for the operator.
	Text string
	// Rules are the ids of the other rules that it is about, the first ten.
	Rules []int64
}

// The codes of warnings.
const (
	// MeantAsSubtree: a strict pattern that ends with "*" and reaches one level,
	// although there are names further below.
	MeantAsSubtree = "meant_as_subtree"
	// MatchesNothing: no name of any kind has that many segments.
	MatchesNothing = "matches_nothing"
	// OpensNothing: an allowance for addresses that no rule can open.
	OpensNothing = "opens_nothing"
	// Contradicts: rules of the other effect are about some of the same. Where
	// both match, the denial counts.
	Contradicts = "contradicts"
	// Covered: another rule of the same effect says it already.
	Covered = "covered"
)

// manyIDs bounds the ids in a warning.
const manyIDs = 10

// Warnings says what is odd about a rule, by itself and beside others. The rule
// itself may be among the others.
func Warnings(r *Rule, others []*Rule) (list []Warning) {
	forms := addressForms
	if !onAddresses(r.action) {
		forms = nil
	}
	list = append(list, patternWarnings("principal", r.principal, identityForms)...)
	list = append(list, patternWarnings("address", r.address, forms)...)
	if r.effect == acl.Allow && r.action == acl.ActionSend {
		switch senders, some := opens(r.principal, r.address); {
		case senders || !some:
		case !openableAtAll(r.address):
			list = append(list, Warning{Code: OpensNothing, Text: fmt.Sprintf("the address %q is one that no rule can open", r.Address)})
		default:
			list = append(list, Warning{Code: OpensNothing, Text: fmt.Sprintf("no rule can open the address %q to senders such as %q", r.Address, r.Principal)})
		}
	}
	var against, covered []int64
	for _, o := range others {
		if o.ID == r.ID || o.action != r.action {
			continue
		}
		switch {
		case o.effect != r.effect:
			if r.principal.Overlaps(o.principal) && r.address.Overlaps(o.address) {
				against = append(against, o.ID)
			}
		case o.principal.Covers(r.principal) && o.address.Covers(r.address):
			covered = append(covered, o.ID)
		}
	}
	if n := len(against); n > 0 {
		list = append(list, Warning{Contradicts, contradiction(r.effect, n), firstIDs(against)})
	}
	if n := len(covered); n > 0 {
		list = append(list, Warning{Covered, fmt.Sprintf("%s the same effect already, for all that this rule is about", rulesHave(n)), firstIDs(covered)})
	}
	return list
}

func contradiction(e acl.Effect, n int) string {
	if e == acl.Deny {
		return fmt.Sprintf("%s some of what this rule denies; where both match, it is denied", theyDo(n, "allows", "allow"))
	}
	return fmt.Sprintf("%s some of what this rule allows; where both match, it is denied", theyDo(n, "denies", "deny"))
}

func rulesHave(n int) string { return theyDo(n, "has", "have") }

func theyDo(n int, one, many string) string {
	if n == 1 {
		return "another rule " + one
	}
	return fmt.Sprintf("%d other rules %s", n, many)
}

func firstIDs(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Clip(ids[:min(len(ids), manyIDs)])
}

// patternWarnings are those about one pattern. Without forms nothing is known
// of the names.
func patternWarnings(field string, p *subject.Pattern, forms []form) (list []Warning) {
	if p.MeantAsSubtree() && deeper(p, forms) {
		list = append(list, Warning{Code: MeantAsSubtree, Text: fmt.Sprintf(
			"the last * of the %s %q is exactly one segment in the strict grammar: name the grammar subtree to reach all that lies below", field, p)})
	}
	if forms != nil && !anyForm(forms, func(f form) bool { return f.fits(p) }) {
		list = append(list, Warning{Code: MatchesNothing, Text: fmt.Sprintf(
			"the %s %q matches nothing: nothing of that kind has so many segments; *::* in the grammar subtree is everything", field, p)})
	}
	return list
}

// deeper reports whether the pattern, if it were of the grammar subtree, would
// take names that it does not take now.
func deeper(p *subject.Pattern, forms []form) bool {
	if forms == nil {
		return true
	}
	wide, err := subject.CompileAddress(subject.Subtree, p.String())
	return err == nil && anyForm(forms, func(f form) bool { return f.fits(wide) && !f.fits(p) })
}

// opens reports whether an allowance can open some addresses of a pattern to some
// principals of another, and whether there are any such at all.
func opens(principals, addresses *subject.Pattern) (something, some bool) {
	for _, from := range identityForms {
		if !from.fits(principals) {
			continue
		}
		for i, prefix := range address.Prefixes() {
			if addressForms[i].fits(addresses) {
				some = true
				if acl.CanOpen(from.kind, prefix) {
					return true, true
				}
			}
		}
	}
	return false, some
}

// openableAtAll reports whether some addresses of a pattern are of kinds that
// do not stay closed to everybody.
func openableAtAll(p *subject.Pattern) bool {
	for i, prefix := range address.Prefixes() {
		if addressForms[i].fits(p) && acl.Openable(prefix) {
			return true
		}
	}
	return false
}
