// Package limits says how much a sender may send: messages and bytes per
// second, for its identity, for the credential or user behind it, and for its
// workspace; and how many sessions a workspace and a credential may have.
//
// It decides from memory. Where several gateways share a limit, each has a part
// of it, and the parts follow the demand: a goroutine tells the others what was
// used and asks what is left, some times a second, for those who send (see
// [presence.Counters]). It knows numbers and keys; what is refused, and how that
// is told, is the caller's.
package limits
