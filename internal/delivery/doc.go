// Package delivery is what waits between the log and a client's stream: the
// frames of one session in lanes, the ledger of what it has yet to
// acknowledge, and the state of its place in each log that it reads.
//
// It knows nothing of gRPC, brokers or SQL. The router fills a [Mailbox] and
// asks it for watermarks; the session's pump empties it.
package delivery
