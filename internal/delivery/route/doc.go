// Package route is a queue that is fair to those who send into it: one
// first-in, first-out bucket for each source principal, drained by deficit
// round-robin over bytes. A principal that floods delays the others by one round
// at most.
//
// A route is bounded in bytes as a whole. What does not fit pushes out the
// oldest message of the route; how much the reader has lost is counted for it.
//
// The package knows neither filters nor frames: who pushes has matched before.
package route
