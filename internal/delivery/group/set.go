package group

import (
	"slices"
	"sync"
)

// Defaults of [Options].
const (
	DefaultCapacity    = 128
	DefaultBytes       = 4 << 20
	DefaultMaxAttempts = 3
)

// Options bounds the groups of a set. The zero value has the defaults.
type Options[T any] struct {
	// Capacity and Bytes bound what waits in each group: past them nothing is
	// admitted. A single larger message passes an empty queue; what comes back
	// from a worker has its place. Defaults 128 and 4 MiB.
	Capacity, Bytes int
	// MaxAttempts is how often a message is handed out at most. Default 3.
	MaxAttempts int
	// Dead, if set, is told of messages that were handed out so often in vain. It
	// is called with the set's lock held and must not call the set.
	Dead func(g *Group[T], item T, attempts int)
}

// Set is the groups of one address. All methods, and those of its groups and
// workers, are safe for concurrent use.
type Set[T any] struct {
	opts Options[T]

	mu     sync.Mutex
	groups []*Group[T]
}

// NewSet returns a set without groups.
func NewSet[T any](o Options[T]) *Set[T] {
	if o.Capacity <= 0 {
		o.Capacity = DefaultCapacity
	}
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = DefaultMaxAttempts
	}
	return &Set[T]{opts: o}
}

// Group returns the group of a name, which begins empty.
func (s *Set[T]) Group(name string) *Group[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if g.name == name {
			return g
		}
	}
	g := &Group[T]{set: s, name: name}
	s.groups = append(s.groups, g)
	return g
}

// Remove forgets a group, and what waits in it.
func (s *Set[T]) Remove(g *Group[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = slices.DeleteFunc(s.groups, func(other *Group[T]) bool { return other == g })
}

// Admit queues a message in all groups, or in none: then it is to be offered
// again when there is room. It reports which. Without groups it is admitted, and
// nobody gets it.
func (s *Set[T]) Admit(item T, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if !g.room(size) {
			return false
		}
	}
	for _, g := range s.groups {
		g.waiting.pushBack(work[T]{item: item, size: size})
		g.bytes += size
	}
	return true
}

// Room reports whether all groups would admit a message.
func (s *Set[T]) Room(size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.groups, func(g *Group[T]) bool { return !g.room(size) })
}

// Groups calls f for each group, with how many messages more it would admit. f
// must not call the set.
func (s *Set[T]) Groups(f func(name string, free int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		f(g.name, max(0, s.opts.Capacity-g.waiting.len()))
	}
}
