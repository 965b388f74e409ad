package limits

import "time"

// Rate is how much may be sent per second; 0 is no limit. Twice as much may be
// saved up and sent at once.
type Rate struct {
	Messages, Bytes int64
}

func (r Rate) none() bool { return r.Messages <= 0 && r.Bytes <= 0 }

// of returns the rate of one measure.
func (r Rate) of(u Unit) float64 {
	if u == Messages {
		return float64(max(r.Messages, 0))
	}
	return float64(max(r.Bytes, 0))
}

// burstSeconds is how much can be saved up.
const burstSeconds = 2

// Scope is whose limit it is.
type Scope uint8

// The scopes, in the order in which they are asked: who is over its own limit
// takes nothing from those with whom it shares another.
const (
	// Identity is one identity string, wherever it is connected.
	Identity Scope = iota
	// Source is all that one credential, or one user, lets in.
	Source
	// Workspace is everybody in a workspace.
	Workspace

	scopes
)

var scopeNames = [scopes]string{"identity", "credential", "workspace"}

// String is the word for the scope in errors and metrics.
func (s Scope) String() string { return scopeNames[s] }

// Unit is what is counted.
type Unit uint8

// The units.
const (
	Messages Unit = iota
	Bytes

	units
)

// String is the word for the unit.
func (u Unit) String() string {
	if u == Messages {
		return "messages"
	}
	return "bytes"
}

// Verdict is the answer to a send. The zero value lets it pass.
type Verdict struct {
	Refused bool
	// Scope and Unit are what stands against it, Limit its rate per second.
	Scope Scope
	Unit  Unit
	Limit float64
	// After is when a repeat may pass.
	After time.Duration
}
