// Package testservices starts private RabbitMQ, PostgreSQL and Redis servers
// for tests, from the programs that the machine's packages installed.
//
// Everything listens on 127.0.0.1, on free ports of its own, and keeps its data
// in a temporary directory. A service is a direct child of the test binary and
// dies with it, however it ends: normally, by a panic, by a timeout, by SIGKILL.
//
// A package that uses it calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(testservices.Main(m)) }
//
// Main runs the tests, then ends the shared services, then looks for leaked
// goroutines; so goleak.VerifyTestMain is not needed beside it. A test that
// calls goleak itself while services run passes IgnoreServices to it.
//
// Shared services (RabbitMQ, Postgres) are started on first use and live as
// long as the test binary: tests on them must pick stream names of their own,
// and must not kill them. NewBroker and NewPostgres give a test a server that
// it may kill, stop and start again; it ends with the test. NewRabbitCluster gives
// it three nodes, to lose one of them.
//
// A missing program fails the test. It is never a reason to skip.
//
// Only tests import this package; it knows nothing of the gateway.
package testservices
