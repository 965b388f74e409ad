// Package embedded keeps the log in the SQLite file of a gateway that runs
// without a broker: it is a [streams.Driver] on [sqlitefile.File].
//
// An entry is one row. What waits on a partition is stored by one job, jobs of
// all partitions and of the store share a transaction and its sync, and ids
// are confirmed after that. Consumers take new entries from memory, older ones
// from the file, and are woken by the commit.
//
// The tables are the driver's own; migrations of the store do not touch them.
// The driver does not look into entries, does not reconnect, and cannot be
// shared by two processes; the file's lock sees to that.
package embedded
