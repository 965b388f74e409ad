// Package orchestrator has agents and tasks started that are not running: it
// keeps which implementations can be started and how, notices when mail waits
// for somebody who is not there, makes one start of it, gives that to an
// orchestrator that is connected here, and looks after it until the worker has
// come, worked and left.
//
// Everything durable is in the store, and every step is guarded there, so that
// any number of gateways do this side by side; what a gateway keeps in memory is
// who of its own clients can start something, and what it has yet to look at.
//
// It starts no process: that is the business of orchestrators.
package orchestrator
