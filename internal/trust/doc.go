// Package trust knows which credentials count at present: it keeps API keys, and
// what was revoked, as a copy in memory of what the store has.
//
// It answers from memory, so that connecting goes on while the database is away
// or slow: with what was known last. What it does not know yet, such as a key that was
// made a moment ago, it looks for once more, a few times a second at most
// whatever clients show.
//
// Everything here fails closed: before the first copy is there nobody is
// let in; a key that the copy does not have, or no longer has, is none.
package trust
