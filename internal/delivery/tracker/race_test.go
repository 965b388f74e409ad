//go:build race

package tracker_test

// raced says that the race detector is on, and times mean nothing.
const raced = true
