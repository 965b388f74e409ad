// Package streams is the log: a few partitions that hold the messages of many
// addresses, in order.
//
// The unit that a partition stores is an [Entry] of 1 to [MaxEnvelopes]
// envelopes; a [Position] names one envelope in it. A [Writer] forms entries
// of what waits and has them stored, a [Tail] reads on at the partition's end,
// and a [Driver] does either on something durable: RabbitMQ Streams or SQLite.
//
// The package knows bytes, offsets and confirms. It does not look into an
// envelope and knows nothing of addresses but the text that [Placement] maps
// to a partition.
package streams
