package acl

import (
	"slices"
	"strings"
)

// WorkspaceSet is the set of workspaces that a credential covers. It is
// immutable and safe for concurrent use; the zero value is the empty set.
type WorkspaceSet struct {
	all   bool
	names []string // sorted, without repetition
}

// All is the set of all workspaces, also of ones that appear later.
func All() WorkspaceSet { return WorkspaceSet{all: true} }

// Workspaces is the set of the named workspaces. It takes the names as they
// are, byte for byte: "*" is a name that no workspace has, not a wildcard. Empty
// names are left out.
func Workspaces(names ...string) WorkspaceSet {
	own := slices.Clone(names)
	slices.Sort(own)
	own = slices.Compact(own)
	if len(own) > 0 && own[0] == "" {
		own = own[1:]
	}
	return WorkspaceSet{names: own}
}

// Covers reports whether ws is in the set. "" never is. It allocates nothing.
func (s WorkspaceSet) Covers(ws string) bool {
	if ws == "" {
		return false
	}
	if s.all {
		return true
	}
	_, found := slices.BinarySearch(s.names, ws)
	return found
}

// IsAll reports whether the set is All.
func (s WorkspaceSet) IsAll() bool { return s.all }

// IsEmpty reports whether the set covers nothing.
func (s WorkspaceSet) IsEmpty() bool { return !s.all && len(s.names) == 0 }

// Names lists the workspaces of the set, sorted. It is nil for All, which has
// no list. The caller owns the slice.
func (s WorkspaceSet) Names() []string { return slices.Clone(s.names) }

// Only is the one workspace of a set that has exactly one.
func (s WorkspaceSet) Only() (ws string, ok bool) {
	if s.all || len(s.names) != 1 {
		return "", false
	}
	return s.names[0], true
}

// Overlaps reports whether some workspace is in both sets. It allocates
// nothing.
func (s WorkspaceSet) Overlaps(other WorkspaceSet) bool {
	switch {
	case s.all:
		return !other.IsEmpty()
	case other.all:
		return !s.IsEmpty()
	}
	for _, ws := range s.names {
		if other.Covers(ws) {
			return true
		}
	}
	return false
}

// String is for logs: "*", or the names separated by commas.
func (s WorkspaceSet) String() string {
	if s.all {
		return "*"
	}
	return strings.Join(s.names, ",")
}
