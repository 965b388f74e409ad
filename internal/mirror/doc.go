// Package mirror keeps copies in memory of what the store keeps, so that
// deciding costs no round trip: who is a member, which workspaces there are,
// which rules and which keys.
//
// A copy is made anew when the store's feed says that something has changed.
// How old a copy may be:
//
//   - as long as the database answers: 2 s after a change at most, on every
//     gateway, and mostly some milliseconds;
//   - while it does not: the copy stays as it was, so that who is connected
//     goes on;
//   - when it answers again: 2 s later, plus what a call that hung takes to end
//     (the store's limit of time).
package mirror
