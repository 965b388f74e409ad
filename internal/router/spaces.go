package router

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/store"
)

// Spaces knows which workspaces there are. It is a copy of what the store has,
// kept up to date; a question costs no round trip. It is safe for concurrent
// use.
type Spaces struct {
	store store.Workspaces // nil: all workspaces exist
	auto  bool             // a name that nobody has used exists

	// revived is called before a workspace is known to exist that was deleted
	// before, lost when one has gone. Both may take the router's locks.
	revived, lost func(name string)

	learning sync.Mutex // held while something is learnt, around the others

	mu     sync.RWMutex // a leaf: nothing else is locked below it
	known  map[string]space
	cursor store.Cursor
}

// space is what is known of one workspace.
type space struct {
	era    uint32
	exists bool
}

func newSpaces(s store.Workspaces, auto bool) *Spaces {
	none := func(string) {}
	return &Spaces{store: s, auto: auto, revived: none, lost: none, known: map[string]space{}}
}

// Check reports whether a workspace exists, and in which era.
func (s *Spaces) Check(name string) (era uint32, exists bool) {
	if s.store == nil {
		return 0, true
	}
	s.mu.RLock()
	w, known := s.known[name]
	s.mu.RUnlock()
	if !known {
		return 0, s.auto
	}
	return w.era, w.exists
}

// over reports whether what was sent to a workspace in an era is nothing for
// anybody any more. What this gateway has not heard of is not over.
func (s *Spaces) over(name []byte, era uint32) bool {
	if s.store == nil {
		return false
	}
	s.mu.RLock()
	w, known := s.known[string(name)]
	s.mu.RUnlock()
	return known && (era < w.era || era == w.era && !w.exists)
}

// ErrNoWorkspace says that a workspace does not exist and is not created by
// naming it.
var ErrNoWorkspace = errors.New("router: the workspace does not exist")

// Ensure returns nil if a workspace exists, or was created because it was
// named. [ErrNoWorkspace], a [store.RestError], or the store's own error says
// why not.
func (s *Spaces) Ensure(ctx context.Context, name, by string) error {
	if s.store == nil {
		return nil
	}
	s.mu.RLock()
	w := s.known[name]
	s.mu.RUnlock()
	switch {
	case w.exists:
		return nil
	case !s.auto:
		return ErrNoWorkspace
	}
	made, _, err := s.store.CreateWorkspace(ctx, name, by)
	if err != nil {
		return err
	}
	s.learn(made)
	return nil
}

// refresh takes over what has changed in the store.
func (s *Spaces) refresh(ctx context.Context) error {
	if s.store == nil {
		return nil
	}
	for {
		s.mu.RLock()
		cursor := s.cursor
		s.mu.RUnlock()
		changes, next, err := s.store.WorkspaceChanges(ctx, cursor, mirror.PageSize)
		if errors.Is(err, store.ErrCursor) && cursor != 0 {
			return s.startAnew(ctx)
		}
		if err != nil {
			return err
		}
		for _, w := range changes {
			s.learn(w)
		}
		s.mu.Lock()
		s.cursor = next
		s.mu.Unlock()
		if len(changes) < mirror.PageSize {
			return nil
		}
	}
}

// startAnew is for another database, or an older state of it: nothing that it
// does not have exists. What was known stays so until the new copy is complete.
func (s *Spaces) startAnew(ctx context.Context) error {
	all, next, err := mirror.Pages(ctx, 0, s.store.WorkspaceChanges)
	if err != nil {
		return err
	}
	fresh := make(map[string]space, len(all))
	for _, w := range all {
		fresh[w.Name] = space{era: w.Era, exists: w.Exists()}
	}
	s.learning.Lock()
	defer s.learning.Unlock()
	var gone []string
	s.mu.RLock()
	old := s.known // others only read it while it is not learnt
	s.mu.RUnlock()
	for name, was := range old {
		is, known := fresh[name]
		if !known {
			is.exists = s.auto
		}
		if was.exists && is != was {
			gone = append(gone, name)
		}
		if is.exists && is != was {
			s.revived(name)
		}
	}
	for name, is := range fresh {
		if _, known := old[name]; !known && is.exists {
			s.revived(name)
		}
	}
	s.mu.Lock()
	s.known, s.cursor = fresh, next
	s.mu.Unlock()
	for _, name := range gone {
		s.lost(name)
	}
	return nil
}

// learn takes over one workspace. One that was deleted is known to be so before
// it is known to exist anew.
func (s *Spaces) learn(w store.Workspace) {
	s.learning.Lock()
	defer s.learning.Unlock()
	s.mu.Lock()
	old, known := s.known[w.Name]
	if known && (w.Era < old.era || w.Era == old.era && (old.exists == w.Exists() || !old.exists)) {
		s.mu.Unlock()
		return // this gateway has created it, and knows more already
	}
	gone := old.exists && (!w.Exists() || w.Era != old.era)
	if gone || !known && !w.Exists() {
		s.known[w.Name] = space{era: old.era, exists: false}
	}
	s.mu.Unlock()
	if gone {
		s.lost(w.Name)
	}
	if w.Exists() && (known || w.Era > 0) {
		s.revived(w.Name)
	}
	s.mu.Lock()
	s.known[w.Name] = space{era: w.Era, exists: w.Exists()}
	s.mu.Unlock()
}

// stamp returns the workspace whose mail a message is, and its era: that of the
// address, or else the one that the message is stamped with. "" is none.
func (s *Spaces) stamp(to address.Address, workspace string) (era uint32, name string, exists bool) {
	if ws := to.Workspace(); ws != "" {
		workspace = ws
	}
	if workspace == "" {
		return 0, "", true
	}
	era, exists = s.Check(workspace)
	return era, workspace, exists
}

// NoWorkspace says that a workspace does not exist, and
// what to do.
func NoWorkspace(name string) string {
	return fmt.Sprintf("workspace %q does not exist; an operator creates it with: gateway workspace create %s", name, name)
}

// forgetWorkspace forgets which addresses of a workspace were noted as absent:
// their notes went with the workspace.
func (r *Router) forgetWorkspace(name string) {
	for _, p := range r.parts {
		p.mu.Lock()
		for _, a := range p.absent.known {
			if to, err := address.Parse(a.address); err == nil && to.Workspace() == name {
				p.forgetAbsence(a)
			}
		}
		p.mu.Unlock()
	}
}
