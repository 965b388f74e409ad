// Package streamstest shows that a log driver keeps the promises of package
// streams.
//
// [Run] is the conformance suite that every driver passes; a driver's tests
// give it a [Harness]. [Memory] is a driver without any durability, whose
// faults can be switched, for the tests of what stands on top of a log;
// [Clock] is a clock that a test moves on by hand.
//
// It is for tests only.
package streamstest
