// Package ring is how one message reaches everybody who listens: one ring of
// messages for an address, and a cursor in it for each reader.
//
// Publishing costs the same however many readers have something to read. A
// reader that has read everything is parked by its filter class, and a message
// that its class does not take neither moves nor wakes it. A message leaves the
// ring when every reader has passed it; when the ring is full the oldest goes,
// and who had not read it is told how much of what its own filter takes it has
// missed.
//
// The package knows neither filters nor frames: whoever publishes says which
// classes take a message.
package ring
