// Package check judges what clients of a gateway have seen while things broke.
//
// A [History] is what senders and receivers noted: each send and its answer,
// each delivery, what was done with it, sessions, gateways that came and went.
// [Judge] compares it with what the gateway promises and returns counts and
// [Violation] values. It is pure: the same history has the same result, and it
// knows nothing of how the history was made.
//
// Only tests import this package.
package check
