package store

import (
	"context"
	"time"
)

// Rule is a policy rule, as texts: what they mean, and whether they mean
// anything, is package policy's.
type Rule struct {
	// ID names the rule. Later rules have higher ones.
	ID int64
	// Effect is "allow" or "deny".
	Effect string
	// Principal and Address are patterns of the Grammar over identity strings
	// and addresses.
	Principal, Action, Address, Grammar string
	// CreatedBy is who added the rule, Note why. They do not count when two
	// rules are compared.
	CreatedBy, Note string
	CreatedAt       time.Time
}

// Same reports whether two rules say the same.
func (r Rule) Same(other Rule) bool {
	return r.Effect == other.Effect && r.Principal == other.Principal && r.Action == other.Action &&
		r.Address == other.Address && r.Grammar == other.Grammar
}

// Rules keeps policy rules. Implementations are safe for concurrent use, also
// by several gateways; a method that returned nil has made its change durable.
//
// Each change makes a new version of the whole. [ErrText] refuses a text.
type Rules interface {
	// AddRule stores a rule and returns it with its id and time; ID and
	// CreatedAt of r are ignored. If there is one that says the same, that one
	// is returned, nothing changes, and added is false. [ErrEffect] refuses an
	// effect, and [ErrFull] a rule beyond limit ones.
	AddRule(ctx context.Context, r Rule, limit int) (rule Rule, added bool, err error)
	// RemoveRule removes a rule and returns it; removed is false if there was
	// none.
	RemoveRule(ctx context.Context, id int64) (rule Rule, removed bool, err error)
	// Rules returns all rules, by id, and their version. It shows at least what
	// that version has; what came meanwhile has another one.
	Rules(ctx context.Context) ([]Rule, int64, error)
	// RulesVersion returns the version. It is another one after each change;
	// 0 is the one of no rules ever.
	RulesVersion(ctx context.Context) (int64, error)
}
