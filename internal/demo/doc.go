// Package demo shows the gateway's main job in a terminal: an agent and a user
// talk, the agent goes away, its mail waits, it comes back and gets it in order,
// and a send that is not allowed is refused.
//
// It is a client like any other: it uses the public SDK over TCP and nothing of
// the gateway's inside. It tells what it observed, never what should have
// happened: every line is made of an [Event], and each scene ends with a
// verdict that was computed from what arrived. [Run] returns the events, so
// that a test can look at them.
package demo
