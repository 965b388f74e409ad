// Package legacy is a client of the base protocol, for tests: it knows no field with a number
// of 100 or more, as a client does that was made before the gateway's extensions.
//
// Its descriptors are the generated ones with the extensions taken out, so that whatever the
// gateway sends beyond the base protocol arrives as unknown fields, which Recv reports. A
// test can so assert both that such a client is served, and what of the extensions reaches it
// all the same.
//
// The package stands beside the tests that use it and is no part of the gateway or of the
// client library: it neither reconnects nor acknowledges, and it refuses, by a panic, to
// build a frame with a field that the base protocol does not have.
package legacy
