// Package rabbitmq is the streams driver for RabbitMQ Streams, 3.10 and newer.
// It sits below package streams, which forms entries, reconnects and resends;
// a partition is one stream, an entry one AMQP 1.0 message with one data section.
//
// # Connections
//
// Each producer and each consumer has connections of its own, because the
// broker's cost of a connection grows with the entities on it, and because one
// that hangs must not hold up another: one for the data and one on which the
// client library looks up where the stream lives. Nothing is pooled and nothing
// reconnects: what has lost its connection closes its Done channel. A login is
// the dearest thing that one can ask of the broker: an opening takes three, with
// the one that sees whether the broker is there, and few openings run at a time.
//
// With one URL every connection goes to exactly that address, whatever the
// broker advertises, so that a container's mapped port, a proxy or a load
// balancer in front of a cluster works. With several URLs they are the nodes of
// one cluster: producers go to the stream's leader and consumers to a replica,
// under the names that the nodes advertise; these must be reachable
// (stream.advertised_host, stream.advertised_port), and Open checks that of the
// leaders. One URL that names one node of a cluster, and not a balancer, does
// not work: the streams that live on other nodes cannot be opened.
//
// # Faults
//
// A broker that has died is seen at once, one that hangs or is cut off within
// seconds, by heartbeats; a producer whose entries stay unconfirmed ends too.
// The client library has calls that know no deadline. Each runs in a goroutine
// of its own, and its caller leaves when its context ends; a late result is
// closed. How many can hang at once is bounded.
//
// One thing cannot be mended from outside the library: when a connection ends
// between two messages of its login, within a millisecond or so, the goroutine
// that logs in waits for ever. It holds some 30 KB and nothing of the driver's.
// When the broker goes away in such a moment of an opening, the library may also
// go on dialling until it is back.
//
// # Streams
//
// Open declares the streams with the retention of its options. A stream that
// exists with other arguments is used as it is, with a warning in the log:
// retention is the operator's to change, by a policy, and what is stored counts
// more. Stored data is never deleted here.
//
// # What it does not do
//
// It keeps no positions at the broker, uses no single active consumer, no
// filter, no sub-entry batching and no compression, reads no statistics (they
// hang on 3.10), and does not resend: an id that the broker refuses ends the
// producer, and its user opens another one and resends in order.
package rabbitmq
