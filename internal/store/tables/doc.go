// Package tables is what the engines of the store have in common, which is
// nearly all: the interfaces of package store written once, as statements whose
// texts run on PostgreSQL and on SQLite, and what is refused before it reaches
// a database.
//
// An engine gives it a [DB] and embeds the [Tables] that [New] returns. The
// package knows no driver and opens nothing.
package tables
