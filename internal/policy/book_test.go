package policy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
)

// memory is a store of rules.
type memory struct {
	mu      sync.Mutex
	rules   []store.Rule
	version int64
	reads   int
	err     error
}

func (m *memory) AddRule(_ context.Context, r store.Rule, limit int) (store.Rule, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, old := range m.rules {
		if old.Same(r) {
			return old, false, m.err
		}
	}
	switch {
	case m.err != nil:
		return store.Rule{}, false, m.err
	case len(m.rules) >= limit:
		return store.Rule{}, false, store.ErrFull
	}
	m.version++
	r.ID, r.CreatedAt = m.version, time.Unix(1, 0)
	m.rules = append(m.rules, r)
	return r, true, nil
}

func (m *memory) RemoveRule(_ context.Context, id int64) (store.Rule, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.rules {
		if r.ID == id && m.err == nil {
			m.rules = append(m.rules[:i:i], m.rules[i+1:]...)
			m.version++
			return r, true, nil
		}
	}
	return store.Rule{}, false, m.err
}

func (m *memory) Rules(context.Context) ([]store.Rule, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	return append([]store.Rule(nil), m.rules...), m.version, m.err
}

func (m *memory) RulesVersion(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version, m.err
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func TestBookFailsClosed(t *testing.T) {
	t.Parallel()
	m := &memory{err: errors.New("away")}
	b := NewBook(m, 0)
	bridge, to := principalOf(t, testSenders[10]), parse(t, "ga::own")
	denied := func() bool { return !acl.DecideWith(bridge, to, nil, b).Allowed }
	if !denied() || b.Set() != nil {
		t.Error("rules that are not known yet deny nothing")
	}
	if err := b.Refresh(context.Background()); err == nil || !denied() {
		t.Error("rules that could not be read deny nothing")
	}
	m.fail(nil)
	if err := b.Refresh(context.Background()); err != nil || denied() {
		t.Errorf("no rules deny something: %v", err)
	}
	if NewBook(nil, 0).Set() == nil || NewBook(nil, 0).Refresh(context.Background()) != nil {
		t.Error("a gateway without rules does not know that")
	}
}

func TestBookFollows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := &memory{}
	here, there := NewBook(m, 0), NewBook(m, 0)
	agent, to := principalOf(t, testSenders[0]), parse(t, "ga::own")
	for _, b := range []*Book{here, there} {
		if err := b.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(what string, b *Book, want bool) {
		t.Helper()
		if got := acl.DecideWith(agent, to, nil, b).Allowed; got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	added, err := here.Add(ctx, rule("deny", "ag::own::*", "send", "ga::own", "strict"))
	if err != nil || !added.New || len(added.Warnings) != 2 {
		t.Fatalf("%+v, %v", added, err)
	}
	wants("a strict rule, which reaches nobody", here, true)
	added, err = here.Add(ctx, rule("deny", "ag::own::*", "send", "ga::own", "subtree"))
	if err != nil || !added.New || len(added.Warnings) != 0 {
		t.Fatalf("%+v, %v", added, err)
	}
	wants("where it was added", here, false)
	wants("elsewhere, before the notice", there, true)
	if err := there.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	wants("elsewhere", there, false)
	again, err := there.Add(ctx, rule("deny", "ag::own::*", "send", "ga::own", "subtree"))
	if err != nil || again.New || again.Rule.ID != added.Rule.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	// While the store is away what is known stays in force.
	m.fail(errors.New("away"))
	if err := there.Refresh(ctx); err == nil {
		t.Error("a store that is away was read")
	}
	wants("the store is away", there, false)
	if _, err := there.Add(ctx, rule("allow", "ag::own::*", "send", "br::*", "subtree")); err == nil {
		t.Error("a rule was added to a store that is away")
	}
	m.fail(nil)
	if r, found, err := there.Remove(ctx, added.Rule.ID); !found || err != nil || !r.Same(added.Rule) {
		t.Errorf("%+v, %v, %v", r, found, err)
	}
	wants("where it was removed", there, true)
	if _, found, err := there.Remove(ctx, added.Rule.ID); found || err != nil {
		t.Errorf("removed again: %v, %v", found, err)
	}
	if err := here.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	wants("where it was added", here, true)
}

func TestBookReadsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := &memory{}
	b := NewBook(m, 0)
	for range 5 {
		if err := b.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if m.reads != 1 {
		t.Errorf("%d reads of rules that nobody changed", m.reads)
	}
	// Another database, of the same version.
	m.rules = []store.Rule{rule("deny", "*::*", "send", "*::*", "subtree")}
	if err := b.Reload(ctx); err != nil || len(b.Set().Rules()) != 1 {
		t.Errorf("%v, %v", b.Set().Rules(), err)
	}
}

// What cannot be understood is not allowed; what denies and cannot be
// understood is not left out.
func TestBookWithStrangeRules(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := &memory{}
	b := NewBook(m, 0)
	if _, err := b.Add(ctx, rule("deny", "ag::own::*", "send", "ga::own", "subtree")); err != nil {
		t.Fatal(err)
	}
	m.rules = append(m.rules, rule("allow", "*::*", "fly", "*::*", "subtree"))
	m.version++
	if err := b.Refresh(ctx); err != nil || len(b.Set().Rules()) != 1 {
		t.Errorf("%d rules, %v", len(b.Set().Rules()), err)
	}
	m.rules = append(m.rules[1:], rule("deny", "*::*", "send", "*::*", "of tomorrow"))
	m.version++
	if err := b.Refresh(ctx); err == nil || len(b.Set().Rules()) != 1 || !errors.Is(err, b.Trouble()) {
		t.Errorf("%d rules, %v, %v", len(b.Set().Rules()), err, b.Trouble())
	}
	m.rules = m.rules[:1]
	if err := b.Refresh(ctx); err != nil || b.Trouble() != nil {
		t.Errorf("%v, %v", err, b.Trouble())
	}
}

func TestBookRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := &memory{}
	b := NewBook(m, 1)
	var bad *InvalidError
	if _, err := b.Add(ctx, rule("deny", "ag::own::::", "send", "ga::own", "strict")); !errors.As(err, &bad) || len(m.rules) != 0 {
		t.Errorf("%v, %v", err, m.rules)
	}
	if _, err := b.Add(ctx, rule("deny", "ag::own::i::s", "send", "ga::own", "strict")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(ctx, rule("deny", "ag::own::i::t", "send", "ga::own", "strict")); !errors.Is(err, store.ErrFull) {
		t.Errorf("%v", err)
	}
	none := NewBook(nil, 0)
	if _, err := none.Add(ctx, rule("deny", "ag::own::i::s", "send", "ga::own", "strict")); !errors.Is(err, ErrNoStore) {
		t.Errorf("%v", err)
	}
	if _, _, err := none.Remove(ctx, 1); !errors.Is(err, ErrNoStore) {
		t.Errorf("%v", err)
	}
	if list, err := none.List(ctx, 0, 10); list != nil || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}

func TestBookLists(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := NewBook(&memory{}, 0)
	for _, name := range strings.Fields("a b c d e") {
		if _, err := b.Add(ctx, rule("deny", "wfe::"+name, "send", "ga::own", "strict")); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for after := int64(0); ; {
		page, err := b.List(ctx, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			got, after = append(got, r.Principal), r.ID
		}
		if len(page) < 2 {
			break
		}
	}
	if strings.Join(got, " ") != "wfe::a wfe::b wfe::c wfe::d wfe::e" {
		t.Errorf("%v", got)
	}
}

func TestBookAllows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := NewBook(&memory{}, 0)
	agent, to := principalOf(t, testSenders[0]), parse(t, "tu::own::job::1")
	if err := b.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	for _, action := range acl.Actions() {
		if b.Allows(agent, action, to) {
			t.Errorf("%s without a rule", action)
		}
		if _, err := b.Add(ctx, rule("allow", "ag::own::*", action.String(), "tu::own::*", "subtree")); err != nil {
			t.Fatal(err)
		}
		if !b.Allows(agent, action, to) {
			t.Errorf("%s is not allowed", action)
		}
		if _, err := b.Add(ctx, rule("deny", "ag::own::*", action.String(), "tu::own::job::1", "subtree")); err != nil {
			t.Fatal(err)
		}
		if b.Allows(agent, action, to) {
			t.Errorf("%s is allowed and denied", action)
		}
	}
}
