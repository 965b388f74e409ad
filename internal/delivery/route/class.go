package route

import "bytes"

// Class is what kind of principal one is: a label that takes few values,
// whoever sends.
type Class uint8

// The classes.
const (
	System Class = iota
	User
	Agent

	Classes
)

var classNames = [Classes]string{System: "system", User: "user", Agent: "agent"}

// String is the class as metrics name it.
func (c Class) String() string {
	if c < Classes {
		return classNames[c]
	}
	return ""
}

var (
	agents  = [][]byte{[]byte("agent."), []byte("agent:"), []byte("ag::"), []byte("ta::"), []byte("tu::")}
	systems = [][]byte{[]byte("sv::"), []byte("br::"), []byte("event::"), []byte("metric::")}
)

// ClassOf returns the class of a principal; none is the system. Tasks count as
// agents, services and bridges as the system.
func ClassOf(principal []byte) Class {
	if len(principal) == 0 {
		return System
	}
	for _, prefix := range agents {
		if bytes.HasPrefix(principal, prefix) {
			return Agent
		}
	}
	for _, prefix := range systems {
		if bytes.HasPrefix(principal, prefix) {
			return System
		}
	}
	return User
}

// Scope says whose messages a route takes. The zero value takes all.
type Scope struct {
	// Principal, if not nil, is the only one; empty is the system.
	Principal []byte
	// AndSystem takes those of the system, too.
	AndSystem bool
}

func (s Scope) takes(principal []byte) bool {
	return s.Principal == nil || bytes.Equal(s.Principal, principal) || s.AndSystem && len(principal) == 0
}
