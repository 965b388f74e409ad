// Package chaos breaks whole deployments under load and judges what clients saw.
//
// A round starts gateways, as processes of the built program, with a RabbitMQ
// of one or three nodes, PostgreSQL and Redis, and a proxy on each connection
// between them and before each gateway. Senders and receivers of several kinds
// work through the Go SDK; meanwhile a schedule, drawn from a seed, kills, stops
// and cuts off one part after the other. At the end all is whole again, what
// waits must arrive, and package check compares all notes with the promises of
// docs/guarantees.md. docs/chaos.md says how to run it and how to read its table.
//
// TestDefects shows that a round would see a gateway that loses, doubles,
// reorders or misdelivers messages, with builds that do (tag chaosdefect).
package chaos
