// Package e2e tests the gateway from outside: the built program, started as
// `gateway dev` and as `gateway serve` on a real RabbitMQ and PostgreSQL, and
// spoken to by gRPC as any client does. Tokens come from `gateway token
// create`, readiness from /readyz.
//
// Every scenario runs in both modes. Faults of the parts below are made by
// killing them, or by a proxy before them. Nothing of the gateway's own
// packages is imported, so that what passes here holds for every client.
package e2e
