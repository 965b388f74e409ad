// Package postgres is the store of gateways that share a PostgreSQL database:
// a [store.Store] on a bounded pool of connections.
//
// No call outlives its limit of time, whatever the database does, and no error
// contains the database's password. The package refuses a database whose
// tables are of another version, and never changes them unless it is told to
// migrate ([WithDB]).
package postgres
