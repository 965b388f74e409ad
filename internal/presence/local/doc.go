// Package local keeps leases in the memory of one process, which is all the
// gateways that there are.
package local
