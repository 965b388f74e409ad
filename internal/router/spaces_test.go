package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
)

// spaceEvents notes what a copy of workspaces says of losses and revivals.
func spaceEvents(s *Spaces) *[]string {
	var events []string
	s.lost = func(name string) {
		_, exists := s.Check(name)
		events = append(events, fmt.Sprint("lost ", name, " ", exists))
	}
	s.revived = func(name string) {
		era, exists := s.Check(name)
		events = append(events, fmt.Sprint("revived ", name, " ", era, " ", exists))
	}
	return &events
}

func TestSpaces(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	kept := openStore(t)
	s, auto := newSpaces(kept, false), newSpaces(kept, true)
	events := spaceEvents(s)
	check := func(s *Spaces, name string, era uint32, exists bool) {
		t.Helper()
		if e, ok := s.Check(name); e != era || ok != exists {
			t.Errorf("%q: era %d, exists %v", name, e, ok)
		}
	}
	refresh := func() {
		t.Helper()
		if err := errors.Join(s.refresh(ctx), auto.refresh(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	check(s, "w", 0, false)
	check(auto, "w", 0, true)
	if err := s.Ensure(ctx, "w", "o"); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("ensured: %v", err)
	}
	if err := auto.Ensure(ctx, "w", "o"); err != nil {
		t.Errorf("not ensured: %v", err)
	}
	check(s, "w", 0, false)
	refresh()
	check(s, "w", 0, true)
	if s.over([]byte("w"), 0) || s.over([]byte("unknown"), 0) {
		t.Error("what is, or what is not known, is over")
	}
	if _, err := kept.DeleteWorkspace(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	refresh()
	check(s, "w", 0, false)
	check(auto, "w", 0, false) // also where names exist by themselves
	if !s.over([]byte("w"), 0) || s.over([]byte("w"), 1) {
		t.Error("what was sent to a deleted workspace is not over, or what may come is")
	}
	if want := []string{"lost w false"}; !slices.Equal(*events, want) {
		t.Errorf("%q, want %q", *events, want)
	}
	var rest *store.RestError
	if err := auto.Ensure(ctx, "w", "o"); !errors.As(err, &rest) {
		t.Errorf("a name that rests: %v", err)
	}
}

// A deletion and a creation that are learnt together are a loss first; what is
// known does not go back.
func TestSpacesLearnInOrder(t *testing.T) {
	t.Parallel()
	s := newSpaces(openStore(t), false)
	events := spaceEvents(s)
	at := time.UnixMilli(1)
	s.learn(store.Workspace{Name: "w", CreatedAt: at})
	s.learn(store.Workspace{Name: "w", Era: 1, CreatedAt: at})
	s.learn(store.Workspace{Name: "w", CreatedAt: at, DeletedAt: at})
	s.learn(store.Workspace{Name: "w", Era: 1, CreatedAt: at})
	if era, exists := s.Check("w"); era != 1 || !exists {
		t.Errorf("era %d, exists %v", era, exists)
	}
	s.learn(store.Workspace{Name: "w", Era: 1, CreatedAt: at, DeletedAt: at})
	s.learn(store.Workspace{Name: "w", Era: 1, CreatedAt: at})
	if era, exists := s.Check("w"); era != 1 || exists {
		t.Errorf("a deleted workspace: era %d, exists %v", era, exists)
	}
	// One of a later era that is new here: the gateway may have noted absences
	// while the name existed by itself.
	s.learn(store.Workspace{Name: "v", Era: 2, CreatedAt: at})
	if want := []string{"lost w false", "revived w 0 false", "lost w false", "revived v 0 false"}; !slices.Equal(*events, want) {
		t.Errorf("%q, want %q", *events, want)
	}
}

// listedSpaces and listedMembers are stores that only tell of changes.
type (
	spaceStore  = store.Workspaces
	memberStore = store.Members

	listedSpaces struct {
		spaceStore
		list  []store.Workspace
		asked func()
	}
	listedMembers struct {
		memberStore
		list  []store.Membership
		asked func()
	}
)

func (l *listedSpaces) WorkspaceChanges(_ context.Context, cursor store.Cursor, limit int) ([]store.Workspace, store.Cursor, error) {
	l.asked()
	return after(l.list, cursor, limit)
}

func (l *listedMembers) MembershipChanges(_ context.Context, cursor store.Cursor, limit int) ([]store.Membership, store.Cursor, error) {
	l.asked()
	return after(l.list, cursor, limit)
}

func after[T any](all []T, cursor store.Cursor, limit int) ([]T, store.Cursor, error) {
	if int(cursor) > len(all) {
		return nil, cursor, store.ErrCursor
	}
	page := all[cursor:min(int(cursor)+limit, len(all))]
	return page, cursor + store.Cursor(len(page)), nil
}

// Another database, or an older state of it, is taken over as a whole. While it was
// read, no workspace existed, so that all sessions ended, and nobody was put out.
func TestAnotherDatabase(t *testing.T) {
	t.Parallel()
	ctx, at := context.Background(), time.UnixMilli(1)
	for _, auto := range []bool{false, true} {
		none := func() {}
		spaces := &listedSpaces{asked: none, list: []store.Workspace{
			{Name: "kept", Era: 1, CreatedAt: at},
			{Name: "gone", CreatedAt: at},
			{Name: "older", Era: 2, CreatedAt: at},
			{Name: "deleted", CreatedAt: at, DeletedAt: at},
		}}
		members := &listedMembers{asked: none, list: []store.Membership{
			{User: "out", Workspace: "kept", Ruling: store.RuledOut},
			{User: "in", Workspace: "kept", Ruling: store.RuledIn},
			{User: "later", Workspace: "kept", Ruling: store.RuledIn},
		}}
		s := newSpaces(spaces, auto)
		m := newMembers(time.Now, members, s)
		refresh := func() {
			t.Helper()
			if err := errors.Join(s.refresh(ctx), m.refresh(ctx)); err != nil {
				t.Fatal(err)
			}
		}
		refresh()
		events := spaceEvents(s)
		m.lost = func(user, name string) { *events = append(*events, fmt.Sprint("out ", user, " ", name)) }
		spaces.list = []store.Workspace{{Name: "kept", Era: 1, CreatedAt: at}, {Name: "older", Era: 1, CreatedAt: at}}
		members.list = []store.Membership{{User: "out", Workspace: "kept", Ruling: store.RuledOut}, {User: "later", Workspace: "kept", Ruling: store.RuledOut}}
		spaces.asked = func() {
			if era, exists := s.Check("kept"); era != 1 || !exists {
				t.Errorf("meanwhile: era %d, exists %v", era, exists)
			}
			if !m.Barred("out", "kept") {
				t.Error("who was put out is let in meanwhile")
			}
		}
		members.asked = spaces.asked
		refresh()
		slices.Sort(*events)
		want := []string{"lost gone false", "lost older true", "out later kept", "revived older 2 true"}
		if auto { // names that nobody has used exist, and this one was never anything else
			want = []string{"lost older true", "out later kept", "revived deleted 0 false", "revived older 2 true"}
		}
		if !slices.Equal(*events, want) {
			t.Errorf("%q, want %q", *events, want)
		}
		for name, want := range map[string]space{"kept": {1, true}, "gone": {0, auto}, "older": {1, true}, "deleted": {0, auto}} {
			if era, exists := s.Check(name); era != want.era || exists != want.exists {
				t.Errorf("%s: era %d, exists %v", name, era, exists)
			}
		}
		if !m.Barred("out", "kept") || m.InWorkspace("in", "kept") || m.InWorkspace("later", "kept") {
			t.Error("members are not those of the new database")
		}
	}
}

// Asking costs nothing that adds up: nothing is allocated.
func TestSpacesAllocateNothing(t *testing.T) {
	kept := openStore(t)
	s := newSpaces(kept, false)
	s.learn(store.Workspace{Name: "workspace", CreatedAt: time.UnixMilli(1)})
	m := newMembers(time.Now, kept, s)
	m.users.set(store.Membership{User: "u", Workspace: "workspace", Ruling: store.RuledIn})
	name, set := []byte("workspace"), acl.Workspaces("workspace")
	allocs := testing.AllocsPerRun(100, func() {
		if _, exists := s.Check("workspace"); !exists || s.over(name, 0) || m.out("u", name) || !m.InWorkspace("u", "workspace") || !m.InAny("u", set) {
			t.Error("it is not known")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// spaced is a router with workspaces in a store with a clock.
func spaced(t *testing.T) (*world, *sqlite.Store) {
	t.Helper()
	kept := openStore(t)
	w := setup(t, func(o *Options) { o.Members, o.Workspaces, o.Feed = kept, kept, kept })
	if _, _, err := w.r.CreateWorkspace(context.Background(), "w", "test"); err != nil {
		t.Fatal(err)
	}
	return w, kept
}

// What waits for workers, or comes to a shared address, from before a workspace
// was deleted reaches nobody in the next one of the name.
func Test42OldEraReachesNobody(t *testing.T) {
	t.Parallel()
	w, _ := spaced(t)
	sender := w.agent("sender", client(0))
	worker := w.worker("1", client(1))
	for i := range 3 {
		sender.send("tb::w::i", fmt.Sprint("old ", i), "")
	}
	first := worker.message() // its window is full; the others wait in the log
	if string(first.GetPayload()) != "old 0" {
		t.Fatalf("got %q", first.GetPayload())
	}
	w.r.spaces.learn(store.Workspace{Name: "w", Era: 1, CreatedAt: time.UnixMilli(1)})
	listener := w.agent("listener", client(0))
	sender.send("ga::w", "new broadcast", "")
	sender.send("tb::w::i", "new work", "")
	worker.ack(first.GetDeliveryId())
	if m := worker.message(); string(m.GetPayload()) != "new work" {
		t.Errorf("the worker got %q", m.GetPayload())
	}
	if m := listener.message(); string(m.GetPayload()) != "new broadcast" {
		t.Errorf("the listener got %q", m.GetPayload())
	}
}

// So it is with an engine that reads the events of every workspace.
func Test42OldEraOfEvents(t *testing.T) {
	t.Parallel()
	w, _ := spaced(t)
	sender := w.agent("sender", client(0))
	event := func(text string) {
		t.Helper()
		err := sender.sender.Send(&aetherv1.SendMessage{
			TargetTopic: "event::w", Payload: []byte(text), RequestId: text, MessageType: aetherv1.MessageType_MESSAGE_TYPE_EVENT,
		})
		if m := sender.answer(); err != nil || m.GetReceipt() == nil {
			t.Fatalf("%v, %v", err, m)
		}
	}
	event("old")
	w.r.spaces.learn(store.Workspace{Name: "w", Era: 1, CreatedAt: time.UnixMilli(1)})
	event("new")
	if m := w.engine(acl.All()).message(); string(m.GetPayload()) != "new" {
		t.Errorf("the engine got %q", m.GetPayload())
	}
}

// What operators ask for that cannot be is refused before anything happens.
func TestOperatorsAreRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, kept := spaced(t)
	for _, name := range []string{"", "a b", "receiver0", "a::b", "*", "\xff"} {
		if _, _, err := w.r.CreateWorkspace(ctx, name, "test"); err == nil {
			t.Errorf("%q was created", name)
		}
		if err := w.r.RuleMember(ctx, name, "u", store.RuledIn); err == nil {
			t.Errorf("%q has a member", name)
		}
		if err := w.r.RuleMember(ctx, "w", name, store.RuledIn); err == nil && name != "receiver0" {
			t.Errorf("%q is a member", name)
		}
	}
	for what, err := range map[string]error{
		"delete": w.r.DeleteWorkspace(ctx, "nowhere"), "rule": w.r.RuleMember(ctx, "nowhere", "u", store.RuledIn),
	} {
		if !errors.Is(err, ErrNoWorkspace) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.r.MembersIn(ctx, "nowhere", "", 10); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("members: %v", err)
	}
	list, err := kept.Workspaces(ctx)
	if err != nil || len(list) != 1 {
		t.Errorf("there are %v, %v", list, err)
	}
	bare := setup(t)
	if _, err := bare.r.Workspaces(ctx); !errors.Is(err, ErrNotKept) {
		t.Errorf("without a store: %v", err)
	}
}
