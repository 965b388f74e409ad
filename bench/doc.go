// Bench measures the gateway against two baselines, in one run on one machine.
//
//	go run ./bench          about a minute and a half, for a look
//	go run ./bench -full    about a quarter of an hour: every cell, enough samples for a p99
//
// The baselines are a bare gRPC relay, which moves the same messages and does
// nothing else, and the stream client alone between a producer and a consumer.
// What both works give when they share the machine is the bound,
// 1/(1/relay + 1/raw). Figures of one machine say little; their ratios are
// what is reported and judged.
//
// Everything has the same process layout: clients in this process, the relay or
// the gateway in a process of its own, the broker and the database in theirs.
// Servers are private: loopback, free ports, temporary directories. While it
// measures it checks that each message comes once, in order, and is receipted.
//
// Nothing imports this package.
package main
