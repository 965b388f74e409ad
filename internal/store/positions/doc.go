// Package positions is what the engines share about committed positions: the
// texts of their SQL, what is refused before it reaches a database, and the
// order in which a call's commits are stored.
//
// It sits below the engines of package store and talks to no database.
package positions
