package streamstest

import (
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// patience is how long a case waits for what must come. It bounds a failing
// test and says nothing about speed.
const patience = 60 * time.Second

// Harness is what a driver's tests give to [Run].
type Harness struct {
	// New returns a log with so many empty partitions that no other case
	// uses. What it starts is ended by t.Cleanup.
	New func(t *testing.T, partitions int) Log

	// KillProcess, for drivers that store in the process itself, starts a
	// child process that runs [Feed] on a log, and hands it to [RunFeeder],
	// which kills it; it returns RunFeeder's result and the log. Nil: storing
	// does not depend on the process.
	KillProcess func(t *testing.T, atLeast int) (confirmed uint64, log Log)

	// Recovery is how long after the end of a fault storing and reading may
	// take to go on. Default 30 s.
	Recovery time.Duration
}

// Log is the log of one case.
type Log struct {
	// Open returns a new driver on the log each time; the second one sees
	// what the first has stored. The suite closes it.
	Open func(t *testing.T) streams.Driver
	Faults
}

// Faults are what can be done to the broker of a log. A nil function says that
// the driver cannot have that fault; the cases that need it are not run.
type Faults struct {
	// Kill ends the broker without warning. Restart starts it on the same
	// data and returns when it can be used.
	Kill, Restart func(t *testing.T)
	// Stop halts the broker with its connections open; Cont lets it go on.
	Stop, Cont func(t *testing.T)
	// Blackhole swallows all that goes to and comes from the broker, of old
	// and new connections, without closing them.
	Blackhole func(t *testing.T, on bool)
}

type testCase struct {
	name string
	run  func(t *testing.T, h Harness)
}

// Run runs the suite. Cases run one after the other: faults hit whoever uses
// the broker.
func Run(t *testing.T, h Harness) {
	if h.Recovery == 0 {
		h.Recovery = 30 * time.Second
	}
	for _, group := range [][]testCase{driverCases, readCases, flowCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { c.run(t, h) })
		}
	}
	runFaults(t, h)
	if h.KillProcess != nil {
		t.Run("ProcessKilled", func(t *testing.T) { processKilled(t, h) })
	}
}
