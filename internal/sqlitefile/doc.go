// Package sqlitefile owns the one SQLite file of an embedded gateway: its
// handle, its only writer and its readers.
//
// The embedded log and the embedded store share a file through it. Writes of
// all of them are jobs for one goroutine, which takes every job that waits,
// runs them in one transaction and pays for one sync of the disk (group
// commit). Reads go to a pool of read-only connections and never wait for the
// writer.
//
// The package refuses to open a file that another process has open, and one
// whose durability it cannot assert (write-ahead log, synchronous=FULL). It
// knows nothing of tables; those belong to its users.
package sqlitefile
