package wiring

import "time"

// OnLag is what happens to a reader of a ring that falls off its tail.
type OnLag string

// The values; the first is the default.
const (
	DropOldest OnLag = "drop_oldest"
	Disconnect OnLag = "disconnect"
)

// OnFull is what happens to a message for a group of workers whose queue is
// full.
type OnFull string

// The values; the first is the default.
const (
	Block      OnFull = "block"
	DropNewest OnFull = "drop_newest"
)

// AckMode is whose acknowledgements decide on a tracked message.
type AckMode string

// The values; the first is the default.
const (
	First AckMode = "first"
	All   AckMode = "all"
)

// Tracking is whether messages of a topic are tracked by its AckMode if the
// sender asks for tracking and names no mode.
type Tracking string

// The values; the first is the default.
const (
	Disabled Tracking = "disabled"
	Auto     Tracking = "auto"
)

// Ack is how the receipts of a topic's tracked messages come about.
type Ack struct {
	Mode     AckMode
	Tracking Tracking
	// MaxInFlight is how many tracked messages of one sender may wait for their
	// outcome.
	MaxInFlight int
	// Timeout is how long an outcome may take that the sender gives no time.
	Timeout time.Duration
}

// Settings are what is declared of a topic. Each field is set; see [Defaults].
type Settings struct {
	// Queue is how many messages wait for a group of workers, Ring how many are
	// kept for readers that share a topic, Bytes what either may take at most.
	Queue, Ring int
	Bytes       int64
	OnLag       OnLag
	OnFull      OnFull
	Ack         Ack
}

// The defaults of a declared topic, and the bounds of what may be declared.
const (
	DefaultMessages    = 128
	DefaultBytes       = 4 << 20
	DefaultMaxInFlight = 1024
	DefaultTimeout     = 30 * time.Second

	MaxMessages = 1 << 20
	MinBytes    = 64 << 10
	MaxBytes    = 1 << 30
	MaxInFlight = 1 << 20
	MaxTimeout  = time.Hour
)

// Defaults are the settings of a declared topic that says nothing more.
func Defaults() Settings {
	return Settings{
		Queue: DefaultMessages, Ring: DefaultMessages, Bytes: DefaultBytes, OnLag: DropOldest, OnFull: Block,
		Ack: Ack{Mode: First, Tracking: Disabled, MaxInFlight: DefaultMaxInFlight, Timeout: DefaultTimeout},
	}
}
