package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/subject"
)

// Book is a gateway's copy of the rules in the store. It is safe for concurrent
// use. Until it has been read once, everything is denied.
type Book struct {
	store store.Rules // nil: there are no rules
	limit int

	set atomic.Pointer[Set]

	mu      sync.Mutex // held by the one that reads the store
	version int64
	read    bool

	trouble atomic.Pointer[error] // of the last refresh
}

var _ acl.Rules = (*Book)(nil)

// NewBook returns a book of the rules in a store, not read yet. Nil is a store
// without rules, to which none can be added. limit is how many there may be; 0
// is [DefaultLimit].
func NewBook(s store.Rules, limit int) *Book {
	if limit <= 0 {
		limit = DefaultLimit
	}
	b := &Book{store: s, limit: limit}
	if s == nil {
		b.set.Store(&Set{})
	}
	return b
}

// Set returns the rules as they are known now, nil before they have been read.
func (b *Book) Set() *Set { return b.set.Load() }

// Effect implements [acl.Rules].
func (b *Book) Effect(p *acl.Principal, action acl.Action, a address.Address) acl.Effect {
	s := b.set.Load()
	if s == nil {
		return acl.Deny
	}
	return s.Effect(p, action, a)
}

// EffectOn says what the rules say of a principal, by its identity string, doing
// something with what is no address of messages, such as a key.
func (b *Book) EffectOn(principal string, action acl.Action, target string) acl.Effect {
	s := b.set.Load()
	if s == nil {
		return acl.Deny
	}
	return s.EffectOn(principal, action, target)
}

// Allows reports whether the rules let a principal do something with an address
// that it could not do by itself. Denied is what any rule denies, and what none
// allows.
func (b *Book) Allows(p *acl.Principal, action acl.Action, a address.Address) bool {
	return acl.Permit(p, action, a, acl.Decision{}, b).Allowed
}

// MightAllow reports whether a rule allows a principal something with any of the
// addresses that a pattern takes. Whether it may at one of them, [Book.Allows]
// says.
func (b *Book) MightAllow(p *acl.Principal, action acl.Action, addresses *subject.Pattern) bool {
	s := b.set.Load()
	if s == nil {
		return false
	}
	name := p.Name()
	for _, r := range s.rules {
		if r.effect == acl.Allow && r.action == action && r.principal.Match(name) && r.address.Overlaps(addresses) {
			return true
		}
	}
	return false
}

// Refresh takes over what has changed in the store. If it fails, what was known
// before stays in force. A denying rule that cannot be understood, such as one
// of a newer gateway, makes it fail: it must not be left out.
func (b *Book) Refresh(ctx context.Context) error { return b.refresh(ctx, false) }

// Reload is Refresh that believes no version number: for a store that may be
// another one than before.
func (b *Book) Reload(ctx context.Context) error { return b.refresh(ctx, true) }

// Trouble is why the last refresh failed, nil if it did not.
func (b *Book) Trouble() error {
	if err := b.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

func (b *Book) refresh(ctx context.Context, all bool) error {
	if b.store == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.load(ctx, all)
	b.trouble.Store(&err)
	return err
}

// load reads the store if it must. The lock is held.
func (b *Book) load(ctx context.Context, all bool) error {
	if b.read && !all {
		version, err := b.store.RulesVersion(ctx)
		if err != nil || version == b.version {
			return err
		}
	}
	stored, version, err := b.store.Rules(ctx)
	if err != nil {
		return err
	}
	rules, err := compileAll(stored)
	if err != nil {
		return err
	}
	b.set.Store(NewSet(rules))
	b.version, b.read = version, true
	return nil
}

// compileAll compiles stored rules. One that allows and cannot be understood
// allows nothing.
func compileAll(stored []store.Rule) ([]*Rule, error) {
	rules := make([]*Rule, 0, len(stored))
	for _, r := range stored {
		c, err := Compile(r)
		switch {
		case err == nil:
			rules = append(rules, c)
		case r.Effect != acl.Allow.String():
			return nil, fmt.Errorf("policy: rule %d cannot be understood, and what it denies must not be allowed: %w", r.ID, err)
		}
	}
	return rules, nil
}

// ErrNoStore is returned for a change where there is no store of rules.
var ErrNoStore = errors.New("policy: this gateway keeps no rules")

// Added is the outcome of adding a rule.
type Added struct {
	Rule store.Rule
	// New is false if there was a rule that says the same.
	New      bool
	Warnings []Warning
}

// Add checks a rule, stores it, and takes it over on this gateway; the others
// follow within two seconds. ID and CreatedAt of r are ignored. The error is an
// [*InvalidError] for a rule that is refused, [store.ErrFull] if there are too
// many, or the store's; nothing was done then, unless the answer of the store
// was lost.
func (b *Book) Add(ctx context.Context, r store.Rule) (Added, error) {
	if b.store == nil {
		return Added{}, ErrNoStore
	}
	if _, err := Compile(r); err != nil {
		return Added{}, err
	}
	stored, added, err := b.store.AddRule(ctx, r, b.limit)
	if err != nil {
		return Added{}, err
	}
	compiled, err := Compile(stored)
	if err != nil {
		return Added{}, err
	}
	// It is stored: that this gateway cannot read it back now is made up for by
	// the next refresh.
	var others []*Rule
	if err := b.Refresh(ctx); err == nil {
		others = b.Set().Rules()
	}
	return Added{Rule: stored, New: added, Warnings: Warnings(compiled, others)}, nil
}

// Remove removes a rule and takes that over on this gateway; the others follow
// within two seconds. found is false if there was no such rule.
func (b *Book) Remove(ctx context.Context, id int64) (rule store.Rule, found bool, err error) {
	if b.store == nil {
		return store.Rule{}, false, ErrNoStore
	}
	rule, found, err = b.store.RemoveRule(ctx, id)
	if err == nil && found {
		_ = b.Refresh(ctx) // else the next refresh does it
	}
	return rule, found, err
}

// List returns up to limit rules with ids above after, by id, as the store has
// them now.
func (b *Book) List(ctx context.Context, after int64, limit int) ([]store.Rule, error) {
	if b.store == nil {
		return nil, nil
	}
	all, _, err := b.store.Rules(ctx)
	if err != nil {
		return nil, err
	}
	var list []store.Rule
	for _, r := range all {
		if r.ID > after && len(list) < limit {
			list = append(list, r)
		}
	}
	return list, nil
}
