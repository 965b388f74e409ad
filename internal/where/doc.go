// Package where answers where a message is: stored, delivered, acknowledged,
// expired or refused, on whichever gateway.
//
// It puts together what the log shows, what the store has committed and what
// the gateway remembers that holds the receiver; it keeps nothing itself, and
// leaves to those who ask who may know.
package where
