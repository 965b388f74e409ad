// Package feed is the part of [store.Feed] that the engines have in common: a
// hub that tells the followers of one process.
package feed

import (
	"slices"
	"sync"

	"github.com/aether-gateway/gateway/internal/store"
)

// Hub tells followers of changes. The zero value is ready; it is safe for
// concurrent use and never waits.
type Hub struct {
	mu        sync.Mutex
	followers map[*follower]struct{}
}

var _ store.Feed = (*Hub)(nil)

// follower is one reader. Its channel holds one value: more would say no more.
type follower struct {
	subjects []store.Subject // empty: all
	changed  chan struct{}
}

func (f *follower) tell() {
	select {
	case f.changed <- struct{}{}:
	default: // it has not even looked at what came before
	}
}

// Follow implements [store.Feed].
func (h *Hub) Follow(subjects ...store.Subject) (changed <-chan struct{}, stop func()) {
	f := &follower{subjects: slices.Clone(subjects), changed: make(chan struct{}, 1)}
	f.tell()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers == nil {
		h.followers = map[*follower]struct{}{}
	}
	h.followers[f] = struct{}{}
	return f.changed, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.followers, f)
	}
}

// Changed tells those who follow one of the subjects. The change is visible by
// now.
func (h *Hub) Changed(subjects ...store.Subject) {
	if len(subjects) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		if len(f.subjects) == 0 || slices.ContainsFunc(f.subjects, func(s store.Subject) bool { return slices.Contains(subjects, s) }) {
			f.tell()
		}
	}
}

// Missed tells everybody: some changes may not have been told of.
func (h *Hub) Missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		f.tell()
	}
}
