package wiring

import "fmt"

// Code names the rule that a declaration breaks.
type Code string

// The codes.
const (
	NameEmpty             Code = "name_empty"
	UnknownField          Code = "unknown_field"
	WrongType             Code = "wrong_type"
	UnknownValue          Code = "unknown_value"
	QueueCapacityZero     Code = "balanced_capacity_zero"
	RingCapacityZero      Code = "broadcast_capacity_zero"
	MaxInFlightZero       Code = "max_in_flight_zero"
	TimeoutZero           Code = "timeout_zero"
	AllRequiresBroadcast  Code = "ack_all_requires_broadcast_only"
	AllRequiresDisconnect Code = "ack_all_requires_disconnect"
	AllRequiresTracking   Code = "ack_all_requires_auto"
	OutOfRange            Code = "out_of_range"
	NotCapable            Code = "not_capable"
	Missing               Code = "missing"
	Twice                 Code = "declared_twice"
	Cycle                 Code = "cycle"
	TooMuch               Code = "too_much"
	NotPermitted          Code = "not_permitted"
)

// Fault is one thing that is wrong with what was declared.
type Fault struct {
	// Path is the option, below the whole of topics or routes: "[2].ack.mode".
	Path string
	Code Code
	// Text holds the value, what is wrong with it, and what is accepted.
	Text string
}

func (f Fault) String() string { return f.Path + ": " + f.Text }

func faultf(path string, code Code, format string, args ...any) Fault {
	return Fault{Path: path, Code: code, Text: fmt.Sprintf(format, args...)}
}
