// Package faultproxy is a TCP proxy on 127.0.0.1 whose faults a test switches
// on and off while connections run through it: cut, refused, black-holed and
// delayed connections.
//
// Only tests import this package; it knows nothing of the gateway.
package faultproxy
