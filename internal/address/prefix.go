package address

// Prefix is the kind of an address: its first segment. The zero value is no
// prefix and belongs to the zero Address only.
type Prefix uint8

// The thirteen prefixes. The comment gives the form of the address.
const (
	PrefixAgent         Prefix = iota + 1 // ag::{workspace}::{impl}::{spec}
	PrefixUniqueTask                      // tu::{workspace}::{impl}::{unique_spec}
	PrefixTask                            // ta::{workspace}::{impl}::{task_id}
	PrefixTaskBroadcast                   // tb::{workspace}::{impl}
	PrefixUser                            // us::{user_id}::{window_id}
	PrefixUserWorkspace                   // uw::{user_id}::{workspace}
	PrefixAllAgents                       // ga::{workspace}
	PrefixAllUsers                        // gu::{workspace}
	PrefixProgress                        // pg::{workspace}
	PrefixEvent                           // event::{workspace}
	PrefixMetric                          // metric::*, metric::{workspace}, metric::receiver0
	PrefixService                         // sv::{impl}::{spec}
	PrefixBridge                          // br::{impl}::{spec}

	prefixEnd
)

// noWorkspace marks a prefix whose addresses name no workspace.
const noWorkspace = -1

// shape is what the parser and the accessors know of a prefix.
type shape struct {
	name      string
	segments  int // after the prefix
	workspace int // index of the workspace segment, or noWorkspace
	mode      Mode
	format    string
}

var shapes = [prefixEnd]shape{
	0:                   {workspace: noWorkspace},
	PrefixAgent:         {"ag", 3, 0, Exclusive, "ag::{workspace}::{implementation}::{specifier}"},
	PrefixUniqueTask:    {"tu", 3, 0, Exclusive, "tu::{workspace}::{implementation}::{specifier}"},
	PrefixTask:          {"ta", 3, 0, Exclusive, "ta::{workspace}::{implementation}::{task_id}"},
	PrefixTaskBroadcast: {"tb", 2, 0, Workers, "tb::{workspace}::{implementation}"},
	PrefixUser:          {"us", 2, noWorkspace, Exclusive, "us::{user}::{window}"},
	PrefixUserWorkspace: {"uw", 2, 1, Shared, "uw::{user}::{workspace}"},
	PrefixAllAgents:     {"ga", 1, 0, Shared, "ga::{workspace}"},
	PrefixAllUsers:      {"gu", 1, 0, Shared, "gu::{workspace}"},
	PrefixProgress:      {"pg", 1, 0, Shared, "pg::{workspace}"},
	PrefixEvent:         {"event", 1, 0, Exclusive, "event::{workspace}"},
	PrefixMetric:        {"metric", 1, 0, Shared, "metric::{workspace}"},
	PrefixService:       {"sv", 2, noWorkspace, Exclusive, "sv::{implementation}::{specifier}"},
	PrefixBridge:        {"br", 2, noWorkspace, Exclusive, "br::{implementation}::{specifier}"},
}

// Prefixes lists the thirteen prefixes in the order of their declaration. The
// caller owns the slice.
func Prefixes() []Prefix {
	all := make([]Prefix, 0, prefixEnd-1)
	for p := PrefixAgent; p < prefixEnd; p++ {
		all = append(all, p)
	}
	return all
}

// String is the prefix as it stands in an address, "ag" for example, and "" for
// the zero value and for values that are no prefix.
func (p Prefix) String() string { return p.shape().name }

// Mode says how messages to addresses of this prefix reach their subscribers.
func (p Prefix) Mode() Mode { return p.shape().mode }

// Format is how an address of this prefix is written, with what stands for each
// segment in braces: "ga::{workspace}".
func (p Prefix) Format() string { return p.shape().format }

func (p Prefix) shape() *shape {
	if p >= prefixEnd {
		p = 0
	}
	return &shapes[p]
}

// parsePrefix finds the prefix of that exact spelling, or 0.
func parsePrefix(s string) Prefix {
	switch s {
	case "ag":
		return PrefixAgent
	case "tu":
		return PrefixUniqueTask
	case "ta":
		return PrefixTask
	case "tb":
		return PrefixTaskBroadcast
	case "us":
		return PrefixUser
	case "uw":
		return PrefixUserWorkspace
	case "ga":
		return PrefixAllAgents
	case "gu":
		return PrefixAllUsers
	case "pg":
		return PrefixProgress
	case "event":
		return PrefixEvent
	case "metric":
		return PrefixMetric
	case "sv":
		return PrefixService
	case "br":
		return PrefixBridge
	}
	return 0
}

// Mode is how messages to an address reach its subscribers. The zero value
// belongs to the zero Address only.
type Mode uint8

const (
	// Exclusive addresses have one subscriber, whose position is tracked: at
	// least once, kept while it is away (ag, tu, ta, us, sv, br, event).
	Exclusive Mode = iota + 1
	// Shared addresses reach everybody who listens now; nothing is tracked or
	// replayed (ga, gu, uw, pg, metric).
	Shared
	// Workers compete: each message goes to exactly one of them (tb).
	Workers
)

// String names the mode for logs and tests.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Workers:
		return "workers"
	}
	return "none"
}
